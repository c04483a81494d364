"""What was written, and what follows from it: a small writer in memory whose commits go to real logs.

It knows the members at each version and whom each commit reached, and answers the session service as the writer does.
What lists, sets and mailboxes must hold is a fold of its commits, which knows nothing of the code under test.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.support import dispatch
from tests.support.dispatch import TENANT, control, messages, ordinary, state

from qim_common.enums import MemberState
from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId
from qim_common.keys import BucketKeys
from qim_common.records import Audience, BlockFlags, RecordType, StateChange
from qim_common.redis import Argument, Instance
from qim_common.topology import Topology
from qim_session.domain.hints import Hint
from qim_session.domain.membership import MembershipChange
from qim_session.storage.conversations import NONE_HIDDEN, ConversationState, DeliveredPage, WireMessage

PEOPLE = tuple(dispatch.user(number) for number in range(1, 7))
"""Everybody there is."""

BIG_ABOVE = 4
BIG_BELOW = 3
"""A group is big from above the one until below the other."""


@dataclass(frozen=True)
class Commit:
    """One message, or with `seq` 0 a creation, and whom it was delivered to."""

    conversation: ConversationId
    partition: int
    time_ms: int
    seq: int
    reached: frozenset[UserId]
    dispatched: bool = True


@dataclass
class Written:
    """A group as the writer has it; `versions[n]` are the members at version n + 1.

    `dispatched`, `logged`: its creation is in the dispatch log, who comes into it in the membership log. `told`: who
    was in it when it became big, whose lists learn that, whatever reached them.
    """

    conversation: ConversationId
    dispatched: bool
    logged: bool
    versions: list[frozenset[UserId]] = field(default_factory=list)
    changes: dict[int, MembershipChange] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    head: int = 0
    big: bool = False
    told: frozenset[UserId] = frozenset()

    @property
    def members(self) -> frozenset[UserId]:
        """Who is in it now."""
        return self.versions[-1]

    def delivered(self, person: UserId) -> list[Commit]:
        """What reached a person, the creation included."""
        return [commit for commit in self.commits if person in commit.reached]


class Writer:
    """The writer: `MembershipSource` and `Conversations` of the session service, and the commits of a walk."""

    def __init__(self, instances: Sequence[Instance], topology: Topology) -> None:
        self._instances = tuple(instances)
        self._topology = topology
        self.groups: dict[ConversationId, Written] = {}
        self.memlog: dict[int, list[tuple[str, ConversationId, frozenset[UserId]]]] = {}

    async def create(
        self, conversation: ConversationId, people: Iterable[UserId], *, dispatched: bool, logged: bool
    ) -> Hint:
        """A new group with these members."""
        group = self.groups[conversation] = Written(conversation, dispatched, logged)
        members = frozenset(people)
        group.versions.append(members)
        flags = self._resize(group)
        block = state(conversation, StateChange.CREATED, flags=flags)
        await self._commit(group, [block] if dispatched else [], joined=members, reached=[(0, members)])
        return self._hint(group, broadcast=True, flags=flags)

    async def send(self, conversation: ConversationId, count: int) -> Hint:
        """Ordinary messages, all in one block."""
        group = self.groups[conversation]
        first = group.head + 1
        group.head += count
        flags = self._resize(group)
        sender = next(iter(group.members), dispatch.user(1))
        block = messages(
            conversation, len(group.versions), first, [ordinary(sender) for _ in range(count)], flags=flags
        )
        await self._commit(group, [block], reached=[(first + n, group.members) for n in range(count)])
        return self._hint(group, broadcast=True, flags=flags)

    async def change_members(
        self, conversation: ConversationId, people: Iterable[UserId], *, join: bool, broadcast: bool, opaque: bool
    ) -> Hint | None:
        """A membership event with its people; nothing where it would change nothing."""
        group = self.groups[conversation]
        before = group.members
        concerned = frozenset(people) - before if join else frozenset(people) & before
        if not concerned:
            return None
        group.head += 1
        group.versions.append(before | concerned if join else before - concerned)
        version = len(group.versions)
        op = MembershipOp.JOIN if join else MembershipOp.LEAVE
        group.changes[version] = MembershipChange(version, group.head, op, tuple(sorted(concerned)))
        flags = self._resize(group)
        audience = Audience.BROADCAST if broadcast else Audience.CONCERNED
        item: tuple[Audience, bytes | RecordType] = control(op, concerned, audience)
        if opaque:
            item = (audience, RecordType.CONTROL)
        block = messages(conversation, version, group.head, [item], flags=flags)
        reached = concerned | group.members if broadcast else concerned
        await self._commit(group, [block], joined=concerned if join else frozenset(), reached=[(group.head, reached)])
        return self._hint(group, broadcast=broadcast, flags=flags, concerned=concerned)

    def newest(self, person: UserId) -> dict[ConversationId, int]:
        """The fold for a list: conversation to the commit time of the newest that reached the person."""
        found = {group.conversation: group.delivered(person) for group in self.groups.values()}
        return {conversation: max(one.time_ms for one in row) for conversation, row in found.items() if row}

    def seqs(self, person: UserId) -> dict[ConversationId, list[int]]:
        """The fold for a mailbox: conversation to the delivered seqs, where there are any."""
        found = {
            group.conversation: [commit.seq for commit in group.delivered(person) if commit.seq]
            for group in self.groups.values()
        }
        return {conversation: seqs for conversation, seqs in found.items() if seqs}

    async def members(self, tenant: TenantId, conversation: ConversationId, version: int) -> set[UserId]:
        """As `MembershipSource.members`."""
        return set(self.groups[conversation].versions[version - 1])

    async def change(self, tenant: TenantId, group: ConversationId, version: int) -> MembershipChange:
        """As `MembershipSource.change`."""
        return self.groups[group].changes[version]

    async def states(
        self,
        tenant: TenantId,
        user: UserId,
        read: Mapping[ConversationId, int],
        *,
        with_preview: bool,
        hidden: Mapping[ConversationId, int] = NONE_HIDDEN,
    ) -> list[ConversationState]:
        """As `Conversations.states`, as far as lists, cursors and mailboxes need it."""
        return [self._state(user, conversation) for conversation in read]

    async def delivered(
        self, tenant: TenantId, user: UserId, conversation: ConversationId, *, after_seq: int, limit: int
    ) -> DeliveredPage:
        """As `Conversations.delivered`; a message is its seq."""
        rows = [commit for commit in self.groups[conversation].delivered(user) if commit.seq]
        waiting = [commit for commit in rows if commit.seq > after_seq]
        page = waiting[:limit]
        return DeliveredPage(
            entries=tuple(WireMessage(struct.pack(">Q", commit.seq)) for commit in page),
            next_after_seq=page[-1].seq if page else after_seq,
            more=len(waiting) > limit,
            generation=1,
            waiting=len(waiting),
            newest_delivered_seq=rows[-1].seq if rows else 0,
            first_time_ms=page[0].time_ms if page else 0,
        )

    def _state(self, person: UserId, conversation: ConversationId) -> ConversationState:
        group = self.groups[conversation]
        rows = group.delivered(person)
        if not rows:
            return ConversationState(conversation, MemberState.UNKNOWN)
        return ConversationState(
            conversation,
            MemberState.MEMBER if person in group.members else MemberState.LEFT,
            newest_delivered_seq=rows[-1].seq,
            last_activity_ms=rows[-1].time_ms,
            generation=1,
            upper_seq=rows[-1].seq,
            readable=True,
            big=group.big,
        )

    def _resize(self, group: Written) -> BlockFlags:
        """Whether the group is big from now on, and with this block."""
        was = group.big
        size = len(group.members)
        group.big = size > BIG_ABOVE or (was and size >= BIG_BELOW)
        if not group.big:
            return BlockFlags.NONE
        if was:
            return BlockFlags.BIG
        group.told |= group.members
        return BlockFlags.BIG | BlockFlags.BIG_BEGAN

    async def _commit(
        self,
        group: Written,
        blocks: Sequence[bytes],
        *,
        reached: Sequence[tuple[int, frozenset[UserId]]],
        joined: frozenset[UserId] = frozenset(),
    ) -> None:
        """Into both logs in one step, which gives both the same time."""
        partition = self._topology.conversation_bucket(TENANT, group.conversation)
        keys = BucketKeys(partition)
        commands: list[Sequence[Argument]] = [("MULTI",)]
        if joined and group.logged:
            entry = struct.pack(">Q16sH", TENANT, group.conversation, len(joined)) + b"".join(sorted(joined))
            commands.append(("XADD", keys.memlog, "*", "e", entry))
        if blocks:
            commands.append(("XADD", keys.dispatch, "*", "e", b"".join(blocks)))
        commands.append(("EXEC",))
        ids: list[bytes] = (await self._instances[self._topology.instance_of(partition)].pipeline(commands))[-1]
        if joined and group.logged:
            self.memlog.setdefault(partition, []).append((ids[0].decode(), group.conversation, joined))
        time_ms = int(ids[-1].partition(b"-")[0])
        for seq, people in reached:
            group.commits.append(Commit(group.conversation, partition, time_ms, seq, people, bool(blocks)))

    def _hint(
        self, group: Written, *, broadcast: bool, flags: BlockFlags, concerned: frozenset[UserId] = frozenset()
    ) -> Hint:
        return Hint(
            TENANT,
            group.conversation,
            len(group.versions),
            group.commits[-1].time_ms,
            broadcast,
            tuple(sorted(concerned)),
            big=BlockFlags.BIG in flags,
            became_big=BlockFlags.BIG_BEGAN in flags,
        )

"""What the commands ask of a backend: Protocols that mirror the GroupMembership trait and the message store.

Frozen values in, frozen values out; no backend is known here, and no transport. Every method raises
`BackendUnavailable` when the store does not answer: the call may have been carried out, and is repeated with its id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from qim_common.errors import QimError
from qim_common.idempotency import IdempotencyKey
from qim_common.ids import ConversationId, TenantId, UserId, show
from qim_common.records import Record, StateChange
from qim_writer.domain.changes import ChangePlan, GroupState
from qim_writer.domain.delivery import ControlEvent
from qim_writer.domain.explain import Event
from qim_writer.domain.hints import HintRun
from qim_writer.domain.members import Change
from qim_writer.domain.policy import Policy, PolicyChange, says_frozen
from qim_writer.domain.stays import Person, Stay
from qim_writer.domain.visible import Line, UnreadSpan

CHANGES_PEOPLE_MAX: Final = 100_000
"""People that the changes of one answer name, but for the first change: about 2 MiB on the wire."""


class Conversation(NamedTuple):
    """Which conversation of which tenant; the id is canonical."""

    tenant: TenantId
    id: ConversationId


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """The first answer of a membership change. `seq` is 0 when nothing had to change."""

    version: int
    seq: int
    count: int
    changed: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Where planning starts: the first answer of a known id, or the group's state; neither for an unknown group."""

    answer: ChangeAnswer | None
    state: GroupState | None


class Facts(NamedTuple):
    """One person in one conversation, read in one atomic step; `person` is None for somebody who never was in it."""

    version: int
    revision: int
    generation: int
    packed_policy: bytes
    member_count: int
    floor: int
    created_ms: int
    head: int
    newest_broadcast: int
    """The newest seq that is ordinary or BROADCAST; 0: none."""
    newest_broadcast_ms: int | None
    """Its commit time where its record was removed."""
    person: Person | None
    big: bool
    """Too large to be projected per message."""
    raised: tuple[tuple[int, int], ...] = ()
    """Of each generation that was raised its number and its base: what an older one had above that was lost."""

    @property
    def policy(self) -> Policy:
        """The conversation's policy; lists, which only ask whether it is frozen, do without it."""
        return Policy.unpack(self.packed_policy)

    @property
    def frozen(self) -> bool:
        """Whether an operator has frozen the group."""
        return says_frozen(self.packed_policy)

    def floor_for(self, person: Person) -> int:
        """The floor as far as the person learns of it: who is outside hears of nothing after the leave."""
        return self.floor if person.present else min(self.floor, person.newest.left_at - 1)

    def version_for(self, person: Person) -> int:
        """The version as far as the person learns of it: for who is outside the one that ended the stay."""
        return self.version if person.present else person.newest.ended_version

    @property
    def line(self) -> Line:
        """The conversation's own part in the visible range."""
        return Line(self.head, self.floor)


class Look(NamedTuple):
    """A conversation's facts and, read in the same step, the record at its head, visible to the person or not; None
    where that is gone, and for somebody who never was in the conversation."""

    facts: Facts
    newest: Record | None


@dataclass(frozen=True, slots=True)
class MembersPage:
    """A page of present members: entries (mailbox shard u16be, user) with their newest stays."""

    version: int
    count: int
    owner: UserId
    entries: tuple[bytes, ...]
    stays: tuple[Stay, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes after a version, oldest first; `current` is the present version."""

    changes: tuple[Change, ...]
    current: int


class MembershipStore(Protocol):
    """Membership on the same line as the messages (design.md invariants 1 to 5)."""

    async def create(
        self, group: Conversation, people: Sequence[UserId], policy: Policy, key: IdempotencyKey, *, big: bool
    ) -> ChangeAnswer:
        """Creates a group, the owner first in `people`.

        Raises GroupAlreadyExists, IdempotencyKeyReused, RequestTooOld."""
        ...

    async def plan_facts(self, group: Conversation, people: Sequence[UserId], key: IdempotencyKey) -> PlanFacts:
        """What a plan starts from. Raises IdempotencyKeyReused, RequestTooOld."""
        ...

    async def apply(
        self, group: Conversation, plan: ChangePlan, tail: bytes, key: IdempotencyKey
    ) -> ChangeAnswer | None:
        """Carries a plan out; None when version or policy are not the planned ones any more.

        Raises IdempotencyKeyReused, RequestTooOld."""
        ...

    async def facts(self, conversation: Conversation, user: UserId, *, told: bool = True) -> Facts | None:
        """One person in one conversation; None when there is no such conversation.

        With ack level archived it waits for a change of the conversation that the archive does not have yet. `told`
        False: nobody is told of more than what lies at or below the head, and nothing waits."""
        ...

    async def looks(self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]) -> list[Look | None]:
        """The same for many conversations of one person, in their order, each with the record at its head.

        With ack level archived version and stays are those of the archived head, and nothing waits."""
        ...

    async def members_page(self, group: Conversation, after: bytes, limit: int) -> MembersPage | None:
        """At most `limit` present members whose entry is above `after` (empty: from the start)."""
        ...

    def members_at(self, group: Conversation, version: int, shard: int | None) -> AsyncIterator[list[bytes]]:
        """The entries at a version, ascending, in pages of at most 1,000 people.

        Raises PermissionDenied for an unknown group, InvalidArgument for a version that does not exist yet,
        MembershipVersionExpired."""
        ...

    async def changes_since(self, group: Conversation, version: int, limit: int) -> Changes | None:
        """At most `limit` changes after `version`, fewer where they name more than `CHANGES_PEOPLE_MAX` people; None
        for an unknown group. Raises as `members_at`."""
        ...


class SendSink(Protocol):
    """Where the outcomes of a frame of sends go; one object a frame, no future or task a message."""

    def committed(self, index: int, seq: int, time_ms: int, version: int, generation: int) -> None:
        """The message is durable at the configured ack level, or was so before under the same id."""
        ...

    def refused(self, index: int, error: QimError) -> None:
        """The message took no seq, or its outcome is unknown (BackendUnavailable)."""
        ...

    @property
    def expired(self) -> bool:
        """Nobody waits for the outcomes any more: what was not yet written to the store need not be."""
        ...


@dataclass(slots=True)
class Send:
    """One checked message on its way to the commit. `people` are those of a direct conversation that it may create."""

    conversation: Conversation
    sender: UserId
    key: IdempotencyKey
    tail: bytes
    expected_version: int
    people: tuple[UserId, ...]
    sink: SendSink
    index: int


class CommitLog(Protocol):
    """The commit path: whatever waits for one instance goes in one atomic step."""

    def submit(self, sends: Sequence[Send]) -> None:
        """Hands sends over, in order; their sinks hear of the outcomes, OVERLOADED included."""
        ...


class ProjectionLane(Protocol):
    """The way to the session service's projection; what goes it may be lost, and may come twice."""

    async def project(self, runs: Sequence[HintRun]) -> None:
        """Hands 1 to 250 runs over. Raises QimError."""
        ...


class MessageStore(Protocol):
    """The messages of a conversation."""

    async def records(self, conversation: Conversation, seqs: Sequence[int]) -> list[Record]:
        """The records of these seqs, in their order; those that are not there are left out."""
        ...

    async def records_of_many(
        self, tenant: TenantId, wanted: Sequence[tuple[ConversationId, Sequence[int]]]
    ) -> list[list[Record]]:
        """The same for many conversations at once, in their order."""
        ...

    async def control_events(self, conversation: Conversation, first: int, last: int, limit: int) -> list[ControlEvent]:
        """At most `limit` control messages in `[first, last]`, ascending, also those whose record is gone."""
        ...

    async def controls(self, tenant: TenantId, spans: Sequence[tuple[ConversationId, int, int]]) -> list[int]:
        """For each span of seqs (conversation, first, last) how many control messages lie in it, also those whose
        record is gone."""
        ...

    async def event(self, conversation: Conversation, seq: int) -> Event | None:
        """What is kept of a control message, also when its record is gone; None for other seqs."""
        ...

    async def events(self, conversation: Conversation, after: int, limit: int) -> list[Change]:
        """At most `limit` membership events after a seq, oldest first, as their records tell; those whose record was
        removed have no people."""
        ...

    async def unread(
        self, tenant: TenantId, spans: Sequence[tuple[ConversationId, UnreadSpan, bytes]]
    ) -> list[int | None]:
        """For each conversation the ordinary messages of others in the span; the bytes are the person's ordinal.

        None where the floor has passed into the span meanwhile: its facts are to be read again."""
        ...


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group as it was right after a change without a seq: the answer that repeats are given."""

    revision: int
    version: int
    count: int
    head: int
    floor: int
    generation: int
    created_ms: int
    policy: Policy


@dataclass(frozen=True, slots=True)
class StateRecord:
    """One change without a seq, and who made it. `payload` is the packed policy, or the floor as u48."""

    revision: int
    change: StateChange
    time_ms: int
    version: int
    head: int
    maker: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class AgeCut:
    """The newest seq that is as old as asked for, or the floor where nothing above it is; and the group's policy."""

    seq: int
    floor: int
    policy: Policy


def maker_of_user(user: UserId) -> str:
    """How an end user is noted as the maker of a change; the owner is that of a creation."""
    return f"user:{show(user)}"


class GroupStateStore(Protocol):
    """Changes without a seq: settings, owner, freeze, floor and own clear points (design.md, "Words": state entry)."""

    async def stored_answer(self, conversation: Conversation, key: IdempotencyKey) -> bytes | None:
        """The packed first answer of a known id. Raises IdempotencyKeyReused, RequestTooOld."""
        ...

    async def change_policy(
        self, group: Conversation, change: PolicyChange, maker: str, key: IdempotencyKey
    ) -> GroupSnapshot | None:
        """Replaces the policy; None when it is no longer the planned one.

        Raises PermissionDenied, NewOwnerNotMember, IdempotencyKeyReused, RequestTooOld."""
        ...

    async def raise_floor(
        self, group: Conversation, upto: int, policy: Policy, maker: str, key: IdempotencyKey | None
    ) -> GroupSnapshot | None:
        """Moves the floor up to `upto` (0: the head), if the policy is still this one; else None.

        Raises PermissionDenied, IdempotencyKeyReused, RequestTooOld."""
        ...

    async def clear_own(self, conversation: Conversation, user: UserId, upto: int, key: IdempotencyKey) -> int:
        """Moves a person's clear point up to `upto` (0: everything they have); the clear point afterwards.

        Raises PermissionDenied, IdempotencyKeyReused, RequestTooOld."""
        ...

    def snapshot(self, answer: bytes) -> GroupSnapshot:
        """A stored answer of `change_policy` or `raise_floor`."""
        ...

    def clear_point(self, answer: bytes) -> int:
        """A stored answer of `clear_own`."""
        ...

    async def state_records(self, group: Conversation, after_revision: int, limit: int) -> list[StateRecord]:
        """At most `limit` changes after a revision, oldest first."""
        ...

    async def trim(self, conversation: Conversation) -> bool:
        """Removes up to 1,000 records at or below the floor; whether more may go now. With an archive none goes that
        is not in it."""
        ...

    async def retained_groups(self, bucket: int) -> list[Conversation]:
        """The groups of a bucket that have a retention by age."""
        ...

    async def untrimmed_groups(self, bucket: int) -> list[Conversation]:
        """The groups of a bucket that still have records at or below their floor."""
        ...

    async def age_cut(self, group: Conversation, time_ms: int) -> AgeCut | None:
        """What of a group was committed at or before `time_ms`; None for no group."""
        ...

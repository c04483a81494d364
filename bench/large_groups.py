"""Large groups and long unread spans: how long each script call holds the instance, and how that depends on the size.

Everything goes through the writer's own storage backend, so that the calls have the shape that the service gives them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.rig import TENANT
from bench.script_times import ScriptTimes, TimedInstance
from qim_common.idempotency import IdempotencyKey
from qim_common.ids import ConversationId, MembershipOp, UserId, control_body, uuid7
from qim_common.keys import SENDER_SEGMENT
from qim_common.records import RecordType, pack_tail
from qim_common.redis import Argument, ScriptLoader, checked
from qim_common.topology import Topology
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.membership import RedisMembershipStore
from qim_writer.backends.redis.messages import RedisMessageStore
from qim_writer.backends.redis.store import SCRIPTS, RedisStore
from qim_writer.domain.changes import ChangeRequest, plan_change
from qim_writer.domain.policy import GroupSettings, Limits, Policy
from qim_writer.domain.visible import UnreadSpan
from qim_writer.storage import Conversation

SMALL: Final = 100
MEMBERS: Final = 100_000
PEOPLE: Final = 1_000
DISTANCES: Final = (1_000, 100_000)
SPANS: Final = (10, 100, 1_000, 10_000, SENDER_SEGMENT, 1_000_000)

_BUCKETS: Final = 256
_RETENTION_MS: Final = 86_400_000
_SINGLE_ROUNDS: Final = 200
_FULL_ROUNDS: Final = 25
_UNREAD_ROUNDS: Final = 30
_CHANGE: Final = struct.Struct(">B6s6s16s")
_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class LargeGroups:
    """The script times, and how a change of the large group compares with the same change of the small one."""

    members: int
    times: Sequence[ScriptTimes]
    growth: dict[str, float]


async def large_groups(*, quick: bool) -> LargeGroups:
    """Measures everything. Raises ValkeyStartError, ReplyError, BackendUnavailable."""
    members = 20_000 if quick else MEMBERS
    with ValkeyServer() as server:
        instance = TimedInstance(server.address, SCRIPTS)
        instance.on_connected.append(ScriptLoader(SCRIPTS))
        await instance.start()
        await instance.calibrate()
        try:
            store = RedisStore([instance], Topology((server.address,), _BUCKETS, "bench"), retention_ms=_RETENTION_MS)
            growth, large = await _changes(store, instance, members)
            await _reads(store, instance, large)
            await _unread(store, instance)
        finally:
            await instance.close()
    return LargeGroups(members, instance.times(), growth)


class _Group:
    """A group that is changed through the storage backend."""

    def __init__(self, store: RedisStore) -> None:
        self._store = RedisMembershipStore(store)
        self._instance = store.instances[0]
        self.conversation = Conversation(TENANT, ConversationId(b"\x02" + uuid7()[1:]))
        self.place = store.place(TENANT, self.conversation.id)
        self.owner = UserId(uuid7())
        self.version = 1
        self.count = 1

    async def create(self) -> None:
        policy = Policy(settings=GroupSettings(member_limit=MEMBERS + 10 * PEOPLE), owner=self.owner)
        await self._store.create(self.conversation, [self.owner], policy, _key(), big=False)

    async def change(self, op: MembershipOp, people: Sequence[UserId]) -> None:
        """Plans and applies one change of all of these people."""
        key = _key()
        facts = await self._store.plan_facts(self.conversation, people, key)
        assert facts.state is not None
        plan = plan_change(facts.state, ChangeRequest(op, tuple(people)), _LIMITS)
        body = control_body(plan.op, plan.actor, plan.people)
        tail = pack_tail(RecordType.CONTROL, plan.sender, plan.sender, uuid7(), b"qim.membership.v1", body)
        answer = await self._store.apply(self.conversation, plan, tail, key)
        assert answer is not None
        assert answer.changed == len(people)
        self.version, self.count = answer.version, answer.count

    async def read_pages(self) -> int:
        """All pages of present members with their stays; how many people."""
        after, count = b"", 0
        while True:
            page = await self._store.members_page(self.conversation, after, PEOPLE)
            assert page is not None
            count += len(page.entries)
            if len(page.entries) < PEOPLE:
                return count
            after = page.entries[-1]

    async def come_and_go(self, changes: int) -> None:
        """An even number of changes of one person each, as the change log holds them; afterwards all are present."""
        page = await self._store.members_page(self.conversation, b"", PEOPLE)
        assert page is not None
        commands: list[tuple[Argument, ...]] = []
        for index in range(changes):
            op = MembershipOp.JOIN if index % 2 else MembershipOp.REMOVE
            user = page.entries[index // 2 % len(page.entries)][2:]
            self.version += 1
            change = _CHANGE.pack(op, bytes(6), bytes(6), bytes(16)) + user
            commands.append(("XADD", self.place.keys.grpchg, f"{self.version}-0", "d", change))
        commands.append(("HSET", self.place.keys.grpmeta, "version", self.version))
        for start in range(0, len(commands), PEOPLE):
            checked(await self._instance.pipeline(commands[start : start + PEOPLE]))

    async def members_at(self, version: int) -> int:
        """All members at a version; how many."""
        return sum([len(entries) async for entries in self._store.members_at(self.conversation, version, None)])


async def _changes(store: RedisStore, timed: TimedInstance, members: int) -> tuple[dict[str, float], _Group]:
    small, large = _Group(store), _Group(store)
    for group in (small, large):
        await group.create()
    await small.change(MembershipOp.JOIN, _people(SMALL - 1))
    joining = _people(members - 1)
    with timed.situation(f"join 1,000, growing to {members:,}"):
        for start in range(0, len(joining), PEOPLE):
            await large.change(MembershipOp.JOIN, joining[start : start + PEOPLE])
    growth: dict[str, float] = {}
    for size, rounds in ((1, _SINGLE_ROUNDS), (PEOPLE, _FULL_ROUNDS)):
        for _ in range(rounds):
            # Small and large take turns, so that the machine's moods meet both.
            for group, count in ((small, SMALL), (large, members)):
                newcomers = _people(size)
                for op, name in ((MembershipOp.JOIN, "join"), (MembershipOp.REMOVE, "leave")):
                    with timed.situation(f"{name} {size:,}, {count:,} members"):
                        await group.change(op, newcomers)
        for name in ("join", "leave"):
            before, after = (
                timed.times_of("change_members", f"{name} {size:,}, {count:,} members").cpu_ms
                for count in (SMALL, members)
            )
            growth[f"{name} {size:,}"] = round(after / before, 2)
    return growth, large


async def _reads(store: RedisStore, timed: TimedInstance, group: _Group) -> None:
    with timed.situation(f"pages of 1,000, {group.count:,} members"):
        assert await group.read_pages() == group.count
    with timed.situation("recipients now"):
        assert await group.members_at(group.version) == group.count
    done = 0
    for distance in DISTANCES:
        await group.come_and_go(distance - done)
        done = distance
        with timed.situation(f"recipients {distance:,} changes back"):
            assert await group.members_at(group.version - distance) == group.count


async def _unread(store: RedisStore, timed: TimedInstance) -> None:
    """The two worst cases: nobody but oneself has written, and two people who take turns."""
    messages = RedisMessageStore(store)
    one, other = b"\0\0\1", b"\0\0\2"
    segments = max(SPANS) // SENDER_SEGMENT + 2
    head = segments * SENDER_SEGMENT
    for name, column in (("alone", one * SENDER_SEGMENT), ("two senders", (one + other) * (SENDER_SEGMENT // 2))):
        conversation = ConversationId(b"\x02" + uuid7()[1:])
        place = store.place(TENANT, conversation)
        for segment in range(segments):
            await store.instances[0].call("SET", place.keys.msgsnd(segment), column)
        for span in SPANS:
            with timed.situation(f"unread, {name}, {span:,} seqs"):
                for start in range(_UNREAD_ROUNDS if span <= SENDER_SEGMENT else 1):
                    lower = head - span - 2 * start
                    (unread,) = await messages.unread(TENANT, [(conversation, UnreadSpan(lower, lower + span), one)])
                    assert unread == (0 if name == "alone" else span // 2)


def _people(count: int) -> list[UserId]:
    return [UserId(os.urandom(16)) for _ in range(count)]


def _key() -> IdempotencyKey:
    return IdempotencyKey(os.urandom(16), os.urandom(8), 0)

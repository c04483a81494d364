"""The push lane on real logs and checkpoints: what it delivers, and what it does when something is not as it should."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry
from tests.integration.session.conftest import BUCKETS, Running, Store, until
from tests.support.dispatch import TENANT, control, group, messages, ordinary, user

from qim_common.errors import BackendUnavailable
from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId
from qim_common.keys import BucketKeys, PushKeys
from qim_common.records import Audience, BlockFlags, RecordType
from qim_common.telemetry.metrics import PushMetrics
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.backends.redis_live import RedisClock
from qim_session.backends.redis_push import RedisPushCheckpoints, RedisPushMarks
from qim_session.commands.audience import Audiences
from qim_session.commands.consume import DispatchConsumer
from qim_session.commands.push.deciding import Decider
from qim_session.commands.push.gathering import Gatherer
from qim_session.commands.push.lane import CANDIDATES_PER_STEP, PushLane
from qim_session.domain.membership import MembersCache
from qim_session.domain.push import Notification
from qim_session.storage.conversations import NONE_HIDDEN, ConversationState, DeliveredPage
from qim_session.storage.push import MessageContent, SinkUnavailable

HIKERS = group(1)
ANA, BEN = user(1), user(2)
LARGE = (Audience.BROADCAST, RecordType.ORDINARY)
KEYS = PushKeys("test")
pytestmark = pytest.mark.server


class NobodyAsked:
    """The writer's states where no setting asks for them."""

    async def states(
        self,
        tenant: TenantId,
        user: UserId,
        read: Mapping[ConversationId, int],
        *,
        with_preview: bool,
        hidden: Mapping[ConversationId, int] = NONE_HIDDEN,
    ) -> list[ConversationState]:
        raise AssertionError("nobody is to be asked for states")

    async def delivered(
        self, tenant: TenantId, user: UserId, conversation: ConversationId, *, after_seq: int, limit: int
    ) -> DeliveredPage:
        raise AssertionError("nobody is to be asked for deliveries")


@dataclass
class Large:
    """Large messages, for those who may read them."""

    readers: set[UserId] = field(default_factory=set)

    async def read(
        self, tenant: TenantId, conversation: ConversationId, seq: int, reader: UserId
    ) -> MessageContent | None:
        return MessageContent(ANA, "large", b"x") if reader in self.readers else None


@dataclass
class Sink:
    """Takes everything, unless it is told otherwise."""

    taken: list[Notification] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    fails_for: set[ConversationId] = field(default_factory=set)
    holds: asyncio.Event | None = None
    held: asyncio.Event = field(default_factory=asyncio.Event)

    async def deliver(self, batch: Sequence[Notification]) -> None:
        if any(one.conversation in self.fails_for for one in batch):
            raise SinkUnavailable
        if self.holds is not None:
            self.held.set()
            await self.holds.wait()
        self.taken += batch
        self.batches.append(len(batch))

    def of(self, conversation: ConversationId) -> list[tuple[UserId | None, int, int]]:
        return [(one.recipient, one.message.seq, one.count) for one in self.taken if one.conversation == conversation]


@dataclass
class Pushing:
    """A push consumer as another process would have it."""

    store: Store
    sink: Sink = field(default_factory=Sink)
    large: Large = field(default_factory=Large)
    topics: bool = False
    metrics: PushMetrics = field(default_factory=lambda: PushMetrics(CollectorRegistry()))

    def __post_init__(self) -> None:
        store = self.store
        self.log = RedisDispatchLog(store.instance, store.topology.buckets_of(0))
        self.lane = PushLane(
            self.log,
            RedisClock(store.instance),
            RedisPushCheckpoints(store.instance, KEYS),
            Gatherer(
                Audiences(store.members, MembersCache(10_000), self.metrics),
                self.large,
                self.metrics,
                topics=self.topics,
            ),
            Decider(
                RedisPushMarks([store.instance], store.topology),
                NobodyAsked(),
                self.metrics,
                unread_max_recipients=0,
                body_max_bytes=16,
            ),
            self.sink,
            self.metrics,
            batch_max=100,
            max_age_ms=2**50,
        )
        blocking = RedisDispatchLog(store.dispatch, store.topology.buckets_of(0))
        self.consumer = DispatchConsumer(blocking, self.lane, self.metrics)

    def running(self) -> Running:
        return Running(self.consumer)

    async def checkpoint(self, conversation: ConversationId) -> bytes | None:
        stored: bytes | None = await self.store.instance.call(
            "HGET", KEYS.checkpoints, str(self.store.partition(conversation))
        )
        return stored

    async def at(self, conversation: ConversationId, position: str) -> bool:
        stored = await self.checkpoint(conversation)
        return stored is not None and stored.startswith(position.encode() + b"@")


def members(store: Store, conversation: ConversationId, version: int, *people: UserId) -> None:
    store.members.versions[conversation, version] = set(people)


def elsewhere(store: Store) -> ConversationId:
    """A conversation of another partition than HIKERS."""
    return next(group(n) for n in range(2, 100) if store.partition(group(n)) != store.partition(HIKERS))


async def test_the_checkpoint_moves_when_the_sink_has_taken_everything(store: Store) -> None:
    members(store, HIKERS, 1, ANA, BEN)
    pushing = Pushing(store)
    pushing.sink.fails_for = {HIKERS}
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    async with pushing.running():

        async def failed() -> bool:
            return float(pushing.metrics.failures._value.get()) >= 2

        await until(failed)
        assert await pushing.checkpoint(HIKERS) is None
        pushing.sink.fails_for = set()
        await until(lambda: pushing.at(HIKERS, "10-0"))
    assert pushing.sink.of(HIKERS) == [(BEN, 1, 1)]


async def test_a_failing_conversation_holds_up_no_other_partition(store: Store) -> None:
    rowers = elsewhere(store)
    for conversation in (HIKERS, rowers):
        members(store, conversation, 1, ANA, BEN)
        await store.append(conversation, messages(conversation, 1, 1, [ordinary(ANA)]), at="10-0")
    pushing = Pushing(store)
    pushing.sink.fails_for = {HIKERS}
    async with pushing.running():
        await until(lambda: pushing.at(rowers, "10-0"))
    assert pushing.sink.of(HIKERS) == []


async def test_a_sink_that_takes_long_holds_up_no_other_partition(store: Store) -> None:
    rowers = elsewhere(store)
    for conversation in (HIKERS, rowers):
        members(store, conversation, 1, ANA, BEN)
    pushing = Pushing(store)
    pushing.sink.holds = asyncio.Event()
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    async with pushing.running():
        await asyncio.wait_for(pushing.sink.held.wait(), 20)
        holds, pushing.sink.holds = pushing.sink.holds, None
        await store.append(rowers, messages(rowers, 1, 1, [ordinary(ANA)]), at="20-0")
        await until(lambda: pushing.at(rowers, "20-0"))
        assert await pushing.checkpoint(HIKERS) is None
        holds.set()
        await until(lambda: pushing.at(HIKERS, "10-0"))
        await store.append(HIKERS, messages(HIKERS, 1, 2, [ordinary(ANA)]), at="20-0")
        await until(lambda: pushing.at(HIKERS, "20-0"))
    assert pushing.sink.of(HIKERS) == [(BEN, 1, 1), (BEN, 2, 1)]


async def test_a_lost_partition_is_given_up_and_comes_again_elsewhere(store: Store) -> None:
    members(store, HIKERS, 1, ANA, BEN)
    pushing, other = Pushing(store), Pushing(store)
    pushing.sink.holds = asyncio.Event()
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    async with pushing.running():
        await asyncio.wait_for(pushing.sink.held.wait(), 20)
        pushing.consumer.hold(())
        await pushing.lane.drain(20)
        async with other.running():
            await until(lambda: other.at(HIKERS, "10-0"))
    assert pushing.sink.taken == []
    assert other.sink.of(HIKERS) == [(BEN, 1, 1)]


async def test_a_checkpoint_that_another_consumer_moved_is_taken_up(store: Store) -> None:
    members(store, HIKERS, 1, ANA, BEN)
    one, two = Pushing(store), Pushing(store)
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    async with one.running(), two.running():
        await until(lambda: one.at(HIKERS, "10-0"))
        await store.append(HIKERS, messages(HIKERS, 1, 2, [ordinary(ANA)]), at="20-0")
        await until(lambda: one.at(HIKERS, "20-0"))
        await store.append(HIKERS, messages(HIKERS, 1, 3, [ordinary(ANA)]), at="30-0")
        await until(lambda: one.at(HIKERS, "30-0"))
    assert {one.id for one in [*one.sink.taken, *two.sink.taken] if one.recipient == BEN} != set()
    assert {seq for _, seq, _ in [*one.sink.of(HIKERS), *two.sink.of(HIKERS)]} == {1, 2, 3}


async def test_ending_in_order_waits_for_what_the_sink_is_taking(store: Store) -> None:
    members(store, HIKERS, 1, ANA, BEN)
    pushing = Pushing(store)
    pushing.sink.holds = asyncio.Event()
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    async with pushing.running():
        await asyncio.wait_for(pushing.sink.held.wait(), 20)
        draining = asyncio.create_task(pushing.lane.drain(20))
        pushing.sink.holds.set()
        await draining
        assert await pushing.at(HIKERS, "10-0")
        with pytest.raises(BackendUnavailable):
            await pushing.lane.apply(0, (), None, 0)  # type: ignore[arg-type]


async def test_what_is_delivered_is_noted_on_the_way_through_a_backlog(store: Store) -> None:
    many = [user(number) for number in range(1, CANDIDATES_PER_STEP + 2)]
    members(store, HIKERS, 1, *many)
    same = next(group(n) for n in range(2, 100) if store.partition(group(n)) == store.partition(HIKERS))
    members(store, same, 1, ANA, BEN)
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    await store.append(same, messages(same, 1, 1, [ordinary(ANA)]), at="20-0")
    pushing = Pushing(store)
    pushing.sink.fails_for = {same}
    async with pushing.running():
        await until(lambda: pushing.at(HIKERS, "10-0"))
        pushing.sink.fails_for = set()
        await until(lambda: pushing.at(same, "20-0"))
    assert sum(pushing.sink.batches) == CANDIDATES_PER_STEP + 1
    assert max(pushing.sink.batches) == 100


@pytest.mark.parametrize("stored", [b"rubbish", b"5-0@another-log", b"99999999999999-0@"])
async def test_a_checkpoint_that_says_nothing_about_the_log_begins_anew(store: Store, stored: bytes) -> None:
    members(store, HIKERS, 1, ANA, BEN)
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    pushing = Pushing(store)
    await pushing.lane.load([0])
    log_id = (await pushing.log.bounds([0]))[0].log_id
    value = stored + log_id.encode() if stored.endswith(b"@") else stored
    for partition in range(BUCKETS):
        await store.instance.call("HSET", KEYS.checkpoints, str(partition), value)
    async with pushing.running():
        await until(lambda: pushing.at(HIKERS, "10-0"))
    assert pushing.sink.of(HIKERS) == [(BEN, 1, 1)]


async def test_a_gap_is_counted_and_raises_no_epoch(store: Store) -> None:
    members(store, HIKERS, 1, ANA, BEN)
    pushing = Pushing(store)
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    async with pushing.running():
        await until(lambda: pushing.at(HIKERS, "10-0"))
    for ms in (20, 30, 40):
        await store.append(HIKERS, messages(HIKERS, 1, ms // 10, [ordinary(ANA)]), at=f"{ms}-0")
    await store.instance.call("XTRIM", BucketKeys(store.partition(HIKERS)).dispatch, "MINID", "40")
    later = Pushing(store)
    async with later.running():
        await until(lambda: later.at(HIKERS, "40-0"))
    assert later.sink.of(HIKERS) == [(BEN, 4, 1)]
    assert later.metrics.dispatch_gaps._value.get() == 1
    assert await store.instance.call("KEYS", "*epoch*") == []


async def test_a_first_start_on_a_trimmed_log_is_no_gap(store: Store) -> None:
    members(store, HIKERS, 1, ANA, BEN)
    for ms in (10, 20):
        await store.append(HIKERS, messages(HIKERS, 1, ms // 10, [ordinary(ANA)]), at=f"{ms}-0")
    await store.instance.call("XTRIM", BucketKeys(store.partition(HIKERS)).dispatch, "MINID", "20")
    pushing = Pushing(store)
    async with pushing.running():
        await until(lambda: pushing.at(HIKERS, "20-0"))
    assert pushing.sink.of(HIKERS) == [(BEN, 2, 1)]
    assert pushing.metrics.dispatch_gaps._value.get() == 0


async def test_an_entry_that_cannot_be_read_is_passed_over(store: Store) -> None:
    members(store, HIKERS, 1, ANA, BEN)
    await store.append(HIKERS, b"\x01rubbish", at="10-0")
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)])[:-3], at="20-0")
    await store.append(HIKERS, messages(HIKERS, 1, 2, [ordinary(ANA)]), at="30-0")
    pushing = Pushing(store)
    async with pushing.running():
        await until(lambda: pushing.at(HIKERS, "30-0"))
    assert (BEN, 2, 1) in pushing.sink.of(HIKERS) or (BEN, 2, 2) in pushing.sink.of(HIKERS)
    assert pushing.metrics.entries_unreadable._value.get() >= 1


async def test_membership_events_tell_nobody_and_move_the_audience_on(store: Store) -> None:
    members(store, HIKERS, 1, ANA, BEN)
    await store.append(
        HIKERS,
        messages(HIKERS, 1, 1, [ordinary(ANA)]),
        messages(HIKERS, 2, 2, [control(MembershipOp.LEAVE, [BEN])]),
        messages(HIKERS, 3, 3, [control(MembershipOp.JOIN, [user(3)])]),
        messages(HIKERS, 3, 4, [ordinary(ANA)]),
        at="10-0",
    )
    pushing = Pushing(store)
    async with pushing.running():
        await until(lambda: pushing.at(HIKERS, "10-0"))
    assert sorted(pushing.sink.of(HIKERS)) == [(BEN, 1, 1), (user(3), 4, 1)]


async def test_a_large_message_is_asked_for_and_left_out_where_nobody_may_read_it(store: Store) -> None:
    members(store, HIKERS, 1, ANA, BEN)
    await store.append(HIKERS, messages(HIKERS, 1, 1, [LARGE]), at="10-0")
    pushing = Pushing(store)
    async with pushing.running():
        await until(lambda: pushing.at(HIKERS, "10-0"))
        assert pushing.sink.taken == []
        pushing.large.readers = {BEN}
        await store.append(HIKERS, messages(HIKERS, 1, 2, [LARGE]), at="20-0")
        await until(lambda: pushing.at(HIKERS, "20-0"))
    assert pushing.sink.of(HIKERS) == [(BEN, 2, 1)]
    assert pushing.sink.taken[0].message.custom_type == "large"


async def test_an_audience_that_is_gone_holds_nobody_up(store: Store) -> None:
    members(store, HIKERS, 2, ANA, BEN)
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    await store.append(HIKERS, messages(HIKERS, 2, 2, [ordinary(ANA)]), at="20-0")
    pushing = Pushing(store)
    async with pushing.running():
        await until(lambda: pushing.at(HIKERS, "20-0"))
    assert pushing.sink.of(HIKERS) == [(BEN, 2, 1)]
    assert pushing.metrics.audiences_unresolved._value.get() == 1


async def test_no_body_goes_along_where_no_state_says_that_it_may_be_read(store: Store) -> None:
    members(store, HIKERS, 1, ANA, BEN)
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA, b"hello")]), at="10-0")
    pushing = Pushing(store)
    async with pushing.running():
        await until(lambda: pushing.at(HIKERS, "10-0"))
    (one,) = pushing.sink.taken
    assert (one.unread, one.body, one.message.size) == (None, None, 5)


async def test_an_outage_of_the_writer_costs_time_and_nothing_else(store: Store) -> None:
    members(store, HIKERS, 1, ANA, BEN)
    store.members.down = True
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    pushing = Pushing(store)

    async def refused() -> bool:
        return store.members.refused >= 2

    async with pushing.running():
        await until(refused)
        store.members.down = False
        await until(lambda: pushing.at(HIKERS, "10-0"))
    assert pushing.sink.of(HIKERS) == [(BEN, 1, 1)]


@pytest.mark.parametrize("topics", [False, True])
async def test_nobody_is_loaded_and_asked_about_for_a_big_group(store: Store, *, topics: bool) -> None:
    for at, items in (("10-0", [ordinary(ANA)]), ("20-0", [LARGE])):
        block = messages(HIKERS, 1, int(at[0]), items, flags=BlockFlags.BIG)
        await store.append(HIKERS, block, at=at)
    store.members.down = True
    pushing = Pushing(store, topics=topics)
    async with pushing.running():
        await until(lambda: pushing.at(HIKERS, "20-0"))
    assert store.members.refused == 0
    assert pushing.sink.of(HIKERS) == ([(None, 2, 2)] if topics else [])
    assert {one.tenant for one in pushing.sink.taken} == ({TENANT} if topics else set())

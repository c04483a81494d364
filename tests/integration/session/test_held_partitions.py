"""Which partitions a consumer works on, what it does where it may not, and that one that lost them does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.integration.session.conftest import BUCKETS, KnownMembers, Store, until
from tests.support.dispatch import TENANT, group, messages, ordinary, user

from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.keys import PersonKeys, checkpoints
from qim_common.positions import Position
from qim_common.redis import Instance
from qim_session.commands.consume import DispatchConsumer
from qim_session.commands.lane import PartitionMovedError
from qim_session.commands.projection import Projector
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.position import Checkpoint
from qim_session.storage.projection import ENTRIES_PER_CALL, CheckpointStep

ANA = user(1)
HIKERS = group(1)
pytestmark = pytest.mark.server


@asynccontextmanager
async def at_work(store: Store) -> AsyncIterator[DispatchConsumer]:
    """A consumer of another process, which holds nothing yet."""
    dispatch = Instance(store.server.address, name="dispatch", instance_position=0)
    await dispatch.start()
    consumer = store.consumer(dispatch)
    task = asyncio.create_task(consumer.run())
    yield consumer
    task.cancel()
    await asyncio.wait([task])
    await dispatch.close()


async def lists(store: Store, person: UserId, expected: dict[ConversationId, int]) -> bool:
    return await store.listed(person) == expected


async def test_each_consumer_works_on_what_it_holds(store: Store) -> None:
    groups = [group(number) for number in range(1, 41)]
    for number, conversation in enumerate(groups, 1):
        store.members.versions[conversation, 1] = {ANA}
        await store.append(conversation, messages(conversation, 1, 1, [ordinary(ANA)]), at=f"{number}-0")
    async with at_work(store) as one, at_work(store) as two:
        one.hold(range(0, BUCKETS, 2))
        two.hold(range(1, BUCKETS, 2))
        await until(lambda: lists(store, ANA, {conversation: number for number, conversation in enumerate(groups, 1)}))
        assert set(one.positions) <= set(range(0, BUCKETS, 2))
        assert set(two.positions) <= set(range(1, BUCKETS, 2))
    assert store.metrics.checkpoint_conflicts._value.get() == 0


async def test_a_partition_that_nobody_holds_waits_and_is_taken_up(store: Store) -> None:
    store.members.versions[HIKERS, 1] = {ANA}
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    others = set(range(BUCKETS)) - {store.partition(HIKERS)}
    async with at_work(store) as consumer:
        consumer.hold(others)

        async def others_are_up_to_date() -> bool:
            return set(consumer.positions) == others and min(await partition_progress(store, others)) > 0

        await until(others_are_up_to_date)
        assert await store.listed(ANA) == {}
        consumer.hold(range(BUCKETS))
        await until(lambda: lists(store, ANA, {HIKERS: 10}))


async def partition_progress(store: Store, partitions: set[int]) -> list[int]:
    found = await store.progress().partitions()
    return [found[partition] for partition in partitions]


class SlowMembers(KnownMembers):
    """A writer that answers nobody before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.given_up = False

    async def members(self, tenant: TenantId, conversation: ConversationId, version: int) -> set[UserId]:
        self.asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.given_up = True
            raise
        return await super().members(tenant, conversation, version)


async def test_what_is_lost_is_given_up_at_once(store: Store) -> None:
    slow = SlowMembers()
    slow.versions[HIKERS, 1] = {ANA}
    store.members = slow
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    async with at_work(store) as consumer:
        consumer.hold(range(BUCKETS))
        async with asyncio.timeout(10):
            await slow.asked.wait()
        consumer.hold(())

        async def given_up() -> bool:
            return slow.given_up

        await until(given_up)
        assert consumer.positions == {}
        slow.go.set()
        consumer.hold(range(BUCKETS))
        await until(lambda: lists(store, ANA, {HIKERS: 10}))


@pytest.mark.parametrize("count", [1, ENTRIES_PER_CALL, 2 * ENTRIES_PER_CALL + 1])
async def test_a_stalled_holder_that_wakes_up_writes_nothing(store: Store, count: int) -> None:
    """Not even the calls of a large batch that come before the one that moves the checkpoint."""
    stalled, heir = (Projector([store.projection], store.topology) for _ in range(2))
    batch = [ProjectionEntry(TENANT, user(number), HIKERS, 99) for number in range(1, count + 1)]
    await stalled.load([3])
    await heir.load([3])
    await heir.apply(3, [], Checkpoint(Position(10, 0), "a" * 32), 10)
    with pytest.raises(PartitionMovedError):
        await stalled.apply(3, batch, Checkpoint(Position(9, 0), "a" * 32), 9)
    assert await store.listed(user(1)) == await store.listed(user(count)) == {}
    assert await store.projection.checkpoints([3]) == [Checkpoint(Position(10, 0), "a" * 32)]
    assert await stalled.settle({3: 50}) == {3}
    assert await store.projection.progress() == {3: 10}


async def test_wiped_checkpoints_are_noticed_though_nothing_new_is_written(store: Store) -> None:
    store.members.versions[HIKERS, 1] = {ANA}
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    async with at_work(store) as consumer:
        consumer.hold(range(BUCKETS))
        await until(lambda: lists(store, ANA, {HIKERS: 10}))
        keys = PersonKeys(TENANT, ANA, store.topology.person_bucket(TENANT, ANA))
        await store.instance.call("DEL", keys.convs, checkpoints(0))
        await until(lambda: lists(store, ANA, {HIKERS: 10}))
    assert store.metrics.dispatch_gaps._value.get() == 0


async def test_a_partition_that_must_not_be_consumed_is_told_and_holds_up_no_other_one(store: Store) -> None:
    other = next(group(n) for n in range(2, 100) if store.partition(group(n)) != store.partition(HIKERS))
    store.members.versions |= {(HIKERS, 1): {ANA}, (other, 1): {ANA}}
    foreign = Checkpoint(Position(5, 0), "d" * 32)
    await store.projection.project([], CheckpointStep(store.partition(HIKERS), None, foreign))
    for conversation in (HIKERS, other):
        await store.append(conversation, messages(conversation, 1, 1, [ordinary(ANA)]), at="10-0")
    async with at_work(store) as consumer:
        consumer.hold(range(BUCKETS))
        await until(lambda: lists(store, ANA, {other: 10}))
        assert store.partition(HIKERS) not in consumer.positions
    assert store.metrics.partitions_refused._value.get() >= 1
    assert await store.projection.checkpoints([store.partition(HIKERS)]) == [foreign]


async def test_a_checkpoint_that_cannot_be_read_holds_up_no_other_partition(store: Store) -> None:
    other = next(group(n) for n in range(2, 100) if store.partition(group(n)) != store.partition(HIKERS))
    store.members.versions |= {(HIKERS, 1): {ANA}, (other, 1): {ANA}}
    await store.instance.call("HSET", checkpoints(0), str(store.partition(HIKERS)), "nonsense")
    for conversation in (HIKERS, other):
        await store.append(conversation, messages(conversation, 1, 1, [ordinary(ANA)]), at="10-0")
    async with at_work(store) as consumer:
        consumer.hold(range(BUCKETS))
        await until(lambda: lists(store, ANA, {other: 10}))
    assert store.metrics.partitions_refused._value.get() >= 1


async def test_the_progress_of_idle_partitions_moves_on(store: Store) -> None:
    progress = store.progress()
    assert await progress.settled_ms() == 0
    seconds, _ = await store.instance.call("TIME")
    async with at_work(store) as consumer:
        consumer.hold(range(BUCKETS))
        async with asyncio.timeout(10):
            await progress.reached((int(seconds) + 1) * 1000)
    assert min((await progress.partitions()).values()) >= (int(seconds) + 1) * 1000
    assert store.metrics.dispatch_lag.labels("0")._value.get() < 10


async def test_partitions_that_nobody_has_consumed_hold_the_progress_at_nothing(store: Store) -> None:
    async with at_work(store) as consumer:
        consumer.hold(range(1, BUCKETS))

        async def rest_moved() -> bool:
            return min(await partition_progress(store, set(range(1, BUCKETS)))) > 0

        await until(rest_moved)
    assert await store.progress().settled_ms() == 0

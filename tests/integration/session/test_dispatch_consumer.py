"""The durable lane on a real Valkey: what is in the log reaches the lists, once, whatever fails in between."""

from __future__ import annotations

import pytest
from tests.integration.session.conftest import Running, Store, until
from tests.support.dispatch import TENANT, control, group, messages, ordinary, state, user
from tests.support.valkey import connected_again

from qim_common.errors import BackendUnavailable
from qim_common.ids import MembershipOp
from qim_common.keys import BucketKeys, projection_epoch
from qim_common.positions import Position
from qim_common.records import Audience, RecordType, StateChange
from qim_common.redis import Instance
from qim_common.topology import Topology
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.backends.redis_memlog import RedisMemberLog
from qim_session.backends.redis_projection import RedisProjectionStore
from qim_session.commands.audience import Audiences
from qim_session.commands.consume import DispatchConsumer, DispatchLogRefused
from qim_session.commands.memlog import MemlogRegistrar
from qim_session.commands.projection import Projector
from qim_session.commands.projection_lane import ProjectionLane
from qim_session.domain.membership import MembersCache, MembershipChange
from qim_session.domain.position import Checkpoint
from qim_session.storage.projection import CheckpointStep

ANA, BEN, CARA = user(1), user(2), user(3)
HIKERS = group(1)
pytestmark = pytest.mark.server


async def consume_all(store: Store, consumer: DispatchConsumer | None = None) -> None:
    """Run a consumer until every partition's checkpoint stands at the end of its log."""
    async with Running(consumer or store.consumer()):
        await until(lambda: caught_up(store))


async def caught_up(store: Store) -> bool:
    dispatch = RedisDispatchLog(store.instance, store.topology.buckets_of(0))
    bounds = await dispatch.bounds(dispatch.partitions)
    stored = await store.projection.checkpoints(dispatch.partitions)
    return all(
        log.first is None or (found is not None and found.position == log.last)
        for log, found in zip(bounds, stored, strict=True)
    )


async def test_a_new_group_and_its_messages_reach_the_lists(store: Store) -> None:
    store.members.versions[HIKERS, 1] = {ANA, BEN}
    await store.append(HIKERS, state(HIKERS, StateChange.CREATED), at="10-0")
    await consume_all(store)
    assert await store.listed(BEN) == {HIKERS: 10}
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="20-0")
    await consume_all(store)
    assert await store.listed(ANA) == await store.listed(BEN) == {HIKERS: 20}


async def test_people_who_come_and_go_get_what_was_theirs(store: Store) -> None:
    store.members.versions[HIKERS, 1] = {ANA, BEN}
    await store.append(HIKERS, state(HIKERS, StateChange.CREATED), at="10-0")
    await store.append(HIKERS, messages(HIKERS, 2, 1, [control(MembershipOp.LEAVE, [BEN])]), at="20-0")
    await store.append(HIKERS, messages(HIKERS, 3, 2, [control(MembershipOp.JOIN, [CARA])]), at="30-0")
    await store.append(HIKERS, messages(HIKERS, 3, 3, [ordinary(CARA), ordinary(ANA)]), at="40-0")
    await consume_all(store)
    assert await store.listed(ANA) == await store.listed(CARA) == {HIKERS: 40}
    assert await store.listed(BEN) == {HIKERS: 20}


async def test_a_concerned_event_moves_only_the_lists_of_the_people_in_it(store: Store) -> None:
    store.members.versions[HIKERS, 1] = {ANA}
    await store.append(HIKERS, state(HIKERS, StateChange.CREATED), at="10-0")
    event = control(MembershipOp.JOIN, [CARA], Audience.CONCERNED)
    await store.append(HIKERS, messages(HIKERS, 2, 1, [event]), at="20-0")
    await consume_all(store)
    assert (await store.listed(ANA), await store.listed(CARA)) == ({HIKERS: 10}, {HIKERS: 20})


async def test_an_event_of_many_people_is_completed_by_asking(store: Store) -> None:
    many = [user(number) for number in range(10, 1010)]
    store.members.versions[HIKERS, 2] = {ANA, *many}
    store.members.changes[HIKERS, 2] = MembershipChange(2, 1, MembershipOp.JOIN, tuple(many))
    await store.append(HIKERS, messages(HIKERS, 2, 1, [(Audience.BROADCAST, RecordType.CONTROL)]), at="20-0")
    await consume_all(store)
    assert await store.listed(many[0]) == await store.listed(many[-1]) == await store.listed(ANA) == {HIKERS: 20}


async def test_what_was_consumed_is_not_consumed_again_after_a_restart(store: Store) -> None:
    store.members.versions[HIKERS, 1] = {ANA}
    last = await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]))
    await consume_all(store)
    async with Running(store.consumer()) as again:

        async def located() -> bool:
            return store.partition(HIKERS) in again.positions

        await until(located)
        assert str(again.positions[store.partition(HIKERS)]) == last
    assert (await store.projection.pending(10))[1] == 1


async def test_two_consumers_of_one_log_do_no_harm(store: Store) -> None:
    store.members.versions[HIKERS, 1] = {ANA, BEN}
    async with Running(store.consumer()), Running(store.consumer()):
        for number in range(1, 101):
            await store.append(HIKERS, messages(HIKERS, 1, number, [ordinary(ANA)]))
        last = await store.append(HIKERS, messages(HIKERS, 1, 101, [ordinary(ANA)]))
        await until(lambda: caught_up(store))
    assert await store.listed(ANA) == await store.listed(BEN) == {HIKERS: int(last.partition("-")[0])}
    assert (await store.projection.pending(10))[1] == 2


async def test_an_outage_of_the_writer_holds_the_position_and_nothing_else(store: Store) -> None:
    other = next(group(n) for n in range(2, 100) if store.partition(group(n)) != store.partition(HIKERS))
    store.members.versions |= {(HIKERS, 1): {ANA}, (other, 1): {ANA}}
    async with Running(store.consumer()) as consumer:
        await store.append(other, messages(other, 1, 1, [ordinary(ANA)]), at="10-0")
        await until(lambda: caught_up(store))
        store.members.down = True
        await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="20-0")

        async def refused_twice() -> bool:
            return store.members.refused >= 2

        await until(refused_twice)
        await store.append(other, messages(other, 1, 2, [ordinary(ANA)]), at="30-0")

        async def the_other_group_went_on() -> bool:
            return await store.listed(ANA) == {other: 30}

        await until(the_other_group_went_on)
        assert consumer.positions[store.partition(HIKERS)] == Position(0, 0)
        store.members.down = False
        await until(lambda: caught_up(store))
    assert await store.listed(ANA) == {HIKERS: 20, other: 30}


async def test_the_lowest_progress_waits_for_a_partition_that_waits(store: Store) -> None:
    store.members.versions[HIKERS, 1] = {ANA}
    consumer = store.consumer()

    progress = store.progress()

    async def went_on(before: int) -> bool:
        return await progress.settled_ms() > before

    async with Running(consumer):
        await until(lambda: went_on(0))
        store.members.down = True
        last = await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]))
        committed = int(last.partition("-")[0])

        async def others_went_on() -> bool:
            others = [at for part, at in (await progress.partitions()).items() if part != store.partition(HIKERS)]
            return store.members.refused >= 2 and min(others) > committed

        await until(others_went_on)
        assert await progress.settled_ms() <= committed
        store.members.down = False
        await until(lambda: went_on(committed))
    assert await store.listed(ANA) == {HIKERS: committed}


async def test_a_store_that_was_killed_is_taken_up_where_it_stood(own_store: Store) -> None:
    store = own_store
    store.members.versions[HIKERS, 1] = {ANA}
    async with Running(store.consumer()):
        await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
        await until(lambda: caught_up(store))
        store.server.kill()
        store.server.start()
        await connected_again(store.instance)

        async def written() -> bool:
            try:
                await store.append(HIKERS, messages(HIKERS, 1, 2, [ordinary(ANA)]), at="20-0")
            except BackendUnavailable:
                return False
            return True

        await until(written)
        await until(lambda: caught_up(store))
    assert await store.listed(ANA) == {HIKERS: 20}


async def test_an_entry_that_cannot_be_read_stops_its_partition_only(store: Store) -> None:
    other = next(group(n) for n in range(2, 100) if store.partition(group(n)) != store.partition(HIKERS))
    store.members.versions |= {(HIKERS, 1): {ANA}, (other, 1): {ANA}}
    await store.append(HIKERS, b"nonsense", at="10-0")
    await store.append(other, messages(other, 1, 1, [ordinary(ANA)]), at="10-0")

    async def the_other_came() -> bool:
        return await store.listed(ANA) == {other: 10}

    async with Running(store.consumer()) as consumer:
        await until(the_other_came)
        assert consumer.positions[store.partition(HIKERS)] == Position(0, 0)
    assert store.metrics.dispatch_failures._value.get() >= 1


async def test_a_trimmed_log_is_taken_up_at_its_low_watermark_with_a_new_epoch(store: Store) -> None:
    store.members.versions[HIKERS, 1] = {ANA}
    for ms in (10, 20, 30):
        await store.append(HIKERS, messages(HIKERS, 1, ms // 10, [ordinary(ANA)]), at=f"{ms}-0")
    key = BucketKeys(store.partition(HIKERS)).dispatch
    await store.instance.call("XTRIM", key, "MINID", "30")
    await consume_all(store)
    assert await store.listed(ANA) == {HIKERS: 30}
    assert await store.instance.call("GET", projection_epoch(0)) == b"1"
    assert store.metrics.dispatch_gaps._value.get() == 1


@pytest.mark.parametrize("followed", [True, False], ids=["more comes", "nothing comes"])
async def test_what_leaves_the_log_while_its_partition_waits_is_a_gap(store: Store, followed: bool) -> None:
    """A consumer that goes on where it waited must not pass over what nobody has consumed."""
    other = next(group(n) for n in range(2, 100) if store.partition(group(n)) == store.partition(HIKERS))
    store.members.versions |= {(HIKERS, 1): {ANA}, (other, 1): {BEN}}
    store.members.down = True
    async with Running(store.consumer()):
        await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")

        async def waits() -> bool:
            return store.members.refused > 0

        await until(waits)
        await store.instance.call("XTRIM", BucketKeys(store.partition(HIKERS)).dispatch, "MAXLEN", 0)
        if followed:
            await store.append(other, messages(other, 1, 1, [ordinary(BEN)]), at="20-0")
        store.members.down = False

        async def goes_on() -> bool:
            stored = (await store.projection.checkpoints([store.partition(HIKERS)]))[0]
            return stored is not None and stored.position == Position(20 if followed else 10, 0)

        await until(goes_on)
    assert await store.listed(BEN) == ({other: 20} if followed else {})
    assert await store.instance.call("GET", projection_epoch(0)) == b"1"
    assert store.metrics.dispatch_gaps._value.get() == 1


async def test_a_log_that_lost_acknowledged_entries_is_refused(store: Store) -> None:
    log_id = (await RedisDispatchLog(store.instance, [0]).bounds([0]))[0].log_id
    partition = store.partition(HIKERS)
    beyond = Checkpoint(Position(99, 0), log_id)
    await store.projection.project([], CheckpointStep(partition, None, beyond))
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    with pytest.raises(DispatchLogRefused, match=rf"partition {partition}, .*99-0 is beyond .*10-0"):
        await store.consumer().check_start()


async def test_a_log_of_another_identity_is_refused(store: Store) -> None:
    partition = store.partition(HIKERS)
    foreign = Checkpoint(Position(5, 0), "d" * 32)
    await store.projection.project([], CheckpointStep(partition, None, foreign))
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="10-0")
    with pytest.raises(DispatchLogRefused, match="d" * 32):
        await store.consumer().check_start()


async def test_with_two_session_instances_the_smaller_position_counts(store: Store, own_store: Store) -> None:
    """People are spread over two instances; one of them is behind, as after a crash between the two writes."""
    topology = Topology((store.server.address, own_store.server.address), store.topology.buckets, "test")
    second = Instance(own_store.server.address, name="session", instance_position=1)
    await second.start()
    try:
        stores = [RedisProjectionStore(store.instance, topology), RedisProjectionStore(second, topology)]
        people = [user(number) for number in range(1, 21)]
        store.members.versions[HIKERS, 1] = set(people)
        for ms in (10, 20):
            await store.append(HIKERS, messages(HIKERS, 1, ms // 10, [ordinary(ANA)]), at=f"{ms}-0")
        partition = store.partition(HIKERS)
        log = RedisDispatchLog(store.dispatch, store.topology.buckets_of(0))
        log_id = (await log.bounds([partition]))[0].log_id
        await stores[0].project([], CheckpointStep(partition, None, Checkpoint(Position(10, 0), log_id)))
        consumer = DispatchConsumer(
            log,
            ProjectionLane(
                Projector(stores, topology),
                Audiences(store.members, MembersCache(1000), store.metrics),
                MemlogRegistrar(RedisMemberLog(store.instance, log.partitions), store.people, store.metrics),
                store.metrics,
            ),
            store.metrics,
        )
        async with Running(consumer):
            await until(lambda: both_at(stores, partition, Position(20, 0)))
        at_first = [u for u in people if topology.instance_of(topology.person_bucket(TENANT, u)) == 0]
        assert 0 < len(at_first) < len(people)
        assert (await stores[0].pending(100))[1] == len(at_first)
        assert (await stores[1].pending(100))[1] == len(people) - len(at_first)
    finally:
        await second.close()


async def both_at(stores: list[RedisProjectionStore], partition: int, position: Position) -> bool:
    found = [(await one.checkpoints([partition]))[0] for one in stores]
    return all(checkpoint is not None and checkpoint.position == position for checkpoint in found)

"""The membership log on a real Valkey: who was put into a conversation is registered, also if nobody writes there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.integration.session.conftest import BUCKETS, Running, Store, until
from tests.support.dispatch import group, messages, ordinary, user

from qim_common.errors import BackendUnavailable
from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.keys import BucketKeys, checkpoints, projection_epoch
from qim_common.positions import Position
from qim_session.backends.redis_memlog import RedisMemberLog
from qim_session.backends.redis_people import RedisPeople
from qim_session.commands.audience import Audiences
from qim_session.commands.lane import LogGap
from qim_session.commands.memlog import ENTRIES_PER_READ, MemlogRegistrar
from qim_session.commands.projection import Projector
from qim_session.commands.projection_lane import ProjectionLane
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.membership import MembersCache
from qim_session.domain.position import Gap

ANA, BEN = user(1), user(2)
HIKERS = group(1)
pytestmark = pytest.mark.server


async def length(store: Store, conversation: ConversationId = HIKERS) -> int:
    found: int = await store.instance.call("XLEN", BucketKeys(store.partition(conversation)).memlog)
    return found


async def test_members_of_a_silent_group_are_registered_and_the_log_is_trimmed(store: Store) -> None:
    await store.put_into(HIKERS, [ANA, BEN], at="10-0")
    registrar = store.memlog()
    registrar.hold(range(BUCKETS))
    task = asyncio.create_task(registrar.run())

    async def registered() -> bool:
        return await store.registered(BEN) == {HIKERS: 10} and await length(store) == 0

    await until(registered)
    await store.put_into(HIKERS, [user(3)], at="20-0")

    async def newcomer_registered() -> bool:
        return await store.registered(user(3)) == {HIKERS: 20} and await length(store) == 0

    await until(newcomer_registered)
    task.cancel()
    await asyncio.wait([task])
    assert await store.registered(ANA) == {HIKERS: 10}
    assert store.metrics.memlog_registered._value.get() == 3


async def test_a_long_log_is_registered_to_its_end(store: Store) -> None:
    people = [user(number) for number in range(1, 1001)]
    for number in range(1, 2 * ENTRIES_PER_READ + 2):
        await store.put_into(HIKERS, people if number == 1 else [user(1000 + number)], at=f"{number}-0")
    await store.memlog().drain([store.partition(HIKERS)])
    assert await length(store) == 0
    assert await store.registered(people[-1]) == {HIKERS: 1}
    assert await store.registered(user(1000 + 2 * ENTRIES_PER_READ + 1)) == {HIKERS: 2 * ENTRIES_PER_READ + 1}


async def test_only_held_partitions_are_registered(store: Store) -> None:
    other = next(group(n) for n in range(2, 100) if store.partition(group(n)) != store.partition(HIKERS))
    await store.put_into(HIKERS, [ANA], at="10-0")
    await store.put_into(other, [ANA], at="10-0")
    registrar = store.memlog()
    registrar.hold([store.partition(other)])
    task = asyncio.create_task(registrar.run())

    async def registered() -> bool:
        return await store.registered(ANA) == {other: 10}

    await until(registered)
    task.cancel()
    await asyncio.wait([task])
    assert (await length(store), await store.registered(ANA)) == (1, {other: 10})


async def test_an_entry_that_cannot_be_read_is_told_and_holds_up_nobody(store: Store) -> None:
    await store.instance.call("XADD", BucketKeys(store.partition(HIKERS)).memlog, "5-0", "e", b"nonsense")
    await store.put_into(HIKERS, [ANA], at="10-0")
    await store.memlog().drain([store.partition(HIKERS)])
    assert await store.registered(ANA) == {HIKERS: 10}
    assert await length(store) == 0
    assert store.metrics.conversation_state_failures._value.get() == 1


class Sets:
    """The authority, which notes the epoch at each write and can be down."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._people: RedisPeople = store.people
        self.epochs: list[bytes | None] = []
        self.down = False

    async def register(self, entries: Sequence[ProjectionEntry]) -> None:
        if self.down:
            raise BackendUnavailable
        self.epochs.append(await self._store.instance.call("GET", projection_epoch(0)))
        await self._people.register(entries)

    async def of(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        return await self._people.of(tenant, user)


def lane_of(store: Store, sets: Sets) -> ProjectionLane:
    memlog = MemlogRegistrar(RedisMemberLog(store.instance, range(BUCKETS)), sets, store.metrics)
    audiences = Audiences(store.members, MembersCache(1000), store.metrics)
    return ProjectionLane(Projector([store.projection], store.topology), audiences, memlog, store.metrics)


async def test_what_cannot_be_registered_stays_in_the_log(store: Store) -> None:
    sets = Sets(store)
    sets.down = True
    await store.put_into(HIKERS, [ANA], at="10-0")
    registrar = MemlogRegistrar(RedisMemberLog(store.instance, range(BUCKETS)), sets, store.metrics)
    with pytest.raises(BackendUnavailable):
        await registrar.drain([store.partition(HIKERS)])
    assert await length(store) == 1
    sets.down = False
    await registrar.drain([store.partition(HIKERS)])
    assert (await length(store), await store.registered(ANA)) == (0, {HIKERS: 10})


async def test_after_a_gap_the_membership_log_is_registered_before_the_epoch_rises(store: Store) -> None:
    await store.put_into(HIKERS, [ANA], at="10-0")
    partition = store.partition(HIKERS)
    sets = Sets(store)
    lane = lane_of(store, sets)
    await lane.load([partition])
    gap = LogGap(partition, 0, Gap(Position(30, 0), missing_after=Position(0, 0)), "a" * 32)
    await lane.bridge([gap])
    assert sets.epochs == [None]
    assert await store.instance.call("GET", projection_epoch(0)) == b"1"
    assert await store.registered(ANA) == {HIKERS: 10}


async def test_a_gap_waits_while_the_membership_log_cannot_be_registered(store: Store) -> None:
    await store.put_into(HIKERS, [ANA], at="10-0")
    partition = store.partition(HIKERS)
    sets = Sets(store)
    sets.down = True
    lane = lane_of(store, sets)
    await lane.load([partition])
    with pytest.raises(BackendUnavailable):
        await lane.bridge([LogGap(partition, 0, Gap(Position(30, 0), missing_after=Position(0, 0)), "a" * 32)])
    assert await store.instance.call("EXISTS", projection_epoch(0), checkpoints(0)) == 0


async def test_a_gap_is_made_up_for_once(store: Store) -> None:
    """Though nothing comes after it that would move the checkpoint."""
    store.members.versions[HIKERS, 1] = {ANA}
    for ms in (10, 20):
        await store.append(HIKERS, messages(HIKERS, 1, ms // 10, [ordinary(ANA)]), at=f"{ms}-0")
    await store.instance.call("XTRIM", BucketKeys(store.partition(HIKERS)).dispatch, "MAXLEN", 0)
    for _ in range(2):
        async with Running(store.consumer()) as consumer:

            async def taken_up(consumer: object = consumer) -> bool:
                return len(consumer.positions) == BUCKETS  # type: ignore[attr-defined]

            await until(taken_up)
    assert await store.instance.call("GET", projection_epoch(0)) == b"1"
    assert store.metrics.dispatch_gaps._value.get() == 1

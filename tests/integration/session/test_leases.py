"""Replicas share the partitions by leases on a real Valkey: fairly, and whoever dies loses them soon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry
from tests.integration.session.conftest import BUCKETS, Store, until
from tests.support.valkey import connected_again

from qim_common.errors import BackendUnavailable
from qim_common.keys import REPLICAS
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.backends.redis_leases import RedisLeases
from qim_session.commands.leases import Leases
from qim_session.domain.leases import LEASE_MS

TAKE_OVER_SECONDS = 10.0
EVERYTHING = frozenset(range(BUCKETS))
pytestmark = pytest.mark.server


def leases_of(store: Store, partitions: int = BUCKETS) -> RedisLeases:
    return RedisLeases(store.instance, partitions)


async def rounds(leases: RedisLeases, holders: Sequence[bytes]) -> list[frozenset[int]]:
    """What each holds after everybody has renewed twice: one gives away first, another takes then."""
    for _ in range(2):
        held = [await leases.renew(holder, LEASE_MS) for holder in holders]
    return held


@pytest.mark.parametrize("partitions", [1, 2, 8, 10, 256])
async def test_shares_stay_fair_while_replicas_come_and_go(store: Store, partitions: int) -> None:
    leases = leases_of(store, partitions)
    for holders in ([b"one"], [b"one", b"two"], [b"one", b"two", b"three"], [b"two", b"three"]):
        if b"one" not in holders:
            await leases.release(b"one")
        held = await rounds(leases, holders)
        assert frozenset().union(*held) == frozenset(range(partitions))
        assert sum(map(len, held)) == partitions
        sizes = list(map(len, held))
        assert max(sizes) - min(sizes) <= 1


async def test_a_new_replica_moves_no_more_than_its_share(store: Store) -> None:
    leases = leases_of(store)
    before = await rounds(leases, [b"one", b"two"])
    after = await rounds(leases, [b"one", b"two", b"three"])
    assert after[0] < before[0]
    assert after[1] < before[1] or after[1] == before[1]


async def test_what_a_dead_replica_held_is_free_after_its_lease(store: Store) -> None:
    leases = leases_of(store)
    await rounds(leases, [b"one", b"two"])
    await leases.renew(b"two", 1)

    async def one_has_everything() -> bool:
        return await leases.renew(b"one", LEASE_MS) == EVERYTHING

    await until(one_has_everything)
    assert await store.instance.call("ZRANGE", REPLICAS, 0, -1) == [b"one"]


async def test_a_replica_that_wakes_up_late_holds_what_nobody_else_has(store: Store) -> None:
    leases = leases_of(store)
    await rounds(leases, [b"one", b"two"])
    await leases.renew(b"two", 1)

    async def one_has_everything() -> bool:
        return await leases.renew(b"one", LEASE_MS) == EVERYTHING

    await until(one_has_everything)
    assert await leases.renew(b"two", LEASE_MS) == frozenset()
    held = await rounds(leases, [b"one", b"two"])
    assert [len(share) for share in held] == [BUCKETS // 2] * 2
    assert not held[0] & held[1]


async def test_releasing_what_was_never_held_does_nothing(store: Store) -> None:
    leases = leases_of(store)
    assert await leases.release(b"nobody") == 0
    assert await leases.renew(b"one", LEASE_MS) == EVERYTHING


async def test_leases_that_were_wiped_are_taken_again(store: Store) -> None:
    leases = leases_of(store)
    await rounds(leases, [b"one", b"two"])
    await store.instance.call("FLUSHALL")
    held = await rounds(leases, [b"one", b"two"])
    assert [len(share) for share in held] == [BUCKETS // 2] * 2


class Replica:
    """A process's lease loop, and what it was told."""

    def __init__(self, store: Store) -> None:
        self.metrics = SessionMetrics(CollectorRegistry())
        self.held: frozenset[int] = frozenset()
        self.leases = Leases(leases_of(store), self.metrics, holder=os.urandom(16), on_change=self._told)
        self.task = asyncio.create_task(self.leases.run())

    def _told(self, held: frozenset[int]) -> None:
        self.held = held

    async def kill(self) -> None:
        """It is gone without a word."""
        self.task.cancel()
        await asyncio.wait([self.task])

    async def stop(self) -> None:
        """It stops as it should."""
        await self.kill()
        await self.leases.release()


async def shared(*replicas: Replica) -> bool:
    """Whether these have everything, each its share."""
    sizes = [len(replica.held) for replica in replicas]
    return (
        frozenset().union(*(replica.held for replica in replicas)) == EVERYTHING
        and sum(sizes) == BUCKETS
        and max(sizes) - min(sizes) <= 1
    )


async def test_a_killed_replicas_partitions_move_within_ten_seconds(store: Store) -> None:
    one, two = Replica(store), Replica(store)
    try:
        await until(lambda: shared(one, two))
        await two.kill()
        async with asyncio.timeout(TAKE_OVER_SECONDS):
            await until(lambda: shared(one))
        assert one.metrics.partitions_held._value.get() == BUCKETS
        assert one.metrics.lease_takeovers._value.get() >= BUCKETS
    finally:
        await one.stop()
        await two.kill()


async def test_a_replica_that_stops_gives_everything_back(store: Store) -> None:
    one = Replica(store)
    await until(lambda: shared(one))
    await one.stop()
    assert one.held == frozenset()
    assert one.metrics.lease_losses._value.get() == BUCKETS
    assert await leases_of(store).renew(b"next", LEASE_MS) == EVERYTHING


async def test_a_replica_that_cannot_renew_holds_nothing_after_the_leases_life(own_store: Store) -> None:
    one = Replica(own_store)
    try:
        await until(lambda: shared(one))
        own_store.server.kill()

        async def holds_nothing() -> bool:
            return one.held == frozenset()

        await until(holds_nothing)
        assert one.metrics.lease_failures._value.get() >= 1
        own_store.server.start()
        await connected_again(own_store.instance)
        await until(lambda: shared(one))
    finally:
        await one.stop()


async def test_stopping_while_the_store_is_down_is_no_error(own_store: Store) -> None:
    one = Replica(own_store)
    await until(lambda: shared(one))
    own_store.server.kill()
    with pytest.raises(BackendUnavailable):
        await leases_of(own_store).renew(b"other", LEASE_MS)
    await one.stop()
    assert one.held == frozenset()

"""What the archiver tells of lag and backlog while it cannot archive: operators decide by it after a loss."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest_asyncio
from prometheus_client import CollectorRegistry
from tests.support.archiving import with_archive
from tests.support.chat import ANA, BEN, Chat
from tests.support.redis_stores import RedisStores, redis_stores
from tests.support.writers import until

from qim_common.cassandra import CassandraSession
from qim_common.errors import BackendUnavailable
from qim_common.ids import TenantId
from qim_common.telemetry.metrics import ArchiverMetrics
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.backends.cassandra.group_log import CassandraGroupLog
from qim_writer.backends.cassandra.positions import CassandraArchivePositions
from qim_writer.backends.redis.behind import RedisBehind
from qim_writer.backends.redis.outbox import RedisArchiveLease, RedisOutbox
from qim_writer.commands.archive.holding import LEASE_SECONDS, Holding
from qim_writer.commands.archive.rounds import Archive, Archiver
from qim_writer.commands.archive.watching import Watch

BUCKETS = 4


class Switched:
    """Positions of an archive that refuses while it is `down`, and says nothing while it `hangs`."""

    def __init__(self, positions: CassandraArchivePositions) -> None:
        self._positions = positions
        self.down = False
        self.hangs = False
        self.asked = 0

    async def announce(self, *args: Any) -> None:
        """As of the archive, which answers or does not."""
        self.asked += 1
        if self.down:
            raise BackendUnavailable
        if self.hangs:
            await asyncio.Event().wait()
        await self._positions.announce(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._positions, name)


class Watched:
    """An archiver with its metrics."""

    def __init__(self, stores: RedisStores, session: CassandraSession, tenant: TenantId) -> None:
        self.registry = CollectorRegistry()
        installation = os.urandom(8).hex()
        self.positions = Switched(CassandraArchivePositions(session, installation_id=installation))
        self.chat = Chat(stores, tenant=tenant)
        self.instance = instance = stores.store.instances[0]
        metrics = ArchiverMetrics(self.registry)
        self.lease = RedisArchiveLease(instance, token=os.urandom(16), seconds=LEASE_SECONDS)
        self.holding = Holding(self.lease, metrics)
        archive = Archive(
            CassandraArchive(session, installation_id=installation, buckets=BUCKETS),
            CassandraGroupLog(session),
            self.positions,
        )
        outbox = RedisOutbox(instance, stores.store.topology)
        self.archiver = Archiver(outbox, archive, self.holding, metrics, linger_seconds=0.01)
        self.watch = Watch(RedisBehind(instance, stores.store.topology), self.holding, metrics)

    def told(self, name: str) -> float | None:
        """A metric of the instance."""
        return self.registry.get_sample_value(f"qim_archiver_{name}", {"instance": "0"})

    def nothing_waits(self) -> bool:
        """Whether both metrics say so."""
        return self.told("backlog_messages") == 0 and self.told("lag_seconds") == 0

    def lags(self, seconds: float) -> bool:
        """Whether the lag is more than that."""
        return (self.told("lag_seconds") or 0) > seconds

    async def grows(self, backlog: int) -> None:
        """The lag grows and grows, the backlog stays as it is."""
        await until(lambda: self.told("backlog_messages") == backlog)
        lag = 0.0
        for _ in range(4):
            await until(partial(self.lags, lag + 0.3))
            lag = self.told("lag_seconds") or 0
        assert self.told("backlog_messages") == backlog

    async def fails(self, rounds: int) -> None:
        """So many more rounds are tried."""
        asked = self.positions.asked
        await until(lambda: self.positions.asked >= asked + rounds)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """It works until the context ends."""
        work = (self.holding.run(), self.archiver.run(), self.watch.run())
        tasks = [asyncio.create_task(one) for one in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            with suppress(BackendUnavailable):
                await self.lease.release()


@pytest_asyncio.fixture
async def stores(valkey: ValkeyServer) -> AsyncIterator[RedisStores]:
    async with redis_stores(valkey, buckets=BUCKETS) as stores:
        await with_archive(stores)
        yield stores


@pytest_asyncio.fixture
async def watched(stores: RedisStores, cassandra_session: CassandraSession, tenant: TenantId) -> Watched:
    return Watched(stores, cassandra_session, tenant)


async def test_lag_and_backlog_are_told_while_no_round_succeeds(watched: Watched) -> None:
    async with watched.working():
        group = await watched.chat.create(ANA, BEN)
        await watched.chat.send_many(3, ANA, group)
        await until(watched.nothing_waits)
        watched.positions.down = True
        await watched.chat.send_many(200, ANA, group)
        await watched.fails(2)
        await watched.grows(200)
        watched.positions.down = False
        await until(watched.nothing_waits)


async def test_they_are_told_while_the_archive_hangs(watched: Watched) -> None:
    watched.positions.hangs = True
    async with watched.working():
        group = await watched.chat.create(ANA, BEN)
        await watched.chat.send_many(20, ANA, group)
        await watched.fails(1)
        await watched.grows(21)


async def test_an_entry_that_cannot_be_read_lags_for_ever(watched: Watched, stores: RedisStores) -> None:
    async with watched.working():
        group = await watched.chat.create(ANA, BEN)
        await watched.chat.send_many(3, ANA, group)
        await until(watched.nothing_waits)
        bucket = stores.bucket(group, watched.chat.tenant)
        await stores.call("XADD", bucket.dispatch, "*", "x", "junk")
        await watched.chat.send_many(50, ANA, group)
        await watched.grows(50)
        assert watched.told("buckets_refused") == 1


async def test_the_lag_of_an_instance_that_is_lost_grows_and_its_last_backlog_stays(
    watched: Watched, valkey: ValkeyServer
) -> None:
    async with watched.working():
        group = await watched.chat.create(ANA, BEN)
        watched.positions.down = True
        await watched.chat.send_many(50, ANA, group)
        await until(lambda: (watched.told("backlog_messages") or 0) >= 50)
        told = int(watched.told("backlog_messages") or 0)
        valkey.kill()
        await until(lambda: not watched.holding.held)
        await watched.grows(told)


async def test_one_that_had_no_lag_when_it_was_lost_has_one_from_then_on(
    watched: Watched, valkey: ValkeyServer
) -> None:
    async with watched.working():
        await until(watched.nothing_waits)
        valkey.kill()
        await until(lambda: not watched.holding.held)
        await watched.grows(0)


async def test_a_standby_tells_nothing(watched: Watched) -> None:
    async with watched.working():
        watched.positions.down = True
        group = await watched.chat.create(ANA, BEN)
        await watched.chat.send_many(50, ANA, group)
        await until(lambda: (watched.told("backlog_messages") or 0) >= 50 and watched.lags(0.0))
        other = RedisArchiveLease(watched.instance, token=os.urandom(16), seconds=60)

        async def taken() -> bool:
            await watched.lease.release()
            return await other.hold()

        await until(taken)
        await until(lambda: watched.told("backlog_messages") is None)
        assert watched.told("lag_seconds") is None
        assert watched.told("buckets_refused") is None

        await other.release()
        watched.positions.down = False
        await until(watched.nothing_waits)
        assert watched.told("buckets_refused") == 0


async def test_a_bucket_whose_counters_are_none_hides_no_other(watched: Watched, stores: RedisStores) -> None:
    group = await watched.chat.create(ANA, BEN)
    await watched.chat.send_many(20, ANA, group)
    own = stores.bucket(group, watched.chat.tenant)
    strange = [bucket for bucket in stores.store.buckets if bucket.bucket != own.bucket]
    await stores.call("HSET", strange[0].meta, "rec", "many", "arch", "nonsense")
    await stores.call("DEL", strange[1].meta)
    await stores.call("SET", strange[1].meta, "a string")
    await stores.call("SET", strange[2].dispatch, "a string")
    found = await RedisBehind(watched.instance, stores.store.topology).look()
    assert found.messages == 21
    assert found.oldest_ms is not None
    assert found.oldest_ms <= found.server_ms

"""An instance with a past that is archived, an empty one, and a recovery from one into the other."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from tests.support.archiving import with_archive
from tests.support.past import Past, World
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.cassandra import CassandraSession, CassandraSettings
from qim_common.ids import TenantId
from qim_common.recovery import Loss, RecoveryReport
from qim_common.redis import Instance, ScriptLoader
from qim_common.telemetry.metrics import ArchiverMetrics
from qim_common.topology import Topology
from qim_devkit.cassandra import CassandraCluster
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.backends.cassandra.group_log import CassandraGroupLog
from qim_writer.backends.cassandra.positions import CassandraArchivePositions
from qim_writer.backends.redis.fence import FenceGuard
from qim_writer.backends.redis.outbox import HOLD_LEASE, NOTE_ARCHIVED, RedisArchiveLease, RedisOutbox
from qim_writer.backends.redis.recovering import RedisRecovery
from qim_writer.commands.archive.holding import LEASE_SECONDS, Holding
from qim_writer.commands.archive.rounds import Archive, Archiver
from qim_writer.commands.recover.recovery import Place, Recovery

BUCKETS = 4


@dataclass
class Recovering:
    """An installation of one commit instance with an archive."""

    session: CassandraSession
    tenant: TenantId
    installation: str
    ack_level: str = "log"

    @property
    def archive(self) -> Archive:
        """Its archive."""
        return Archive(
            CassandraArchive(self.session, installation_id=self.installation, buckets=BUCKETS),
            CassandraGroupLog(self.session),
            CassandraArchivePositions(self.session, installation_id=self.installation),
        )

    def topology(self, server: ValkeyServer) -> Topology:
        """The installation's, on this server."""
        return Topology((server.address,), BUCKETS, "tests")

    @asynccontextmanager
    async def world(self, server: ValkeyServer) -> AsyncIterator[World]:
        """The commands on a server."""
        async with redis_stores(server, buckets=BUCKETS) as stores:
            yield World(stores, self.archive.messages, self.tenant)

    def archiver(self, stores: RedisStores, outbox: RedisOutbox) -> Archiver:
        """One that works when told."""
        metrics = ArchiverMetrics(CollectorRegistry())
        lease = RedisArchiveLease(stores.store.instances[0], token=os.urandom(16), seconds=LEASE_SECONDS)
        return Archiver(outbox, self.archive, Holding(lease, metrics), metrics, linger_seconds=0)

    async def archive_all(self, stores: RedisStores) -> int:
        """Bring everything into the archive."""
        outbox = RedisOutbox(stores.store.instances[0], stores.store.topology)
        taken, refused = await self.archiver(stores, outbox).catch_up()
        assert not refused
        return taken

    @asynccontextmanager
    async def instance(self, server: ValkeyServer) -> AsyncIterator[Instance]:
        """The server as `qimctl recover` connects to it."""
        instance = Instance(server.address, name="qim-recover", instance_position=0)
        instance.on_connected.append(ScriptLoader((HOLD_LEASE, NOTE_ARCHIVED)))
        await instance.start()
        try:
            yield instance
        finally:
            await instance.close()

    def guard(self, server: ValkeyServer) -> FenceGuard:
        """The fence."""
        return FenceGuard(0, self.topology(server), self.archive.positions, ack_level=self.ack_level)

    async def recover(
        self,
        server: ValkeyServer,
        loss: Loss,
        *,
        dry_run: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> RecoveryReport:
        """Recover it, as `qim_writer.recovery_wiring` does."""
        topology = self.topology(server)
        async with self.instance(server) as instance:
            metrics = ArchiverMetrics(CollectorRegistry())
            lease = RedisArchiveLease(instance, token=os.urandom(16), seconds=LEASE_SECONDS)
            archiver = Archiver(
                RedisOutbox(instance, topology), self.archive, Holding(lease, metrics), metrics, linger_seconds=0
            )
            recovery = Recovery(
                Place(0, server.address, topology, self.ack_level),
                RedisRecovery(instance, topology, self.guard(server), (0, topology)),
                self.archive,
                drain=archiver.catch_up,
                progress=progress,
            )
            return await recovery(loss, dry_run=dry_run)


@pytest.fixture
def recovering(cassandra_session: CassandraSession, tenant: TenantId) -> Recovering:
    """An installation of the test's own."""
    return Recovering(cassandra_session, tenant, os.urandom(8).hex())


@pytest_asyncio.fixture
async def world(recovering: Recovering, valkey: ValkeyServer) -> AsyncIterator[World]:
    """The instance that is going to be lost."""
    async with recovering.world(valkey) as world:
        await with_archive(world.stores)
        yield world


@pytest.fixture
def variables(
    recovering: Recovering, valkey: ValkeyServer, cassandra: CassandraCluster, cassandra_schema: CassandraSettings
) -> dict[str, str]:
    """How a command line reaches the instance that is going to be lost, and its archive."""
    return {
        "QIM_BACKEND": "tiered",
        "QIM_REDIS_ADDR": valkey.address,
        "QIM_COMMIT_BUCKETS": str(BUCKETS),
        "QIM_INSTALLATION_ID": recovering.installation,
        "QIM_CASSANDRA_CONTACT_POINTS": cassandra.contact_points,
        "QIM_CASSANDRA_LOCAL_DC": cassandra.datacenter,
        "QIM_CASSANDRA_KEYSPACE": cassandra_schema.cassandra_keyspace,
        "QIM_CASSANDRA_TIMEOUT_SECONDS": "20",
    }


@pytest.fixture
def past() -> Past:
    """Nothing has happened yet."""
    return Past(random.Random(11))  # noqa: S311  no secret


@pytest.fixture
def empty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ValkeyServer]:  # type: ignore[misc]
    """An empty server, which the lost one is recovered into."""
    with ValkeyServer(tmp_path_factory.mktemp("empty")) as server:
        yield server

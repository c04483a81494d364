"""The tiered backend's own stores in-process, and an archiver that has always just caught up.

Before each read of messages everything is archived, and what may leave Redis has left it: every read is as cold as the
backend lets it be.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from prometheus_client import CollectorRegistry
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.cassandra import CassandraSession
from qim_common.ids import ConversationId, TenantId
from qim_common.records import Record
from qim_common.redis import verify_topology
from qim_common.telemetry.metrics import ArchiverMetrics
from qim_common.topology import Topology
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.backends.cassandra.group_log import CassandraGroupLog
from qim_writer.backends.cassandra.positions import CassandraArchivePositions
from qim_writer.backends.redis.eviction import RedisHotRecords
from qim_writer.backends.redis.outbox import RedisArchiveLease, RedisOutbox
from qim_writer.backends.redis.store import RedisStore
from qim_writer.backends.tiered import TieredMessageStore
from qim_writer.commands.archive.evicting import Evictor
from qim_writer.commands.archive.holding import LEASE_SECONDS, Holding
from qim_writer.commands.archive.rounds import Archive, Archiver
from qim_writer.storage import Conversation

BUCKETS = 16
"""Few, because every read looks through all of them."""


class ArchivingNow:
    """Archiver and evictor of one instance, in the test's hands."""

    def __init__(self, store: RedisStore, session: CassandraSession, installation_id: str) -> None:
        topology = Topology(store.topology.addresses, store.topology.buckets, installation_id, "tiered")
        (instance,) = store.instances
        metrics = ArchiverMetrics(CollectorRegistry())
        holding = Holding(RedisArchiveLease(instance, token=bytes(16), seconds=LEASE_SECONDS), metrics)
        self.messages = CassandraArchive(session, installation_id=installation_id, buckets=topology.buckets)
        archive = Archive(
            self.messages,
            CassandraGroupLog(session),
            CassandraArchivePositions(session, installation_id=installation_id),
        )
        self._archiver = Archiver(RedisOutbox(instance, topology), archive, holding, metrics, linger_seconds=0.0)
        self._evictor = Evictor(RedisHotRecords(instance, topology), holding, metrics, hours=0.0)

    async def archive(self) -> None:
        """Everything that was committed is archived afterwards."""
        _, refused = await self._archiver.catch_up()
        assert not refused

    async def settle(self) -> None:
        """And what may leave Redis has left it."""
        await self.archive()
        await self._evictor.look()


class ColdMessages(TieredMessageStore):
    """Archives and evicts before each read."""

    def __init__(self, store: RedisStore, now: ArchivingNow) -> None:
        super().__init__(store, now.messages)
        self._now = now

    async def records(self, conversation: Conversation, seqs: Sequence[int]) -> list[Record]:
        """See the Protocol."""
        await self._now.settle()
        return await super().records(conversation, seqs)

    async def records_of_many(
        self, tenant: TenantId, wanted: Sequence[tuple[ConversationId, Sequence[int]]]
    ) -> list[list[Record]]:
        """See the Protocol."""
        await self._now.settle()
        return await super().records_of_many(tenant, wanted)


@asynccontextmanager
async def tiered_stores(
    server: ValkeyServer, session: CassandraSession
) -> AsyncIterator[tuple[RedisStores, ArchivingNow]]:
    """Stores on one Valkey, and on a keyspace with all tables."""
    installation_id = f"tests-{uuid.uuid4()}"
    async with redis_stores(server, buckets=BUCKETS) as stores:
        store = stores.store
        topology = Topology(store.topology.addresses, BUCKETS, installation_id, "tiered")
        (instance,) = store.instances
        await verify_topology([instance], topology)
        await stores.begin_archive()
        now = ArchivingNow(store, session, installation_id)
        yield replace(stores, messages=ColdMessages(store, now)), now

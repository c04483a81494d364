"""The work of `qimctl recover`: the entry point `recover` of the group `qim.qimctl` (docs/recovery.md)."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from qim_common.cassandra import CassandraSession, CassandraSettings
from qim_common.config import StoreSettings, load
from qim_common.recovery import Loss, RecoveryRefused, RecoveryReport
from qim_common.redis import Instance, RedisAddress, ScriptLoader, check_instance
from qim_common.telemetry.metrics import archiver_metrics, cassandra_metrics
from qim_common.topology import Topology
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.backends.cassandra.group_log import CassandraGroupLog
from qim_writer.backends.cassandra.positions import CassandraArchivePositions
from qim_writer.backends.redis.fence import FenceGuard
from qim_writer.backends.redis.neighbours import refuse_misplaced
from qim_writer.backends.redis.outbox import HOLD_LEASE, NOTE_ARCHIVED, RedisArchiveLease, RedisOutbox
from qim_writer.backends.redis.recovering import RedisRecovery
from qim_writer.commands.archive.holding import LEASE_SECONDS, Holding
from qim_writer.commands.archive.rounds import Archive, Archiver
from qim_writer.commands.recover.in_place import Acceptance
from qim_writer.commands.recover.recovery import Place, Recovery

CONNECT_SECONDS: Final = 10.0


async def recover(instance: int, loss: Loss, *, dry_run: bool, progress: Callable[[str], None]) -> RecoveryReport:
    """As `qim_common.recovery.Recover`."""
    settings = load(StoreSettings)
    cassandra = load(CassandraSettings) if settings.backend == "tiered" else None
    topology = Topology(settings.commit_addrs, settings.commit_buckets, settings.installation_id, settings.backend)
    if not 0 <= instance < topology.count:
        raise RecoveryRefused(f"there is no instance {instance}: the configuration has 0 to {topology.count - 1}")
    async with AsyncExitStack() as stack:
        server = Instance(topology.addresses[instance], name="qim-recover", instance_position=instance)
        server.on_connected += [check_instance, ScriptLoader((HOLD_LEASE, NOTE_ARCHIVED))]
        stack.push_async_callback(server.close)
        await server.start(CONNECT_SECONDS)
        await refuse_misplaced(topology, instance, progress)
        place = _session_place(settings, server.address)
        if cassandra is None:
            guard = FenceGuard(instance, topology, None, ack_level=settings.ack_level, promotion=settings.promotion)
            in_place = RedisRecovery(server, topology, guard, place)
            accept = Acceptance(instance, str(server.address), in_place, progress=progress)
            return await accept(loss, settings.ack_level, dry_run=dry_run)
        session = await CassandraSession.connect(cassandra, cassandra_metrics())
        stack.push_async_callback(session.close)
        positions = CassandraArchivePositions(session, installation_id=settings.installation_id)
        archive = Archive(
            CassandraArchive(session, installation_id=settings.installation_id, buckets=settings.commit_buckets),
            CassandraGroupLog(session),
            positions,
        )
        guard = FenceGuard(instance, topology, positions, ack_level=settings.ack_level, promotion=settings.promotion)
        lease = RedisArchiveLease(server, token=os.urandom(16), seconds=LEASE_SECONDS)
        archiver = Archiver(
            RedisOutbox(server, topology),
            archive,
            Holding(lease, archiver_metrics()),
            archiver_metrics(),
            linger_seconds=0,
        )
        recovery = Recovery(
            Place(instance, str(server.address), topology, settings.ack_level),
            RedisRecovery(server, topology, guard, place),
            archive,
            drain=archiver.catch_up,
            progress=progress,
        )
        return await recovery(loss, dry_run=dry_run)


def _session_place(settings: StoreSettings, address: RedisAddress) -> tuple[int, Topology] | None:
    """The same server's place among the session instances; None where it is none."""
    topology = Topology(settings.session_addrs, settings.commit_buckets, settings.installation_id, settings.backend)
    places = [str(one) for one in settings.session_addrs]
    return (places.index(str(address)), topology) if str(address) in places else None

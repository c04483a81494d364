"""The archiver process: what is committed goes into the archive, old records leave Redis afterwards."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from qim_common.config import ArchiverSettings, load
from qim_common.errors import BackendUnavailable
from qim_common.redis import Instance, ScriptLoader, check_instance, verify_topology
from qim_common.server.runtime import run_service
from qim_common.server.worker import WorkerHarness
from qim_common.start import StartRefusedError
from qim_common.telemetry.logs import configure_logging
from qim_common.telemetry.metrics import archiver_metrics
from qim_common.topology import Topology
from qim_writer.backends.cassandra.group_log import CassandraGroupLog
from qim_writer.backends.redis.behind import LOOK_BEHIND, RedisBehind
from qim_writer.backends.redis.eviction import EVICT_RECORDS, RedisHotRecords
from qim_writer.backends.redis.fence import FenceGuard
from qim_writer.backends.redis.outbox import HOLD_LEASE, NOTE_ARCHIVED, RedisArchiveLease, RedisOutbox, opening
from qim_writer.commands.archive.evicting import Evictor
from qim_writer.commands.archive.holding import LEASE_SECONDS, Holding
from qim_writer.commands.archive.rounds import Archive, Archiver
from qim_writer.commands.archive.watching import Watch
from qim_writer.tiered_wiring import Tier, open_tier

SCRIPTS = (NOTE_ARCHIVED, HOLD_LEASE, EVICT_RECORDS, LOOK_BEHIND)


async def serve(settings: ArchiverSettings) -> None:
    """Archives until told to stop; any number of processes may. Raises StartRefusedError."""
    if settings.backend != "tiered":
        raise StartRefusedError(f"QIM_BACKEND is {settings.backend}: only the backend tiered has an archive")
    async with AsyncExitStack() as stack:
        harness = WorkerHarness(settings)
        topology = Topology(settings.commit_addrs, settings.commit_buckets, settings.installation_id, settings.backend)
        tier = await open_tier(settings)
        stack.push_async_callback(tier.link.close)
        archive = Archive(tier.archive, CassandraGroupLog(tier.link), tier.positions)
        # Rounds, and beside them what must not wait behind their reading.
        logs = await _connect(stack, settings, topology, tier, name="qim-archiver")
        sides = await _connect(stack, settings, topology, tier, name="qim-archiver-lease")
        metrics = archiver_metrics()
        token = os.urandom(16)
        archivers, holdings = [], []
        for log, side in zip(logs, sides, strict=True):
            lease = RedisArchiveLease(side, token=token, seconds=LEASE_SECONDS)
            holding = Holding(lease, metrics, name=f"the archiver's lease on instance {side.position}")
            archiver = Archiver(
                RedisOutbox(log, topology),
                archive,
                holding,
                metrics,
                linger_seconds=settings.linger_seconds,
            )
            evictor = Evictor(RedisHotRecords(side, topology), holding, metrics, hours=settings.hot_record_hours)
            watch = Watch(RedisBehind(side, topology), holding, metrics)
            holdings.append(holding)
            archivers.append(archiver)
            for work in (archiver.run, evictor.run, holding.run, watch.run):
                _run(stack, work)

        async def drain(seconds: float) -> None:
            await asyncio.gather(*(archiver.drain(seconds) for archiver in archivers))
            await asyncio.gather(*(holding.release() for holding in holdings))

        await harness.run(drain)


async def _connect(
    stack: AsyncExitStack,
    settings: ArchiverSettings,
    topology: Topology,
    tier: Tier,
    *,
    name: str,
) -> list[Instance]:
    """The commit instances, checked; one that is fenced is not used, and tried again."""
    instances = [
        Instance(address, name=name, instance_position=position) for position, address in enumerate(topology.addresses)
    ]
    for instance in instances:
        instance.on_connected += [check_instance, ScriptLoader(SCRIPTS)]
        stack.push_async_callback(instance.close)
    try:
        await asyncio.gather(*(instance.start() for instance in instances))
        await verify_topology(instances, topology, archive_knows=tier.knows_instance)
    except BackendUnavailable as error:
        where = "start Redis or mend QIM_REDIS_ADDR and QIM_MESSAGE_STORE_ADDRS; a first start needs Cassandra too"
        raise StartRefusedError(f"{error}; {where} (QIM_CASSANDRA_CONTACT_POINTS)") from None
    for instance in instances:
        guard = FenceGuard(
            instance.position,
            topology,
            tier.positions,
            ack_level=settings.ack_level,
            promotion=settings.promotion,
        )
        await instance.admit(guard)
        await instance.admit(opening(topology.buckets_of(instance.position)))
    return instances


def _run(stack: AsyncExitStack, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it until the stack closes."""
    task = asyncio.create_task(work())

    async def stop() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(stop)


def main() -> None:
    """The entry point `qim-archiver`; exits with 1 where it must not run, with 2 on a bad configuration."""
    settings = load(ArchiverSettings)
    configure_logging(service=settings.service, level=settings.log_level, log_format=settings.log_format)
    run_service(lambda: serve(settings))


if __name__ == "__main__":
    main()

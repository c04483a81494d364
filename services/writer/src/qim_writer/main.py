"""The writer process: everything is put together here and nowhere else."""

from __future__ import annotations

import asyncio

from qim_common.bindings import Bindings
from qim_common.channels import ChannelProvider
from qim_common.config import WriterSettings, load
from qim_common.errors import BackendUnavailable
from qim_common.redis import Instance, ScriptLoader, check_instance, verify_topology
from qim_common.server.harness import ServerHarness
from qim_common.server.runtime import run_service
from qim_common.start import StartRefusedError
from qim_common.telemetry.logs import configure_logging
from qim_common.topology import Topology
from qim_writer.backends.redis.archive_removals import RedisArchiveRemovals
from qim_writer.backends.redis.fence import FenceGuard
from qim_writer.backends.redis.group_commit import RedisCommitLog
from qim_writer.backends.redis.group_state import RedisGroupStateStore
from qim_writer.backends.redis.membership import RedisMembershipStore
from qim_writer.backends.redis.messages import RedisMessageStore
from qim_writer.backends.redis.outbox import opening
from qim_writer.backends.redis.store import SCRIPTS, RedisStore
from qim_writer.backends.session_client import SessionLane
from qim_writer.backends.tiered import TieredMessageStore
from qim_writer.commands.hints import HintLane
from qim_writer.commands.trimming import Retention, Trimmer
from qim_writer.domain.seq_buckets import SEQS_PER_BUCKET
from qim_writer.scylla_wiring import serve_comparison
from qim_writer.services import Stores, add_services
from qim_writer.tiered_wiring import Tier, open_tier

_MS_PER_HOUR = 3_600_000


async def open_store(settings: WriterSettings, tier: Tier | None) -> RedisStore:
    """The Redis instances, checked, connected, and compared with the archive of `tier` (None: there is none).

    An instance that is fenced, or cannot be compared now, is tried again in the background.

    Raises StartRefusedError: UnsafeRedis, TopologyMismatch, an instance that does not answer."""
    topology = Topology(settings.commit_addrs, settings.commit_buckets, settings.installation_id, settings.backend)
    instances = [
        Instance(address, name="writer", instance_position=position)
        for position, address in enumerate(topology.addresses)
    ]
    try:
        for instance in instances:
            instance.on_connected += [check_instance, ScriptLoader(SCRIPTS)]
            await instance.start()
        await verify_topology(instances, topology, archive_knows=None if tier is None else tier.knows_instance)
        for instance in instances:
            positions = None if tier is None else tier.positions
            guard = FenceGuard(
                instance.position,
                topology,
                positions,
                ack_level=settings.ack_level,
                promotion=settings.promotion,
            )
            await instance.admit(guard)
            if tier is not None:
                await instance.admit(opening(topology.buckets_of(instance.position)))
    except BackendUnavailable as error:
        where = "start Redis or mend QIM_REDIS_ADDR and QIM_MESSAGE_STORE_ADDRS"
        if tier is not None:
            where += "; a first start needs Cassandra too (QIM_CASSANDRA_CONTACT_POINTS)"
        raise StartRefusedError(f"{error}; {where}") from error
    return RedisStore(
        instances,
        topology,
        retention_ms=int(settings.dispatch_retention_hours * _MS_PER_HOUR),
        ack_level=settings.ack_level,
        replicas=settings.replicas,
        outbox_max=None if tier is None else settings.outbox_max_messages,
    )


async def serve(settings: WriterSettings) -> None:
    """Serves until it is told to stop."""
    if settings.backend == "scylla":
        await serve_comparison(settings)
        return
    bindings = Bindings(settings.bindings_file)
    harness = ServerHarness(settings, bindings=bindings)
    tier = await open_tier(settings) if settings.backend == "tiered" else None
    store = await open_store(settings, tier)
    channels = ChannelProvider(settings.session_addr, settings.client_tls) if settings.session_addr else None
    lane = HintLane(SessionLane(channels)) if channels else None
    membership = RedisMembershipStore(store)
    states = RedisGroupStateStore(store, archive_bucket=0 if tier is None else SEQS_PER_BUCKET)
    removal = None if tier is None else tier.removal(store)
    place_of = store.topology.instance_of
    trimmer = Trimmer(states, settings.commit_buckets, removal, instance_of=place_of)
    retention = Retention(
        states,
        trimmer,
        settings.commit_buckets,
        interval_seconds=settings.retention_interval_seconds,
        instance_of=place_of,
    )
    stores = Stores(
        membership=membership,
        planned=membership,
        messages=RedisMessageStore(store) if tier is None else TieredMessageStore(store, tier.archive),
        commits=RedisCommitLog(store, lane),
        states=states,
        removals=None if tier is None else RedisArchiveRemovals(store),
    )
    add_services(harness, settings, bindings, stores, trimmer, retention, lane)
    background = [asyncio.create_task(trimmer.run()), asyncio.create_task(retention.run())]
    if store.backlog is not None:
        background.append(asyncio.create_task(store.backlog.run()))
    if lane is not None:
        background.append(asyncio.create_task(lane.run()))

    async def end_background() -> None:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        if channels is not None:
            await channels.close()
        if tier is not None:
            await tier.link.close()

    await harness.run([*(instance.close for instance in store.instances), end_background])


def main() -> None:
    """The entry point `qim-writer`."""
    settings = load(WriterSettings)
    configure_logging(service=settings.service, level=settings.log_level, log_format=settings.log_format)
    run_service(lambda: serve(settings))


if __name__ == "__main__":
    main()

"""The place where a push is decided, for whoever hands notifications to a provider (docs/push.md).

A sink of one's own needs three lines around it:

    class Mine:
        async def deliver(self, batch: Sequence[Notification]) -> None: ...

    settings = load(PushSettings)
    run_service(lambda: serve(settings, Mine()))
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Final

from qim_common.channels import ChannelProvider
from qim_common.config import PushSettings
from qim_common.keys import PushKeys
from qim_common.redis import Role
from qim_common.server.worker import WorkerHarness
from qim_common.telemetry.metrics import push_metrics
from qim_common.topology import Topology
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.backends.redis_leases import RELEASE_LEASES, RENEW_LEASES, RedisLeases
from qim_session.backends.redis_live import RedisClock
from qim_session.backends.redis_push import MOVE_CHECKPOINT, RedisPushCheckpoints, RedisPushMarks
from qim_session.backends.writer_client import WriterClient
from qim_session.backends.writer_contents import WriterContents
from qim_session.commands.audience import Audiences
from qim_session.commands.consume import DispatchConsumer
from qim_session.commands.leases import Leases
from qim_session.commands.push.deciding import Decider, Rule
from qim_session.commands.push.gathering import Gatherer
from qim_session.commands.push.lane import PushLane
from qim_session.domain.membership import MembersCache
from qim_session.domain.push import Notification, PushedMessage, PushMarks, Standing, Verdict, decide
from qim_session.process_wiring import connect, hold_all, run_worker
from qim_session.storage.push import PushSink, SinkUnavailable

MEMBERS_IN_MEMORY: Final = 500_000
"""People in all cached groups together, about 100 bytes each."""

SCRIPTS: Final = (RENEW_LEASES, RELEASE_LEASES, MOVE_CHECKPOINT)


async def serve(settings: PushSettings, sink: PushSink, *, rule: Rule = decide) -> None:
    """Hand notifications to `sink` until told to stop, sharing the partitions with others of the same `push_name`.

    Args:
        rule: who is told; as `decide`, which is the one of docs/push.md.

    Raises StartRefusedError where the process must not run as it is configured.
    """
    async with AsyncExitStack() as stack:
        harness = WorkerHarness(settings)
        commits = Topology(settings.commit_addrs, settings.commit_buckets, settings.installation_id, settings.backend)
        sessions = Topology(settings.session_addrs, settings.commit_buckets, settings.installation_id, settings.backend)
        logs = await connect(stack, commits, Role.COMMIT, name="qim-push-dispatch")
        clocks = await connect(stack, commits, Role.COMMIT, name="qim-push-clock")
        stores = await connect(stack, sessions, Role.SESSION, name="qim-push", scripts=SCRIPTS)
        channels = ChannelProvider(settings.writer_addr, settings.client_tls)
        stack.push_async_callback(channels.close)

        metrics = push_metrics()
        keys = PushKeys(settings.push_name)
        writer = WriterClient(channels)
        gatherer = Gatherer(
            Audiences(writer, MembersCache(MEMBERS_IN_MEMORY), metrics),
            WriterContents(writer),
            metrics,
            topics=settings.push_big_groups == "topic",
        )
        decider = Decider(
            RedisPushMarks(stores, sessions),
            writer,
            metrics,
            unread_max_recipients=settings.push_unread_max_recipients,
            body_max_bytes=settings.push_body_max_bytes,
            rule=rule,
        )
        archived = settings.ack_level == "archived"
        dispatch = [RedisDispatchLog(log, commits.buckets_of(log.position), archived=archived) for log in logs]
        # Bounds are asked for beside the blocking reads of the same instance, so that they have its other connection.
        lanes = [
            PushLane(
                RedisDispatchLog(clock, commits.buckets_of(clock.position)),
                RedisClock(clock),
                RedisPushCheckpoints(stores[0], keys),
                gatherer,
                decider,
                sink,
                metrics,
                batch_max=settings.push_batch_max,
                max_age_ms=int(settings.push_max_age_seconds * 1000),
            )
            for clock in clocks
        ]
        consumers = [DispatchConsumer(log, lane, metrics) for log, lane in zip(dispatch, lanes, strict=True)]
        leases = Leases(
            RedisLeases(stores[0], commits.buckets, keys=(keys.leases, keys.replicas)),
            metrics,
            holder=os.urandom(16),
            on_change=lambda held: hold_all(consumers, held),
        )
        for consumer in consumers:
            run_worker(stack, consumer)
        stack.push_async_callback(leases.release)
        run_worker(stack, leases)

        async def drain(seconds: float) -> None:
            await asyncio.gather(*(lane.drain(seconds) for lane in lanes))

        await harness.run(drain)


__all__ = [
    "Notification",
    "PushMarks",
    "PushSink",
    "PushedMessage",
    "Rule",
    "SinkUnavailable",
    "Standing",
    "Verdict",
    "decide",
    "serve",
]

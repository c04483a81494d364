"""How the parts of the live streams are put together."""

from __future__ import annotations

from collections.abc import Sequence

from qim_common.config import SessionSettings
from qim_common.redis import Instance
from qim_common.telemetry.metrics import SessionMetrics
from qim_common.tokens import TokenSigner
from qim_common.topology import Topology
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.backends.redis_live import RedisClock, RedisRecent
from qim_session.backends.redis_people import RedisPeople
from qim_session.backends.redis_signals import RedisSignalLog
from qim_session.backends.writer_client import WriterClient
from qim_session.commands.live.service import LiveService, LiveStores
from qim_session.commands.live.stream import LiveLimits
from qim_session.commands.live.tokens import ResumeTokens
from qim_session.commands.mailbox import Mailbox
from qim_session.commands.progress import ProgressReader
from qim_session.commands.rebuild import Rebuild
from qim_session.handlers.live_wire import LiveWire


def live_service(
    settings: SessionSettings,
    *,
    commits: Topology,
    sessions: Topology,
    tails: Sequence[Instance],
    clocks: Sequence[Instance],
    signals: Sequence[Instance],
    stores: Sequence[Instance],
    writer: WriterClient,
    people: RedisPeople,
    mailbox: Mailbox,
    rebuild: Rebuild,
    progress: ProgressReader,
    signer: TokenSigner,
    metrics: SessionMetrics,
) -> LiveService:
    """The live streams of a process.

    Args:
        tails, clocks: of the commit instances, connections of their own; those of `tails` are blocked by reads.
        signals: of the session instances, the same as `tails`.
        stores: of the session instances.
    """
    archived = settings.ack_level == "archived"
    return LiveService(
        LiveStores(
            logs=[
                (RedisDispatchLog(tail, commits.buckets_of(tail.position), archived=archived), RedisClock(clock))
                for tail, clock in zip(tails, clocks, strict=True)
            ],
            signals=list(map(RedisSignalLog, signals)),
            recent=RedisRecent(stores, sessions),
            cursors=people,
            source=writer,
            conversations=writer,
        ),
        mailbox=mailbox,
        rebuild=rebuild,
        progress=progress,
        tokens=ResumeTokens(signer),
        encoder=LiveWire(),
        metrics=metrics,
        limits=LiveLimits(
            events_max=settings.subscribe_queue_events,
            bytes_max=settings.subscribe_queue_bytes,
            attachments_max=settings.subscribe_attachments_max,
            token_seconds=settings.subscribe_token_seconds,
        ),
    )

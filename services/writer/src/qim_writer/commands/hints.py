"""The writer's end of the low-latency lane (storage.md, "Session"): what was committed, to the session service at once.

The commit path notes a run and goes on; one task sends what has gathered, in one call at a time. A call that fails is
not repeated, and what waits at that moment is dropped with it: the dispatch log brings everything, and what is seconds
old is no hint any more.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from qim_common.errors import QimError
from qim_common.ids import ConversationId, TenantId
from qim_common.telemetry.metrics import WriterMetrics, writer_metrics
from qim_writer.domain.hints import HintQueue, HintRun
from qim_writer.storage import ProjectionLane

RUNS_PER_CALL: Final = 250
FLUSH_SECONDS: Final = 0.02
"""How long runs gather; not at all while a whole call of them waits."""

PAUSE_SECONDS: Final = 1.0
"""After a call that failed."""

_log = logging.getLogger(__name__)


class HintLane:
    """A `CommitHints` that hands on what it hears."""

    def __init__(
        self,
        lane: ProjectionLane,
        queue: HintQueue | None = None,
        *,
        metrics: WriterMetrics | None = None,
        flush_seconds: float = FLUSH_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._lane = lane
        self._queue = HintQueue() if queue is None else queue
        self._metrics = writer_metrics() if metrics is None else metrics
        self._flush_seconds = flush_seconds
        self._pause_seconds = pause_seconds
        self._some = asyncio.Event()
        self._dropped = 0
        self._works = True

    def sent(self, tenant: TenantId, conversation: ConversationId, version: int, time_ms: int) -> None:
        """See `CommitHints`."""
        self._queue.sent(tenant, conversation, version, time_ms)
        self._some.set()

    def changed(self, run: HintRun) -> None:
        """See `CommitHints`."""
        self._queue.changed(run)
        self._some.set()

    async def run(self) -> None:
        """Sends until cancelled; whatever waits then is dropped."""
        while True:
            await self._some.wait()
            if len(self._queue) < RUNS_PER_CALL:
                await asyncio.sleep(self._flush_seconds)
            await self._flush()

    async def _flush(self) -> None:
        """One call."""
        runs = self._queue.take(RUNS_PER_CALL)
        if not self._queue:
            self._some.clear()
        try:
            await self._lane.project(runs)
        except Exception as error:  # noqa: BLE001  whatever it is, the lane goes on with the next runs
            self._queue.dropped += len(runs)
            self._queue.clear()
            self._some.clear()
            self._failed(error)
            await asyncio.sleep(self._pause_seconds)
        else:
            self._metrics.hints_sent.inc(len(runs))
            if not self._works:
                self._works = True
                _log.info("the low-latency lane works again")
        self._metrics.hints_dropped.inc(self._queue.dropped - self._dropped)
        self._dropped = self._queue.dropped

    def _failed(self, error: Exception) -> None:
        """Says so once, until it works again; the service at the other end may be down for long."""
        if not isinstance(error, QimError):
            _log.error("the low-latency lane failed", exc_info=error)
        elif self._works:
            _log.warning("the low-latency lane is interrupted: %s", error)
        self._works = False

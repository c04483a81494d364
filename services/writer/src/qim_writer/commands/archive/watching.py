"""How far the archive is behind, told whatever becomes of the rounds: operators decide by it after a loss.

The logs themselves are asked, on a timer and a connection of its own. So what no round reads any more (a bucket that is
refused) counts, and what no round archives (a Cassandra that refuses or hangs) grows. An instance that does not answer
may have taken something since it was last asked: its lag grows from then on, and the last count of its backlog stays.

A standby tells nothing, and has no such series: the archiver that holds the lease does. One whose lease ended because
the instance does not answer goes on, as nobody else can know better.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from qim_common.errors import QimError
from qim_common.telemetry.metrics import ArchiverMetrics
from qim_common.telemetry.standing import Standing
from qim_writer.commands.archive.holding import Holding
from qim_writer.storage_outbox import Behind

LOOK_SECONDS: Final = 1.0
_UNANSWERED_SECONDS: Final = 3 * LOOK_SECONDS
"""After so long without an answer, an instance that had nothing left to archive is taken to have something."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    oldest_ms: int | None
    server_ms: int


class Watch:
    """What one instance's metrics of lag and backlog tell, while this process is its archiver."""

    def __init__(self, behind: Behind, holding: Holding, metrics: ArchiverMetrics) -> None:
        self._behind = behind
        self._holding = holding
        self._metrics = metrics
        self._label = str(behind.instance)
        self._clock = asyncio.get_running_loop().time
        self._seen: _Seen | None = None
        self._unknown = Standing(_log, "it is known again how far the archive is behind")

    def lag_seconds(self) -> float:
        """The age of the oldest entry that is not archived; 0 where there is none, or nothing is told."""
        seen = self._seen
        if seen is None:
            return 0.0
        since = self._clock() - seen.at
        if seen.oldest_ms is None:
            return since if since > _UNANSWERED_SECONDS else 0.0
        return max((seen.server_ms - seen.oldest_ms) / 1000 + since, 0.0)

    async def run(self) -> None:
        """Looks until cancelled; nothing is told any more then."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._stop_telling()

    async def look(self) -> None:
        """Asks once."""
        name = f"instance {self._label}"
        asked = self._clock()
        try:
            found = await self._behind.look()
        except QimError as error:
            self._unknown.holds(name, f"how far the archive is behind is not known: {error}")
            return
        except Exception as error:  # noqa: BLE001  whatever it is, the next look tries again
            self._unknown.holds(name, f"how far the archive is behind cannot be told: {error}", error)
            return
        self._unknown.over(name)
        if not self._holding.held:
            self._stop_telling()
            return
        if self._seen is None:
            self._metrics.lag_seconds.labels(self._label).set_function(self.lag_seconds)
        self._seen = _Seen(asked, found.oldest_ms, found.server_ms)
        self._metrics.backlog_messages.labels(self._label).set(found.messages)

    def _stop_telling(self) -> None:
        if self._seen is not None:
            self._seen = None
            for gauge in (self._metrics.lag_seconds, self._metrics.backlog_messages, self._metrics.buckets_refused):
                gauge.remove(self._label)

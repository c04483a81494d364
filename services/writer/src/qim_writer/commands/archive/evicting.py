"""Records that are archived and old leave Redis, a few at a time (storage.md, "Backends": cold reads)."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from qim_common.errors import QimError
from qim_common.telemetry.metrics import ArchiverMetrics
from qim_common.telemetry.standing import Standing
from qim_writer.commands.archive.holding import Holding
from qim_writer.storage_outbox import HotRecords

CONVERSATIONS_PER_LOOK: Final = 100
_PAUSE_SECONDS: Final = 0.002
"""Between two removals of 1,000 records, which others have the instance for."""

_LONGEST_INTERVAL_SECONDS: Final = 60.0
_SHORTEST_INTERVAL_SECONDS: Final = 0.25
_LOOKS_PER_AGE: Final = 20

_log = logging.getLogger(__name__)


class Evictor:
    """Removes hot records of one instance, while this process holds its lease.

    Args:
        hours: how old a record is that leaves.
    """

    def __init__(self, hot: HotRecords, holding: Holding, metrics: ArchiverMetrics, *, hours: float) -> None:
        self._hot = hot
        self._holding = holding
        self._metrics = metrics
        self._older_than_ms = int(hours * 3_600_000)
        interval = hours * 3600 / _LOOKS_PER_AGE
        self._name = f"old records of instance {hot.instance}"
        self._staying = Standing(_log, "they are looked at again")
        self._interval = min(max(interval, _SHORTEST_INTERVAL_SECONDS), _LONGEST_INTERVAL_SECONDS)

    async def run(self) -> None:
        """Looks through all buckets again and again until cancelled."""
        while True:
            await self._holding.wait()
            try:
                await self.look()
            except QimError as error:
                self._staying.holds(self._name, f"they stay until the next look: {error}")
            except Exception as error:  # noqa: BLE001  whatever it is, the next look tries again
                self._staying.holds(self._name, f"they cannot be removed: {error}", error)
            else:
                self._staying.over(self._name)
            await asyncio.sleep(self._interval)

    async def look(self) -> int:
        """Once through all buckets; how many records were removed. Raises what the last bucket that failed has raised;
        the others are looked through."""
        removed = 0
        failed: Exception | None = None
        for bucket in self._hot.buckets:
            try:
                removed += await self._clear(bucket)
            except QimError:
                raise
            except Exception as error:  # noqa: BLE001  it is raised at the end
                failed = error
        if failed is not None:
            raise failed
        return removed

    async def _clear(self, bucket: int) -> int:
        removed = 0
        while due := await self._hot.due(bucket, self._older_than_ms, CONVERSATIONS_PER_LOOK):
            for conversation in due:
                more = True
                while more:
                    step = await self._hot.evict(conversation, self._older_than_ms)
                    more = step.more
                    removed += step.records
                    self._metrics.evicted.inc(step.records)
                    await asyncio.sleep(_PAUSE_SECONDS)
            if len(due) < CONVERSATIONS_PER_LOOK:
                break
        return removed

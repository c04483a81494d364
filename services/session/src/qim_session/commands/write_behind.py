"""Writes cursors and flags behind, from one session instance to Cassandra (storage.md, "Session").

It writes first and takes off then, and only what still has the value that it wrote: a crash in between repeats a write
that has no second effect, and several flushers at once do no harm. One replica does it at a time, the one that holds
the partition of the instance's number.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from qim_common.backoff import Backoff
from qim_common.errors import QimError
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.domain.written_behind import Mark
from qim_session.storage.written_behind import MarkArchive, UnflushedMarks

_log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 1.0
"""How often; what was set since is lost with the session store."""


class MarkFlusher:
    """Flushes one session instance. `run` it in a task and tell it what is held; cancel it at any moment.

    Args:
        instance: its place in the configured list.
        partitions: how many there are.
    """

    def __init__(
        self,
        unflushed: UnflushedMarks,
        archive: MarkArchive,
        metrics: SessionMetrics,
        *,
        instance: int,
        partitions: int,
    ) -> None:
        self._unflushed = unflushed
        self._archive = archive
        self._metrics = metrics
        self._waiting = metrics.marks_unflushed.labels(str(instance))
        self._partition = instance % partitions
        self._mine = asyncio.Event()

    def hold(self, partitions: Iterable[int]) -> None:
        """Work while the instance's own partition is among these."""
        if self._partition in partitions:
            self._mine.set()
        else:
            self._mine.clear()
            self._waiting.set(0)

    async def run(self) -> None:
        """Flush until cancelled."""
        backoff = Backoff()
        while True:
            await self._mine.wait()
            try:
                self._waiting.set(await self._unflushed.count())
                await self.flush()
            except QimError as error:
                _log.warning("cursors and flags cannot be written behind now", extra={"error": str(error)})
            except Exception:  # noqa: BLE001  what waits stays and is tried again
                _log.exception("writing cursors and flags behind failed")
            else:
                backoff.reset()
                await asyncio.sleep(FLUSH_SECONDS)
                continue
            self._metrics.mark_failures.inc()
            await backoff.sleep()

    async def flush(self) -> int:
        """Write everything that waits at this moment; returns how much was written.

        Raises BackendUnavailable: some may have been written; it stays and is written again.
        """
        written = 0
        async for batch in self._unflushed.batches():
            marks = self._read(batch)
            await self._archive.write(marks)
            # What cannot be read is taken off as well: nothing reads it better later.
            await self._unflushed.pop(batch)
            self._metrics.marks_written.inc(len(marks))
            written += len(marks)
        return written

    def _read(self, batch: Sequence[tuple[bytes, bytes]]) -> list[Mark]:
        marks: list[Mark] = []
        for field, value in batch:
            try:
                marks.append(Mark.unpack(field, value))
            except (struct.error, ValueError) as error:
                self._metrics.mark_failures.inc()
                _log.error(
                    "a cursor or flag cannot be read and is not written behind",
                    extra={"field": field.hex(), "value": value.hex(), "error": str(error)},
                )
        return marks

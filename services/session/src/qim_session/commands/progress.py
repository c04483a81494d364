"""How far the projection is, over all partitions and session instances (storage.md, "Session": a partition's progress).

Whoever holds a partition's lease stores its progress beside its checkpoint; every replica reads it from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

CACHED_SECONDS: Final = 0.05
"""How old an answer may be. An older one says less, and nothing that is wrong."""


class ProgressSource(Protocol):
    """One session instance: what is stored there beside the checkpoints."""

    async def progress(self) -> dict[int, int]:
        """Partition to commit time (ms); partitions that were never consumed are left out.

        Raises BackendUnavailable.
        """
        ...


class ProgressReader:
    """Reads the stored progress, at most once in 50 ms, however many ask.

    Args:
        sources: all session instances.
        partitions: all partitions, `range(commit_buckets)`.
    """

    def __init__(self, sources: Sequence[ProgressSource], partitions: Sequence[int]) -> None:
        self._sources = tuple(sources)
        self._all = tuple(partitions)
        self._partitions: Mapping[int, int] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def partitions(self) -> Mapping[int, int]:
        """Of each partition the smallest progress (ms) of all session instances; 0 where one of them has none.

        What was committed before it is in the lists. Raises BackendUnavailable when an instance does not answer.
        """
        if asyncio.get_running_loop().time() - self._read_at > CACHED_SECONDS:
            # To await one that has ended, whose end is not handled yet, would let nothing else run.
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read(), name="progress")
                self._reading.add_done_callback(self._done)
            # One caller that goes away must not take the answer from the others.
            await asyncio.shield(self._reading)
        return self._partitions

    async def settled_ms(self) -> int:
        """The smallest progress (ms) of all partitions. Raises BackendUnavailable."""
        return min((await self.partitions()).values())

    async def reached(self, time_ms: int) -> None:
        """Wait until every partition's progress is `time_ms` or later; bound it with a timeout.

        Raises BackendUnavailable.
        """
        while await self.settled_ms() < time_ms:  # noqa: ASYNC110  the store tells nobody
            await asyncio.sleep(CACHED_SECONDS)

    async def _read(self) -> None:
        asked_at = asyncio.get_running_loop().time()
        found = await asyncio.gather(*(source.progress() for source in self._sources))
        self._partitions = {partition: min(one.get(partition, 0) for one in found) for partition in self._all}
        self._read_at = asked_at

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._reading is task:
            self._reading = None
        if not task.cancelled():
            task.exception()  # whoever asked has got it

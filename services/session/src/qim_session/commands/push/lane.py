"""The lane that hands notifications to a sink, and moves its checkpoints after that (design.md invariant 10).

So each notification is delivered at least once. A process that ends between the two, or loses a partition, repeats what
came since the last checkpoint, with the same ids where no further message has come.

Nothing of the projection depends on it: its checkpoints are its own, and a gap raises no epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from qim_common.errors import BackendUnavailable
from qim_common.positions import Position
from qim_common.telemetry.metrics import PushMetrics
from qim_session.commands.lane import LogGap, PartitionMovedError
from qim_session.commands.push.deciding import Decider
from qim_session.commands.push.gathering import Gathered, Gatherer
from qim_session.domain.folding import DispatchEntry
from qim_session.domain.position import Checkpoint, LogBounds
from qim_session.storage.dispatch import DispatchLog
from qim_session.storage.live import InstanceClock
from qim_session.storage.push import PushCheckpoints, PushSink

_log = logging.getLogger(__name__)

CANDIDATES_PER_STEP: Final = 1000
"""After so many candidates, at the end of an entry, they are delivered and the checkpoint moves."""


class PushLane:
    """The `Lane` of one commit instance into a sink.

    Args:
        log: the instance's dispatch logs.
        clock: the instance's, which the age of messages is judged by.
        batch_max: notifications of one `PushSink.deliver`.
        max_age_ms: older messages are not pushed any more; a backlog, or a receiver that never takes something, holds
            a partition up for no longer than this.
    """

    def __init__(
        self,
        log: DispatchLog,
        clock: InstanceClock,
        checkpoints: PushCheckpoints,
        gatherer: Gatherer,
        decider: Decider,
        sink: PushSink,
        metrics: PushMetrics,
        *,
        batch_max: int,
        max_age_ms: int,
    ) -> None:
        self._dispatch = log
        self._clock = clock
        self._checkpoints = checkpoints
        self._gatherer = gatherer
        self._decider = decider
        self._sink = sink
        self._metrics = metrics
        self._batch_max = batch_max
        self._max_age_ms = max_age_ms
        self._known: dict[int, bytes | None] = {}
        self._taken: dict[int, Position] = {}
        self._busy: set[int] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    async def load(self, partitions: Sequence[int]) -> dict[int, list[Checkpoint | None]]:
        """As `Lane.load`, one place.

        A partition without a checkpoint, or with one that says nothing about this log, begins at the log's oldest
        entry: the messages' age bounds what is pushed anew.
        """
        stored = await self._checkpoints.read(partitions)
        bounds = await self._dispatch.bounds(partitions)
        loaded: dict[int, list[Checkpoint | None]] = {}
        for partition, checkpoint, log in zip(partitions, stored, bounds, strict=True):
            begin = _begin(partition, checkpoint, log)
            self._known[partition], self._taken[partition] = checkpoint, begin.position
            loaded[partition] = [begin]
        return loaded

    async def apply(self, partition: int, entries: Sequence[DispatchEntry], to: Checkpoint, progress_ms: int) -> None:
        """As `Lane.apply`; after a failure what was delivered and noted before it is not delivered again."""
        self._check_open()
        self._busy.add(partition)
        self._idle.clear()
        try:
            await self._apply(partition, entries, to)
        finally:
            self._busy.discard(partition)
            if not self._busy:
                self._idle.set()

    def renewed(self) -> None:
        """As `Lane.renewed`."""
        self._gatherer.forget()

    async def settle(self, progress: Mapping[int, int]) -> set[int]:
        """As `Lane.settle`; there is no progress to be stored."""
        partitions = list(progress)
        stored = await self._checkpoints.read(partitions)
        return {part for part, found in zip(partitions, stored, strict=True) if found != self._known[part]}

    async def bridge(self, gaps: Sequence[LogGap]) -> None:
        """As `Lane.bridge`: nobody is told of what is gone, which the consumer has logged and counted."""
        for gap in gaps:
            await self._move(gap.partition, Checkpoint(gap.gap.position, gap.log_id))

    async def drain(self, seconds: float) -> None:
        """Begin nothing any more, and wait for what the sink is taking and for its checkpoints."""
        self._draining = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            _log.warning("batches were not taken in time and come again", extra={"partitions": len(self._busy)})

    async def _apply(self, partition: int, entries: Sequence[DispatchEntry], to: Checkpoint) -> None:
        oldest_ms = await self._clock.time_ms() - self._max_age_ms
        gathered = Gathered()
        for entry in entries:
            if entry.position <= self._taken[partition]:
                continue
            await self._gatherer.add(entry, oldest_ms, gathered)
            if len(gathered) >= CANDIDATES_PER_STEP and entry.position < to.position:
                await self._deliver(gathered)
                await self._move(partition, Checkpoint(entry.position, to.log_id))
                self._check_open()
                gathered = Gathered()
        await self._deliver(gathered)
        await self._move(partition, to)

    async def _deliver(self, gathered: Gathered) -> None:
        notifications = await self._decider.notifications(gathered)
        for start in range(0, len(notifications), self._batch_max):
            batch = notifications[start : start + self._batch_max]
            with self._metrics.deliver_seconds.time():
                try:
                    await self._sink.deliver(batch)
                except Exception:
                    self._metrics.failures.inc()
                    raise
            self._metrics.notifications.inc(len(batch))

    async def _move(self, partition: int, to: Checkpoint) -> None:
        encoded, expected = to.encode(), self._known[partition]
        if encoded == expected:
            return
        if not await self._checkpoints.move(partition, expected, encoded):
            raise PartitionMovedError(partition)
        self._known[partition], self._taken[partition] = encoded, to.position

    def _check_open(self) -> None:
        if self._draining:
            raise BackendUnavailable(message="this process is ending; another one goes on with the partition")


def _begin(partition: int, stored: bytes | None, log: LogBounds) -> Checkpoint:
    checkpoint = _parsed(stored)
    if checkpoint is not None and checkpoint.log_id == log.log_id and checkpoint.position <= log.last:
        return checkpoint
    if stored is not None:
        _log.error(
            "a push checkpoint is not of its dispatch log, the partition begins anew", extra={"partition": partition}
        )
    return Checkpoint(log.last if log.first is None else log.first.before(), log.log_id)


def _parsed(stored: bytes | None) -> Checkpoint | None:
    try:
        return None if stored is None else Checkpoint.parse(stored)
    except ValueError:
        return None

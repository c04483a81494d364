"""The durable lane: one consumer for the dispatch logs of one commit instance (storage.md, "Session").

Each partition (commit bucket) has a position of its own and is read in commit order. Only what has reached every
session instance moves the position; whatever fails is read again from the log later, so that an outage of the
writer or of a store costs time and nothing else. A partition that fails is left out for a while and holds up no
other one.

Two processes may consume the same partitions: effects are idempotent, and of two checkpoint moves one wins; the
other consumer takes up where the stored checkpoint stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from qim_common.errors import QimError
from qim_common.redis import StartRefused
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.commands.audience import Audiences
from qim_session.commands.projection import PartitionMovedError, Projector
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.folding import DispatchEntry, fold
from qim_session.domain.list_pages import Progress
from qim_session.domain.position import Checkpoint, Gap, Position, Refuse, decide_start
from qim_session.storage import DispatchLog

_log = logging.getLogger(__name__)

ENTRIES_PER_READ: Final = 16
"""Of one partition in one read; an entry holds up to 256 messages."""

BLOCK_MS: Final = 2_000
"""How long a read waits for something new; below the connection's stall limit."""

PARTITIONS_AT_ONCE: Final = 32
"""How many partitions' batches are worked on at the same time."""

GATHER_SECONDS: Final = 0.02
"""A read that found little is followed by this pause, so that a trickle of messages shares script calls."""

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0


class DispatchLogRefused(StartRefused):
    """A checkpoint and its dispatch log do not belong together; consuming would lose or repeat messages silently."""


@dataclass(slots=True)
class _Pause:
    """How long a partition is left out after failures in a row."""

    failures: int = 0
    until: float = 0.0

    def extend(self, now: float) -> None:
        self.failures += 1
        self.until = now + min(FIRST_PAUSE_SECONDS * 2 ** (self.failures - 1), LONGEST_PAUSE_SECONDS)


class DispatchConsumer:
    """Consumes the partitions of one commit instance. Call `locate` once, then `run` in a task; cancel it to stop.

    Cancelling is safe at any moment: what was applied without its checkpoint is applied again by the next consumer.
    """

    def __init__(self, log: DispatchLog, projector: Projector, audiences: Audiences, metrics: SessionMetrics) -> None:
        self._dispatch = log
        self._projector = projector
        self._audiences = audiences
        self._metrics = metrics
        self._at: dict[int, Position] = {}
        self._log_ids: dict[int, str] = {}
        self._progress: dict[int, int] = {}
        self._pauses: dict[int, _Pause] = {}
        self._at_once = asyncio.Semaphore(PARTITIONS_AT_ONCE)

    @property
    def positions(self) -> dict[int, Position]:
        """Up to where each partition has been consumed."""
        return dict(self._at)

    @property
    def progress(self) -> Mapping[int, int]:
        """Of each partition the commit time (ms) below which everything is in the lists.

        It is that of the newest entry that was projected or, after a read that reached the end, the instance's time
        before that read (storage.md, "Session"). An instance whose clock was set back commits below it until the clock
        has caught up.
        """
        return self._progress

    async def locate(self, partitions: Sequence[int] | None = None) -> None:
        """Find where each partition (default: all) goes on, by the start-up rule; a gap raises the projection epoch.

        With several session instances a partition goes on at the smallest of their positions.

        Raises:
            DispatchLogRefused: naming every partition whose checkpoint does not belong to its log.
            BackendUnavailable: an instance does not answer.
        """
        partitions = self._dispatch.partitions if partitions is None else partitions
        try:
            stored = await self._projector.load(partitions)
        except ValueError as error:
            raise DispatchLogRefused(f"a stored checkpoint cannot be read: {error}") from None
        # Only then the logs: a checkpoint that another consumer moves meanwhile must not seem to be beyond its log.
        bounds = await self._dispatch.bounds(partitions)
        refused: list[str] = []
        gaps: list[tuple[int, Gap]] = []
        for partition, log in zip(partitions, bounds, strict=True):
            starts: list[Position] = []
            for number, checkpoint in enumerate(stored[partition]):
                match decide_start(checkpoint, log):
                    case Refuse(why):
                        refused.append(f"partition {partition}, session instance {number}: {why}")
                    case Gap() as gap:
                        gaps.append((partition, gap))
                        starts.append(gap.position)
                    case found:
                        starts.append(found.position)
            if starts:
                self._at[partition] = min(starts)
                self._log_ids[partition] = log.log_id
                self._advance(partition, self._at[partition].ms)
        if refused:
            listed = "".join(f"\n  - {line}" for line in refused)
            raise DispatchLogRefused(
                f"checkpoints do not belong to the dispatch logs:{listed}\nRestore the instance's data, or delete the "
                "session store's checkpoints, after which the lists are projected from the oldest entry on."
            )
        for partition, gap in gaps:
            self._metrics.dispatch_gaps.inc()
            _log.error(
                "dispatch entries are gone that were not consumed; conversation lists are rebuilt",
                extra={"partition": partition, "after": str(gap.missing_after), "up_to": str(gap.position)},
            )
        if gaps:
            await self._projector.raise_epoch()

    async def run(self) -> None:
        """Consume until cancelled."""
        outage = _Pause()
        while True:
            try:
                found, full = await self._read_once()
            except (QimError, StartRefused) as error:
                _log.warning("the dispatch logs cannot be read", extra={"error": str(error)})
            except Exception:  # noqa: BLE001  whatever it is, nothing is lost and it is tried again
                _log.exception("reading the dispatch logs failed")
            else:
                outage = _Pause()
                if found and not full:
                    await asyncio.sleep(GATHER_SECONDS)
                continue
            self._metrics.dispatch_failures.inc()
            # The instance may come back with another log, so every partition is located again.
            self._at.clear()
            outage.extend(_now())
            await asyncio.sleep(outage.until - _now())

    async def _read_once(self) -> tuple[bool, bool]:
        """One read of all partitions that are due: whether it found entries, and whether some may have more."""
        now = _now()
        missing = [partition for partition in self._dispatch.partitions if partition not in self._at]
        if missing:
            await self.locate(missing)
        due = {partition: at for partition, at in self._at.items() if self._pause_of(partition).until <= now}
        waits = [pause.until - now for pause in self._pauses.values() if pause.until > now]
        wait = min([*waits, BLOCK_MS / 1000])
        if not due:
            await asyncio.sleep(wait)
            return False, False
        read = await self._dispatch.read(due, count=ENTRIES_PER_READ, block_ms=max(1, int(wait * 1000)))
        for partition in due.keys() - read.entries.keys():
            self._advance(partition, read.time_ms)
        await asyncio.gather(
            *(self._consume(partition, entries, read.time_ms) for partition, entries in read.entries.items())
        )
        return bool(read.entries), any(len(entries) == ENTRIES_PER_READ for entries in read.entries.values())

    async def _consume(self, partition: int, entries: Sequence[DispatchEntry], read_at_ms: int) -> None:
        async with self._at_once:
            try:
                await self._apply(partition, entries)
                self._pauses.pop(partition, None)
                at_the_end = len(entries) < ENTRIES_PER_READ
                self._advance(partition, max(entries[-1].position.ms, read_at_ms if at_the_end else 0))
            except PartitionMovedError:
                self._metrics.checkpoint_conflicts.inc()
                self._at.pop(partition, None)  # the next read locates it again
            except QimError as error:
                self._fail(partition)
                _log.warning("a partition waits", extra=self._where(partition, entries) | {"error": str(error)})
            except Exception:  # noqa: BLE001  one partition's fault holds up no other one
                self._fail(partition)
                _log.exception("a partition's entries cannot be consumed", extra=self._where(partition, entries))

    async def _apply(self, partition: int, entries: Sequence[DispatchEntry]) -> None:
        projected: list[ProjectionEntry] = []
        for run in fold(entries):
            reached = await self._audiences.reached(run)
            projected += [
                ProjectionEntry(run.tenant, user, run.conversation, time_ms) for user, time_ms in reached.items()
            ]
        newest = entries[-1].position
        await self._projector.apply(partition, projected, Checkpoint(newest, self._log_ids[partition]))
        self._at[partition] = newest
        self._metrics.projected_entries.inc(len(projected))

    def _advance(self, partition: int, to_ms: int) -> None:
        self._progress[partition] = max(self._progress.get(partition, 0), to_ms)

    def _pause_of(self, partition: int) -> _Pause:
        return self._pauses.get(partition, _NO_PAUSE)

    def _fail(self, partition: int) -> None:
        self._metrics.dispatch_failures.inc()
        self._pauses.setdefault(partition, _Pause()).extend(_now())

    def _where(self, partition: int, entries: Sequence[DispatchEntry]) -> dict[str, object]:
        return {
            "partition": partition,
            "first": str(entries[0].position),
            "last": str(entries[-1].position),
            "failures": self._pause_of(partition).failures,
        }


_NO_PAUSE: Final = _Pause()


def progress_of(consumers: Sequence[DispatchConsumer]) -> Progress:
    """How far the partitions of all commit instances are; each consumer has been located."""
    reached = [time_ms for consumer in consumers for time_ms in consumer.progress.values()]
    return Progress(settled_ms=min(reached), newest_ms=max(reached))


def _now() -> float:
    return asyncio.get_running_loop().time()

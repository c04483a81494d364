"""The consumer of the dispatch logs of one commit instance, for one lane (storage.md, "Session").

Each partition (commit bucket) has a position of its own and is read in commit order. Only what the lane has brought
about moves the position; whatever fails is read again from the log later, so that an outage of the writer or of a
store costs time and nothing else. A partition that fails is left out for a while and holds up no other one.

It consumes the partitions that it is told to hold. Where two processes hold one for a moment, effects are idempotent,
and of two checkpoint moves one wins; the other consumer takes up where the stored checkpoint stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from qim_common.backoff import Backoff
from qim_common.errors import QimError
from qim_common.positions import Position
from qim_common.redis import StartRefused
from qim_common.telemetry.metrics import DispatchMetrics
from qim_session.commands.lag import Lag
from qim_session.commands.lane import Lane, LogGap, PartitionMovedError
from qim_session.commands.locating import Start, overtaken, survey
from qim_session.domain.folding import DispatchEntry
from qim_session.domain.position import Checkpoint
from qim_session.storage.dispatch import DispatchLog

_log = logging.getLogger(__name__)

ENTRIES_PER_READ: Final = 16
"""Of one partition in one read; an entry holds up to 256 messages."""

BLOCK_SECONDS: Final = 0.25
"""How long a read waits for something new; idle partitions' progress is no older."""

SETTLE_SECONDS: Final = 0.2
"""How often the progress of partitions without news is stored at most."""

PARTITIONS_AT_ONCE: Final = 32
"""How many partitions' batches are worked on at the same time."""

GATHER_SECONDS: Final = 0.02
"""A read that found little is followed by this pause, so that a trickle of messages shares script calls."""

LONG_SECONDS: Final = 1.0
"""A partition whose batch takes longer is left out of the reads until it is through, and holds up no other one."""

AGED_MS: Final = 10_000
"""A partition whose progress is older than this may have lost entries before they were read."""

REFUSED_SECONDS: Final = 5.0
"""How often a partition is looked at whose checkpoint does not belong to its log."""


class DispatchLogRefused(StartRefused):
    """A checkpoint and its dispatch log do not belong together; consuming would lose or repeat messages silently."""


class DispatchConsumer:
    """Consumes partitions of one commit instance. `run` it in a task and tell it what to `hold`; cancel it to stop.

    Cancelling is safe at any moment: what was applied without its checkpoint is applied again by the next consumer.
    """

    def __init__(self, log: DispatchLog, lane: Lane, metrics: DispatchMetrics) -> None:
        self._dispatch = log
        self._lane = lane
        self._metrics = metrics
        self._lag = Lag(metrics, instance=next(iter(log.partitions), 0))  # the lowest is the instance's position
        self._held: frozenset[int] = frozenset()
        self._at: dict[int, Start] = {}
        self._log_id = ""
        self._progress: dict[int, int] = {}
        self._unsettled: dict[int, int] = {}
        self._settled_at = float("-inf")
        self._pauses: dict[int, Backoff] = {}
        self._working: dict[int, asyncio.Task[None]] = {}
        self._at_once = asyncio.Semaphore(PARTITIONS_AT_ONCE)

    @property
    def positions(self) -> dict[int, Position]:
        """Up to where each partition that is consumed here has been."""
        return {partition: start.position for partition, start in self._at.items()}

    @property
    def progress(self) -> Mapping[int, int]:
        """Of each partition that is consumed here the commit time (ms) below which everything has been applied.

        It is that of the newest entry that was applied or, after a read that reached the end, the instance's time
        before that read (storage.md, "Session"); never beyond what waits for the archive. An instance whose clock was
        set back commits below it until the clock has caught up.
        """
        return self._progress

    async def check_start(self) -> None:
        """Look at all partitions of the instance, whoever holds them, before the process starts to serve.

        Raises:
            DispatchLogRefused: naming every partition whose checkpoint does not belong to its log.
            BackendUnavailable: an instance does not answer.
        """
        found = await survey(self._lane, self._dispatch, self._dispatch.partitions)
        if found.refused:
            listed = "".join(
                f"\n  - partition {partition}, {why}" for partition, whys in found.refused.items() for why in whys
            )
            raise DispatchLogRefused(
                f"checkpoints do not belong to the dispatch logs:{listed}\nRestore the instance's data, or delete the "
                "session store's checkpoints, after which the lists are projected from the oldest entry on."
            )

    def hold(self, partitions: Iterable[int]) -> None:
        """Consume these and no others from now on; those of other instances are none of this consumer's business.

        What is being applied of a partition that is lost is given up at once.
        """
        held = frozenset(partitions) & frozenset(self._dispatch.partitions)
        lost, self._held = self._held - held, held
        for partition in lost:
            self._forget(partition)
            self._pauses.pop(partition, None)
            if (task := self._working.get(partition)) is not None:
                task.cancel()

    async def run(self) -> None:
        """Consume until cancelled."""
        try:
            await self._consume_all()
        finally:
            working = list(self._working.values())
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    async def _consume_all(self) -> None:
        outage = Backoff()
        while True:
            try:
                found, full = await self._read_once()
            except (QimError, StartRefused) as error:
                _log.warning("the dispatch logs cannot be read", extra={"error": str(error)})
            except Exception:  # noqa: BLE001  whatever it is, nothing is lost and it is tried again
                _log.exception("reading the dispatch logs failed")
            else:
                outage.reset()
                if found and not full:
                    await asyncio.sleep(GATHER_SECONDS)
                continue
            self._metrics.dispatch_failures.inc()
            self._lag.grow(_now())
            # The instance may come back with another log, so every partition is located again.
            for partition in list(self._at):
                self._forget(partition)
            await outage.sleep()

    async def _read_once(self) -> tuple[bool, bool]:
        """One read of all partitions that are due: whether it found entries, and whether some may have more."""
        if missing := sorted(part for part in self._held if part not in self._at and self._is_due(part)):
            await self._locate(missing)
        now = _now()
        due = {partition: start.position for partition, start in self._at.items() if self._is_due(partition)}
        waits = [pause.until - now for pause in self._pauses.values() if pause.until > now]
        wait = min([*waits, BLOCK_SECONDS])
        if not due:
            if not self._held:
                self._lag.measure(0, _now())
            if self._working:
                await asyncio.wait(self._working.values(), timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(wait)
            return False, False
        read = await self._dispatch.read(due, count=ENTRIES_PER_READ, block_ms=max(1, int(wait * 1000)))
        for partition in [part for part in due if part in self._at and self._at[part].log_id != read.log_id]:
            self._forget(partition)  # begun anew by a recovery, also where the connection has outlived it
        aged = [part for part in due if part in self._at and read.time_ms - self._progress[part] > AGED_MS]
        for partition in await overtaken(self._dispatch, {part: self._at[part] for part in aged}):
            self._forget(partition)
        for partition in due.keys() - read.entries.keys() - read.behind:
            if partition in self._at:
                self._unsettled[partition] = self._progress[partition] = read.time_ms
        begun = {
            partition: asyncio.create_task(
                self._consume(partition, self._at[partition], entries, 0 if partition in read.behind else read.time_ms)
            )
            for partition, entries in read.entries.items()
            if partition in self._at
        }
        self._working |= begun
        for partition, task in begun.items():
            task.add_done_callback(partial(self._through, partition))
        if begun:
            await asyncio.wait(begun.values(), timeout=LONG_SECONDS)
        self._lag.measure(max((read.time_ms - ms for ms in self._progress.values()), default=0), _now())
        await self._settle()
        return bool(read.entries), any(len(entries) == ENTRIES_PER_READ for entries in read.entries.values())

    async def _locate(self, partitions: Sequence[int]) -> None:
        found = await survey(self._lane, self._dispatch, partitions)
        for partition, why in found.refused.items():
            self._metrics.partitions_refused.inc()
            self._pauses[partition] = Backoff(until=_now() + REFUSED_SECONDS)
            _log.error(
                "a partition is not consumed, its checkpoint does not belong to its dispatch log",
                extra={"partition": partition, "why": "; ".join(why)},
            )
        if found.gaps and not await self._bridge(found.gaps):
            for gap in found.gaps:
                found.starts.pop(gap.partition, None)
        for partition, start in found.starts.items():
            if self._log_id not in ("", start.log_id):
                _log.warning("the dispatch logs were begun anew", extra={"log": start.log_id})
                self._lane.renewed()
            self._log_id = start.log_id
            if partition in self._held:
                self._at[partition] = start
                self._progress[partition] = start.position.ms

    async def _bridge(self, gaps: Sequence[LogGap]) -> bool:
        for gap in gaps:
            self._metrics.dispatch_gaps.inc()
            _log.error(
                "dispatch entries are gone that were not consumed",
                extra={
                    "partition": gap.partition,
                    "instance": gap.place,
                    "after": str(gap.gap.missing_after),
                    "up_to": str(gap.gap.position),
                },
            )
        try:
            await self._lane.bridge(gaps)
        except (QimError, PartitionMovedError) as error:
            _log.warning("a gap cannot be made up for now", extra={"error": str(error)})
            for partition in {gap.partition for gap in gaps}:
                self._fail(partition)
            return False
        return True

    def _through(self, partition: int, task: asyncio.Task[None]) -> None:
        if self._working.get(partition) is task:
            del self._working[partition]

    async def _consume(self, partition: int, start: Start, entries: Sequence[DispatchEntry], read_at_ms: int) -> None:
        """Bring about what was read; `read_at_ms` is 0 where the archive holds up the rest of the partition."""
        async with self._at_once:
            try:
                at_the_end = len(entries) < ENTRIES_PER_READ
                newest = entries[-1].position
                progress_ms = max(newest.ms, read_at_ms if at_the_end else 0)
                await self._lane.apply(partition, entries, Checkpoint(newest, start.log_id), progress_ms)
                self._pauses.pop(partition, None)
                if self._at.get(partition) is start:  # else it is to be located again, which finds the checkpoint
                    self._at[partition] = Start(newest, start.log_id)
                    self._progress[partition] = progress_ms
                    self._unsettled.pop(partition, None)
            except PartitionMovedError:
                self._relocate(partition)
            except QimError as error:
                self._fail(partition)
                _log.warning("a partition waits", extra=self._where(partition, entries) | {"error": str(error)})
            except Exception:  # noqa: BLE001  one partition's fault holds up no other one
                self._fail(partition)
                _log.exception("a partition's entries cannot be consumed", extra=self._where(partition, entries))

    async def _settle(self) -> None:
        """Store the progress of partitions without news, which also finds checkpoints that were moved or wiped."""
        now = _now()
        if not self._unsettled or now - self._settled_at < SETTLE_SECONDS:
            return
        unsettled, self._unsettled, self._settled_at = self._unsettled, {}, now
        for partition in await self._lane.settle(unsettled):
            if partition in self._at:
                self._relocate(partition)

    def _relocate(self, partition: int) -> None:
        """The next read finds out where the partition stands."""
        self._metrics.checkpoint_conflicts.inc()
        _log.warning("a checkpoint is not where it was left", extra={"partition": partition})
        self._forget(partition)

    def _forget(self, partition: int) -> None:
        self._at.pop(partition, None)
        self._progress.pop(partition, None)
        self._unsettled.pop(partition, None)

    def _is_due(self, partition: int) -> bool:
        pause = self._pauses.get(partition)
        return partition not in self._working and (pause is None or pause.until <= _now())

    def _fail(self, partition: int) -> None:
        self._metrics.dispatch_failures.inc()
        self._pauses.setdefault(partition, Backoff()).extend(_now())

    def _where(self, partition: int, entries: Sequence[DispatchEntry]) -> dict[str, object]:
        return {
            "partition": partition,
            "first": str(entries[0].position),
            "last": str(entries[-1].position),
            "failures": self._pauses[partition].failures,
        }


def _now() -> float:
    return asyncio.get_running_loop().time()

"""The live tail: reads all dispatch logs of one commit instance as they grow (storage.md, "Session").

Every replica reads every partition, leases or not, from the moment on at which somebody is connected; before that it
does not read at all. A partition whose block needs something of the writer waits for that and holds up no other one.
Where entries were lost to it (they were trimmed while it stalled, or the log is another one), everybody connected
catches up anew.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from qim_common.backoff import Backoff
from qim_common.errors import MembershipVersionExpired, QimError
from qim_common.ids import show
from qim_common.positions import Position
from qim_common.records import Block, unpack_blocks
from qim_common.redis import StartRefused
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.commands.live.connected import Connected
from qim_session.commands.live.fan_out import FanOut, Found
from qim_session.commands.live.finding import Finding
from qim_session.commands.locating import Start, overtaken
from qim_session.domain.folding import DispatchEntry
from qim_session.storage.dispatch import DispatchLog
from qim_session.storage.live import InstanceClock

_log = logging.getLogger(__name__)

ENTRIES_PER_READ: Final = 16
"""Of one partition in one read."""

BLOCK_MS: Final = 100
"""How long a read waits for something new: as long as an attach may wait for an idle log to say so."""

SOON_SECONDS: Final = 1.0
SOON_BLOCK_MS: Final = 3
"""How long a read waits while a partition has waited for the writer for less than a second."""

GATHER_SECONDS: Final = 0.002
"""A read that found something is followed by this pause, so that a stream of messages costs less than a read each."""

STALLED_SECONDS: Final = 10.0
"""A partition that was not read for as long as this may have lost entries meanwhile, and is checked.

Far below the time for which the writer keeps them."""

_EVERYTHING: Final = 0
"""Since when everybody catches up where the projection could not take an entry either, or the logs were begun anew:
all conversations are read."""


@dataclass(slots=True)
class _Work:
    """The blocks of one partition that were read and not handed over."""

    partition: int
    blocks: deque[tuple[int, Block]]
    upto_ms: int
    found: Found = field(default_factory=Found)


class LiveTail:
    """The partitions of one commit instance. Run `run` in a task; cancel it to stop.

    Args:
        instance: its place in the configured list, for metrics.
        on_gap: called when everybody has to catch up anew with what was committed from a moment (ms) on.
        on_progress: called after each read.
    """

    def __init__(
        self,
        log: DispatchLog,
        clock: InstanceClock,
        connected: Connected,
        fan_out: FanOut,
        finding: Finding,
        metrics: SessionMetrics,
        *,
        instance: int,
        on_gap: Callable[[int], None],
        on_progress: Callable[[], None],
    ) -> None:
        self._dispatch = log
        self._clock = clock
        self._connected = connected
        self._fan_out = fan_out
        self._finding = finding
        self._metrics = metrics
        self._lag = metrics.tail_lag.labels(str(instance))
        self._on_gap = on_gap
        self._on_progress = on_progress
        self._at: dict[int, Position] = {}
        self._log_id = ""
        self._progress: dict[int, int] = dict.fromkeys(log.partitions, 0)
        self._waiting: dict[int, asyncio.Task[None]] = {}
        self._positioned = asyncio.Event()
        self._read_at: dict[int, float] = {}
        self._waited_at = 0.0
        self._lost_ms: int | None = None
        self.settled_ms = 0

    @property
    def log_id(self) -> str:
        """The identity of the logs that are read; empty before somebody was connected."""
        return self._log_id

    async def now_ms(self) -> int:
        """The instance's time. Raises BackendUnavailable."""
        return await self._clock.time_ms()

    async def positioned(self) -> None:
        """Wait until everything that is committed from now on will be handed over; somebody is connected."""
        await self._positioned.wait()

    async def run(self) -> None:
        """Read until cancelled."""
        backoff = Backoff.quick()
        try:
            while True:
                try:
                    if not self._connected.somebody.is_set():
                        self._park()
                        await self._connected.somebody.wait()
                    await self._read_once()
                except (QimError, StartRefused) as error:
                    _log.warning("the live tail cannot read the dispatch logs", extra={"error": str(error)})
                except Exception:  # noqa: BLE001  whatever it is, it is read again
                    _log.exception("the live tail failed")
                else:
                    backoff.reset()
                    continue
                self._metrics.dispatch_failures.inc()
                self._read_at.clear()  # the instance may come back with another log
                await backoff.sleep()
        finally:
            self._park()

    def _park(self) -> None:
        self._positioned.clear()
        self._at.clear()
        self._lost_ms = None
        self._give_up()

    def _give_up(self) -> None:
        for task in self._waiting.values():
            task.cancel()
        self._waiting.clear()

    async def _read_once(self) -> None:
        now = _now()
        if not self._at:
            await self._position()
        due = {partition: at for partition, at in self._at.items() if partition not in self._waiting}
        if not due:
            await asyncio.wait(
                list(self._waiting.values()), timeout=BLOCK_MS / 1000, return_when=asyncio.FIRST_COMPLETED
            )
            return
        # What waits for the writer is read on when it is through, and not after the longest wait.
        soon = now - self._waited_at < SOON_SECONDS and self._waiting
        block_ms = SOON_BLOCK_MS if soon else BLOCK_MS
        asked_at = _now()
        read = await self._dispatch.read(due, count=ENTRIES_PER_READ, block_ms=block_ms)
        if await self._renewed(read.log_id) or await self._passed_over(due, read.time_ms):
            return
        self._read_at.update(dict.fromkeys(due, asked_at))
        for partition in due.keys() - read.entries.keys() - read.behind:
            self._advance(partition, read.time_ms)
        for partition, entries in read.entries.items():
            at_the_end = len(entries) < ENTRIES_PER_READ and partition not in read.behind
            self._take(partition, entries, read.time_ms if at_the_end else 0)
        self._settle(read.time_ms)
        if read.entries and all(len(entries) < ENTRIES_PER_READ for entries in read.entries.values()):
            await asyncio.sleep(GATHER_SECONDS)

    async def _position(self) -> None:
        """Begin at the logs' ends: what was committed before this moment is caught up with from the owner."""
        asked_at = _now()
        time_ms = await self._clock.time_ms()
        partitions = self._dispatch.partitions
        for partition, log in zip(partitions, await self._dispatch.bounds(partitions), strict=True):
            if self._log_id not in ("", log.log_id):
                self._finding.forget()
            self._log_id = log.log_id
            self._at[partition] = log.delivered
            # What the archive does not hold yet is caught up with from nowhere: it is still to come.
            self._progress[partition] = time_ms if log.open_end is None else log.open_end.ms
            self._read_at[partition] = asked_at
        self._settle(time_ms)
        self._positioned.set()
        lost_ms, self._lost_ms = self._lost_ms, None
        if lost_ms is not None:
            self._lose(lost_ms)

    async def _passed_over(self, due: Iterable[int], read_ms: int) -> bool:
        """Whether a read came too late for what followed a position; then everybody catches up from here.

        Asked after a read and before anything of it is handed over, about partitions that were last read a while ago
        by this process's clock, or by the instance's, which goes on while a machine is suspended: so it does not
        matter where a stall falls.
        """
        now = _now()
        late = {
            partition: Start(self._at[partition], self._log_id)
            for partition in due
            if now - self._read_at.get(partition, -math.inf) > STALLED_SECONDS
            or read_ms - self._progress[partition] > STALLED_SECONDS * 1000
        }
        gone = await overtaken(self._dispatch, late)
        if not gone:
            return False
        _log.error("dispatch entries are gone that were not handed over", extra={"partitions": gone})
        await self._begin_anew(self.settled_ms)
        return True

    async def _renewed(self, log_id: str) -> bool:
        """Whether a recovery has begun the logs anew; then everybody catches up with everything."""
        if log_id == self._log_id:
            return False
        _log.error("the dispatch logs were begun anew", extra={"log": log_id})
        await self._begin_anew(_EVERYTHING)
        return True

    async def _begin_anew(self, lost_ms: int) -> None:
        # Remembered until it is told: beginning at the logs' ends may fail, and be tried again later.
        self._lost_ms = lost_ms
        self._at.clear()
        self._give_up()
        await self._position()

    def _take(self, partition: int, entries: Sequence[DispatchEntry], end_ms: int) -> None:
        self._at[partition] = entries[-1].position
        try:
            blocks = deque((entry.position.ms, block) for entry in entries for block in unpack_blocks(entry.data))
            work = _Work(partition, blocks, max(entries[-1].position.ms, end_ms))
            through = self._hand_over(work)
        except Exception:  # noqa: BLE001  one partition's fault holds up no other one
            _log.exception("a partition's entries cannot be handed over", extra={"partition": partition})
            self._lose(_EVERYTHING)
            return
        if not through:
            task = asyncio.create_task(self._finish(work), name=f"live partition {partition}")
            self._waiting[partition] = task
            self._waited_at = _now()
            task.add_done_callback(lambda done: self._finished(partition, done))

    def _hand_over(self, work: _Work) -> bool:
        """Hand over block after block; False where one needs something."""
        while work.blocks:
            time_ms, block = work.blocks[0]
            if self._fan_out.hand_over(block, time_ms, work.found):
                return False
            work.blocks.popleft()
            if work.found.bodies or work.found.changes:
                work.found = Found()
        self._advance(work.partition, work.upto_ms)
        return True

    async def _finish(self, work: _Work) -> None:
        """Find out what is needed and hand over, until the work is through."""
        backoff = Backoff.quick()
        while not self._hand_over(work):
            time_ms, block = work.blocks[0]
            needs = self._fan_out.hand_over(block, time_ms, work.found)
            try:
                await self._finding.find(needs, work.found)
            except MembershipVersionExpired:
                self._metrics.audiences_unresolved.inc()
                _log.error(
                    "the members at a version are gone, everybody connected catches up",
                    extra={"conversation": show(block.conversation), "version": block.version},
                )
                work.blocks.popleft()
                self._lose(_EVERYTHING)
            except QimError as error:
                _log.warning("a partition waits", extra={"partition": work.partition, "error": str(error)})
                await backoff.sleep()
            else:
                backoff.reset()

    def _finished(self, partition: int, task: asyncio.Task[None]) -> None:
        if self._waiting.get(partition) is not task:
            return  # given up with everything else
        del self._waiting[partition]
        if not task.cancelled() and (error := task.exception()) is not None:
            # A block that cannot be read at all: whoever is connected gets it from the owner.
            _log.error("a partition's blocks cannot be handed over", exc_info=error, extra={"partition": partition})
            self._lose(_EVERYTHING)

    def _lose(self, since_ms: int) -> None:
        self._metrics.tail_gaps.inc()
        self._on_gap(since_ms)

    def _advance(self, partition: int, to_ms: int) -> None:
        if to_ms > self._progress[partition]:
            self._progress[partition] = to_ms

    def _settle(self, time_ms: int) -> None:
        self.settled_ms = min(self._progress.values())
        self._lag.set(max(time_ms - self.settled_ms, 0) / 1000)
        self._on_progress()


def _now() -> float:
    return asyncio.get_running_loop().time()

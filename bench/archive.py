"""How the archiver keeps up: its lag beside the commit path, and how fast it drains what has gathered.

Everything shares the machine: writer, Valkey, load generator, archiver and the nodes of a Cassandra cluster. In the end
the outbox is empty and every acknowledgement equals the heads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bench.child import LoadFailed
from bench.figures import histogram_quantile, per_message
from bench.plan import Stage
from bench.processes import CpuWindow, Samples, histograms, since, values
from bench.rig import LoadOptions, Measured, Rig, Shape, rig

_SAMPLE_SECONDS: Final = 0.25
_CAUGHT_UP_SECONDS: Final = 180.0
_CLOSED_FRAMES: Final = 16
_CLOSED_FRAME_MESSAGES: Final = 128
_LAG: Final = "qim_archiver_lag_seconds"
_MESSAGES: Final = "qim_archiver_messages_total"
_REQUESTS: Final = "qim_cassandra_requests_total"
_ROUND: Final = "qim_archiver_archived_after_seconds"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ArchiveTimes:
    """Messages a second and seconds: the rate beside which the lag is measured, and how long the outbox fills."""

    rate: float = 10_000
    seconds: float = 20
    warmup_seconds: float = 6
    fill_seconds: float = 6


@dataclass(frozen=True, slots=True)
class Archiving:
    """The archiver over some time.

    Attributes:
        per_second: messages archived.
        per_request: messages of one request to Cassandra, on average.
        cpu_us: microseconds per archived message, by process; the nodes together.
        cores: the processors that all of them kept busy.
        lag_half, lag_most: upper bounds in seconds, of half and of 99 % of the rounds, from the oldest commit to the
            archive; `lag_max`: the largest lag seen.
    """

    seconds: float
    messages: int
    per_second: float
    per_request: float
    cpu_us: dict[str, float]
    cores: float
    lag_half: float
    lag_most: float
    lag_max: float


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """One shape: the commit path at the rate, the archiver beside it, and the archiver alone on a full outbox."""

    shape: Shape
    commit: Measured
    beside: Archiving
    drained: Archiving
    acknowledged: int
    faults: list[str] = field(default_factory=list)


async def archive(shape: Shape, options: LoadOptions, times: ArchiveTimes, tell: Tell) -> ArchiveReport:
    """Measure one shape on processes of its own. Raises SuiteError, LoadFailed, QimError."""
    tell(f"archive, {shape}: starting the processes")
    async with rig(shape, options) as ready:
        tell(f"archive, {shape}: warming up")
        await ready.measure(Stage("open", times.warmup_seconds, rate=times.rate))
        await _caught_up(ready)
        tell(f"archive, {shape}: {times.rate:,.0f}/s for {times.seconds:g} s")
        async with _Watch(ready) as watch:
            commit = await ready.measure(Stage("open", times.seconds, rate=times.rate))
        beside = watch.figures()
        await _caught_up(ready)

        tell(f"archive, {shape}: filling the outbox, then draining it")
        archiver = ready.suite.archiver_names[0]
        await ready.suite.kill(archiver)
        await ready.measure(
            Stage("closed", times.fill_seconds, frames=_CLOSED_FRAMES, frame_messages=_CLOSED_FRAME_MESSAGES)
        )
        await ready.suite.restart(archiver)
        async with _Watch(ready) as watch:
            await _caught_up(ready)
        drained = watch.figures()
        acknowledged, faults = await ready.verify()
    return ArchiveReport(shape, commit, beside, drained, acknowledged, faults)


async def _caught_up(ready: Rig) -> None:
    """Wait until nothing is recorded that is not archived. Raises LoadFailed where that takes too long."""
    end = asyncio.get_running_loop().time() + _CAUGHT_UP_SECONDS
    while await ready.backlog():
        if asyncio.get_running_loop().time() > end:
            raise LoadFailed(f"the archiver has not caught up in {_CAUGHT_UP_SECONDS:g} s")
        await asyncio.sleep(_SAMPLE_SECONDS / 5)


class _Watch:
    """What the archiver does, and what everything costs, while the context is open."""

    def __init__(self, ready: Rig) -> None:
        self._address = ready.suite.metrics_address(ready.suite.archiver_names[0])
        self._window = CpuWindow(ready.pids())
        self._lags: list[float] = [0.0]
        self._before: tuple[dict[str, float], Samples] = ({}, {})
        self._after: tuple[dict[str, float], Samples] = ({}, {})
        self._cpu: dict[str, float] = {}
        self._seconds = 0.0
        self._sampling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> _Watch:
        self._before = await asyncio.to_thread(self._read)
        self._window.start()
        self._sampling = asyncio.create_task(self._sample())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._cpu, self._seconds = self._window.stop()
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait([self._sampling])
        self._after = await asyncio.to_thread(self._read)

    def figures(self) -> Archiving:
        """After the context."""
        (before, rounds_before), (after, rounds_after) = self._before, self._after
        counted = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in (_MESSAGES, _REQUESTS)}
        rounds = since(rounds_before.get(_ROUND, {}), rounds_after[_ROUND])
        messages = int(counted[_MESSAGES])
        return Archiving(
            seconds=round(self._seconds, 1),
            messages=messages,
            per_second=round(messages / self._seconds, 1),
            per_request=round(messages / max(counted[_REQUESTS], 1), 1),
            cpu_us=per_message(self._cpu, messages),
            cores=round(sum(self._cpu.values()) / self._seconds, 2),
            lag_half=histogram_quantile(rounds, 0.5),
            lag_most=histogram_quantile(rounds, 0.99),
            lag_max=round(max(self._lags), 2),
        )

    def _read(self) -> tuple[dict[str, float], Samples]:
        return values(self._address), histograms(self._address)

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS)
            found = await asyncio.to_thread(values, self._address)
            self._lags.append(found.get(_LAG, 0.0))

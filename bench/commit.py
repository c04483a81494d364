"""The commit path end to end: mTLS, writer, fsync, answer; latency at a fixed rate, and the highest rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bench.plan import Stage
from bench.rig import LoadOptions, Measured, Rig, Shape, rig
from qim_devkit.tiered import Backend

P99_BOUND_MS: Final = 100.0
ACHIEVED_SHARE: Final = 0.97
"""A rate is carried when P99 stays within the bound, this share of the offer is committed, and nothing is refused."""

_CLOSED_FRAMES: Final = 16
_CLOSED_FRAME_MESSAGES: Final = 128

Tell = Callable[[str], None]
"""Hears in a few words what is being done."""


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """Messages a second and seconds: the fixed rate, then the closed loop and each step of the search.

    `steps` are shares of the closed loop's rate, tried in this order.
    """

    rate: float
    seconds: float
    warmup_seconds: float
    closed_seconds: float
    step_seconds: float
    steps: tuple[float, ...] = (0.95, 0.8, 0.65, 0.5)


@dataclass(frozen=True, slots=True)
class CommitReport:
    """One shape.

    Attributes:
        fixed: at the fixed rate, open loop.
        closed: a constant number of frames in flight: the highest rate that is committed at all.
        carried: the highest rate of the search, open loop, that kept within the bounds; None: none did.
        steps: every step of the search.
        acknowledged, faults: the verification of everything above.
    """

    shape: Shape
    fixed: Measured
    closed: Measured
    carried: Measured | None
    steps: list[Measured] = field(default_factory=list)
    acknowledged: int = 0
    faults: list[str] = field(default_factory=list)
    backend: str = Backend.REDIS


async def commit(shape: Shape, options: LoadOptions, times: CommitTimes, tell: Tell) -> CommitReport:
    """Measure one shape on processes of its own. Raises SuiteError, LoadFailed, QimError."""
    tell(f"{shape}: starting the processes")
    async with rig(shape, options) as ready:
        tell(f"{shape}: warming up")
        await ready.measure(Stage("open", times.warmup_seconds, rate=times.rate))
        tell(f"{shape}: {times.rate:,.0f}/s for {times.seconds:g} s")
        fixed = await ready.measure(Stage("open", times.seconds, rate=times.rate))
        tell(f"{shape}: closed loop for {times.closed_seconds:g} s")
        closed = await ready.measure(
            Stage("closed", times.closed_seconds, frames=_CLOSED_FRAMES, frame_messages=_CLOSED_FRAME_MESSAGES)
        )
        carried, steps = await _search(ready, closed.achieved, times, shape, tell)
        tell(f"{shape}: comparing every acknowledgement with the heads")
        acknowledged, faults = await ready.verify()
    return CommitReport(shape, fixed, closed, carried, steps, acknowledged, faults, options.backend)


async def _search(
    ready: Rig, highest: float, times: CommitTimes, shape: Shape, tell: Tell
) -> tuple[Measured | None, list[Measured]]:
    """From just below the closed loop's rate downward, until one is carried."""
    steps: list[Measured] = []
    for share in times.steps:
        rate = round(highest * share, -2)
        tell(f"{shape}: {rate:,.0f}/s for {times.step_seconds:g} s")
        measured = await ready.measure(Stage("open", times.step_seconds, rate=rate))
        steps.append(measured)
        if carries(measured):
            return measured, steps
    return None, steps


def carries(measured: Measured) -> bool:
    """Whether a rate was carried (`ACHIEVED_SHARE`, `P99_BOUND_MS`)."""
    return (
        measured.latency is not None
        and not measured.errors
        and measured.achieved >= ACHIEVED_SHARE * measured.offered
        and measured.latency.p99 <= P99_BOUND_MS
    )

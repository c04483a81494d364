"""The requests and limits that follow from measurements (docs/performance.md, "Resources"). Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SIZED_FOR: Final = 2_000.0
"""Messages a second, in groups of ten: what one replica of each process, and one commit instance, is sized for."""

_MILLICORES: Final = 50
_MIB: Final = 1 << 20
_MEMORY_STEP: Final = 64


@dataclass(frozen=True, slots=True)
class Load:
    """One rate in groups of one size.

    Attributes:
        members: of each group.
        offered, achieved: messages a second that were due, and that were committed until the last answer.
        deliveries: messages times attached devices.
        wall_seconds: from the first message until nobody worked any more.
        cpu_seconds: user and system in that time, by process.
        highest_bytes: of resident memory, by process.
        stored_bytes: what Valkey's allocations grew by.
        errors: refused and unanswered messages by reason.
    """

    members: int
    offered: float
    achieved: float
    committed: int
    deliveries: int
    wall_seconds: float
    cpu_seconds: dict[str, float]
    highest_bytes: dict[str, int]
    stored_bytes: int
    errors: dict[str, int]

    def cpu_per_thousand(self, process: str, idle_cores: float) -> float:
        """CPU seconds of a process for 1,000 messages, without what it takes in the same time when idle."""
        used = max(self.cpu_seconds[process] - idle_cores * self.wall_seconds, 0.0)
        return used / max(self.committed, 1) * 1_000

    @property
    def stored_per_message(self) -> float:
        """Bytes of Valkey's memory."""
        return self.stored_bytes / max(self.committed, 1)


@dataclass(frozen=True, slots=True)
class Sizing:
    """What one container asks for: `cpu_request` in thousandths of a core; `memory` in MiB, as request and as limit."""

    process: str
    cpu_request: int
    memory: int


def sizing_of(idle_cores: Mapping[str, float], loads: Sequence[Load], bounds: Mapping[str, int]) -> list[Sizing]:
    """For every process; Valkey's memory is to be what it keeps (`kept_bytes`), and more than what is found here.

    CPU request: idle, and what SIZED_FOR messages a second in the smallest groups cost at the measured rate that is
    nearest to it; rounded up to 50 thousandths. There is no limit: a throttled process answers late. Memory: twice the
    highest that was seen, and what the process may hold beyond it by its own bounds; rounded up to 64 MiB.

    Args:
        bounds: bytes, by process, that callers can make it hold and that no load here does.

    Raises ValueError: there are no loads.
    """
    if not loads:
        raise ValueError("nothing was measured")
    smallest = min(load.members for load in loads)
    candidates = [load for load in loads if load.members == smallest]
    nearest = min(candidates, key=lambda load: abs(load.offered - SIZED_FOR))
    found = []
    for process, idle in idle_cores.items():
        cores = idle + nearest.cpu_per_thousand(process, idle) * SIZED_FOR / 1_000
        memory = 2 * max(load.highest_bytes[process] for load in loads) + bounds.get(process, 0)
        found.append(Sizing(process, _up(cores * 1_000, _MILLICORES), _up(memory / _MIB, _MEMORY_STEP)))
    return found


def kept_bytes(per_message: float, per_second: float, hours: float) -> int:
    """Valkey's memory for what it keeps of so many messages a second, on average over so many hours."""
    return math.ceil(per_message * per_second * hours * 3_600)


def _up(amount: float, step: int) -> int:
    """The next multiple of `step`, at least one."""
    return max(math.ceil(amount / step), 1) * step

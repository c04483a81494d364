"""Pauses that grow with failures in a row."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
QUICK_FIRST_PAUSE_SECONDS: Final = 0.05
QUICK_LONGEST_PAUSE_SECONDS: Final = 2.0

_DOUBLINGS_MAX: Final = 16


@dataclass(slots=True)
class Backoff:
    """How long something is left alone: after each failure in a row twice as long, up to a bound.

    Attributes:
        first, longest: the shortest and the longest pause, in seconds.
        failures: in a row, since the last `reset`.
        until: by the event loop's clock; of those who go on with something else meanwhile.
    """

    first: float = field(default_factory=lambda: FIRST_PAUSE_SECONDS)
    longest: float = field(default_factory=lambda: LONGEST_PAUSE_SECONDS)
    failures: int = 0
    until: float = 0.0

    @classmethod
    def quick(cls) -> Backoff:
        """For what people who are connected wait for: 0.05 s to 2 s."""
        return cls(QUICK_FIRST_PAUSE_SECONDS, QUICK_LONGEST_PAUSE_SECONDS)

    def fail(self) -> float:
        """One more failure; returns the pause after it, in seconds."""
        self.failures += 1
        return min(self.first * 2.0 ** min(self.failures - 1, _DOUBLINGS_MAX), self.longest)

    def extend(self, now: float) -> None:
        """One more failure, after which `until` is the pause's end."""
        self.until = now + self.fail()

    async def sleep(self) -> None:
        """One more failure, and its pause."""
        await asyncio.sleep(self.fail())

    def reset(self) -> None:
        """It went well."""
        self.failures = 0
        self.until = 0.0

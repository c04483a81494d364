"""Pauses that grow with failures in a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0


@dataclass(slots=True)
class Pause:
    """How long something is left alone: until `until`, by the event loop's clock."""

    failures: int = 0
    until: float = 0.0

    def extend(self, now: float) -> None:
        """One more failure: twice the last pause, at most 5 s."""
        self.failures += 1
        self.until = now + min(FIRST_PAUSE_SECONDS * 2 ** min(self.failures - 1, 10), LONGEST_PAUSE_SECONDS)

"""A conversation's line as one row, and what became of a conditional write whose answer was lost. Pure.

A seq is taken by moving the head from what was read to something higher, under the condition that it is still what was
read. Heads only rise, so a condition that failed once can never hold later; and the row keeps the ids of the newest
runs, so a writer that heard nothing finds its own there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

RUN_ID_BYTES: Final = 8
RUNS_KEPT: Final = 16
"""So many other runs may come between a write and the read that decides it."""


@dataclass(frozen=True, slots=True)
class Line:
    """`head` is the newest seq, `time_ms` its commit time (at first the creation's), `runs` the ids of the newest runs,
    newest first."""

    head: int
    time_ms: int
    runs: tuple[bytes, ...] = ()

    @classmethod
    def read(cls, head: int, time_ms: int, runs: bytes | None) -> Line:
        """From the columns of a row."""
        packed = runs or b""
        ids = tuple(packed[at : at + RUN_ID_BYTES] for at in range(0, len(packed), RUN_ID_BYTES))
        return cls(head, time_ms, ids)

    def after(self, run: bytes, count: int, now_ms: int) -> Line:
        """The line once a run of so many messages has its seqs. The time never falls."""
        return Line(self.head + count, max(now_ms, self.time_ms), (run, *self.runs)[:RUNS_KEPT])

    @property
    def packed_runs(self) -> bytes:
        """The column `runs`."""
        return b"".join(self.runs)


class Fate(Enum):
    """What became of a conditional write."""

    APPLIED = auto()
    NOT_APPLIED = auto()
    """It never will be under another head; under the same head the same write may be made again."""
    UNKNOWN = auto()
    """Too many other runs came since."""


def fate(run: bytes, base: Line, now: Line) -> Fate:
    """Of the run that was to move the line from `base`, by a line that was read at SERIAL after it."""
    if run in now.runs:
        return Fate.APPLIED
    if now.head == base.head:
        return Fate.NOT_APPLIED
    all_runs_since = base.runs[0] in now.runs if base.runs else len(now.runs) < RUNS_KEPT
    return Fate.NOT_APPLIED if all_runs_since else Fate.UNKNOWN

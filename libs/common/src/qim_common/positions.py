"""Places in a dispatch log: the ids of stream entries. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SEQ_MAX: Final = 2**64 - 1


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The id of a stream entry: milliseconds of the commit time, and a counter within them."""

    ms: int
    seq: int

    @classmethod
    def parse(cls, text: bytes | str) -> Position:
        """Read `ms-seq`. Raises ValueError for anything else."""
        ms, _, seq = (text.decode("ascii") if isinstance(text, bytes) else text).partition("-")
        return cls(int(ms), int(seq))

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    def before(self) -> Position:
        """The greatest position below this one; the start of a log for the start of a log."""
        if self.seq:
            return Position(self.ms, self.seq - 1)
        return Position(self.ms - 1, _SEQ_MAX) if self.ms else self

    def after(self) -> Position:
        """The smallest position above this one."""
        return Position(self.ms, self.seq + 1) if self.seq < _SEQ_MAX else Position(self.ms + 1, 0)


LOG_START: Final = Position(0, 0)
"""Below every entry."""

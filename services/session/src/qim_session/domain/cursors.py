"""How far a person has read and a device has received (design.md invariants 7, 11 and 12). Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

_PACKED: Final = struct.Struct(">IQ")


class Cursor(NamedTuple):
    """A seq on a conversation's line of one generation. Orders by generation, then seq; cursors only move forward."""

    generation: int
    seq: int

    def pack(self) -> bytes:
        """12 bytes: generation u32, seq u64, big-endian."""
        return _PACKED.pack(self.generation, self.seq)

    @classmethod
    def unpack(cls, data: bytes) -> Cursor:
        """Read what `pack` wrote. Raises struct.error for another length."""
        return cls(*_PACKED.unpack(data))

    def clamped(self, newest: int) -> Cursor:
        """At most at `newest`: a cursor beyond it would hide what is still to be delivered."""
        return self if self.seq <= newest else Cursor(self.generation, newest)


NOTHING: Final = Cursor(0, 0)
"""Where somebody stands who has read nothing."""


class Raised(NamedTuple):
    """A generation that began because acknowledged seqs were lost for good: those of older ones beyond `base`."""

    generation: int
    base: int


def carried(cursor: Cursor, generation: int, raised: Sequence[Raised]) -> Cursor:
    """The cursor on the conversation's line of today: one of an older generation is cut to what was recovered.

    Args:
        generation: the conversation's now.
        raised: the generations that were raised, of which those after the cursor's count, whatever their order.
    """
    if cursor.generation >= generation:
        return cursor
    bases = [one.base for one in raised if cursor.generation < one.generation <= generation]
    return Cursor(generation, min([cursor.seq, *bases]))

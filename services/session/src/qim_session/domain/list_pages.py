"""Where a page of a conversation list goes on (storage.md, "Session": the list's page token). Pure.

A list is read from the top down in a sweep. Conversations that get a message meanwhile rise above what was read;
the next sweep reads what is above the top of the sweep before. A sweep that was one read is complete: nothing rose
unseen.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from qim_common.ids import ConversationId

_POSITION: Final = struct.Struct(">Q16s")
_NONE: Final = bytes(_POSITION.size)


@dataclass(frozen=True, slots=True, order=True)
class ListPosition:
    """A place in a list: newest activity first, conversations of one moment in descending order of their ids."""

    time_ms: int
    conversation: ConversationId


@dataclass(frozen=True, slots=True)
class ListCursor:
    """What is left of a list.

    Attributes:
        above: the sweep ends here (exclusive); None: at the bottom.
        below: the sweep goes on under this; None: it begins at the top of the list.
        top: where the sweep began; None before it has.
    """

    above: ListPosition | None = None
    below: ListPosition | None = None
    top: ListPosition | None = None

    def pack(self) -> bytes:
        """72 bytes: above, below, top, each time u64 and conversation; all zero for None."""
        return b"".join(_pack(position) for position in (self.above, self.below, self.top))

    @classmethod
    def unpack(cls, data: bytes) -> ListCursor:
        """Read what `pack` wrote. Raises struct.error for another length."""
        above, below, top = struct.unpack(f">{_POSITION.size}s{_POSITION.size}s{_POSITION.size}s", data)
        return cls(_unpack(above), _unpack(below), _unpack(top))


def _pack(position: ListPosition | None) -> bytes:
    return _NONE if position is None else _POSITION.pack(position.time_ms, position.conversation)


def _unpack(data: bytes) -> ListPosition | None:
    if data == _NONE:
        return None
    time_ms, conversation = _POSITION.unpack(data)
    return ListPosition(time_ms, ConversationId(conversation))


@dataclass(frozen=True, slots=True)
class ListRow:
    """One row of a page, and the cursor of a page that ends with it."""

    position: ListPosition
    after: ListCursor


def take_page(
    cursor: ListCursor, found: list[ListPosition], room: int
) -> tuple[list[ListRow], ListCursor | None, bool]:
    """Turn one read of a sweep into rows.

    Args:
        cursor: where the read began.
        found: up to `room` + 1 positions, in the order of the list.
        room: how many rows the page still takes, from 0.

    Returns:
        The rows; the cursor after them, None when nothing is left; and whether that cursor begins a new sweep, of which
        the page may hold the beginning.
    """
    top = cursor.top or (found[0] if found else None)
    rows = [ListRow(position, ListCursor(above=cursor.above, below=position, top=top)) for position in found[:room]]
    if len(found) > room:
        return rows, rows[-1].after if rows else cursor, False
    if cursor.below is None:
        return rows, None, False
    return rows, ListCursor(above=top), True

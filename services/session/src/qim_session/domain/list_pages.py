"""Where a page of a conversation list goes on (storage.md, "Session": the list's page token). Pure.

A list is read down to its bottom, and then up again from where something may have risen unseen. Rising late is usual:
partitions are projected independently, so a conversation may rise to a time below what was on top already, but never
below what every partition had reached. The way up misses nothing: what rises, rises ahead of it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from qim_common.ids import ConversationId

_POSITION: Final = struct.Struct(">Q16s")
_NONE: Final = bytes(_POSITION.size)
_LOWEST: Final = ConversationId(bytes(16))

CHASE_MS: Final = 10_000
"""The way up ends at what was committed this long after it began, so that pages end while messages arrive constantly.
A conversation that rose before and goes on rising for as long, always ahead of its reader, may be left out."""


class ListPosition(NamedTuple):
    """A place in a list: newest activity first, conversations of one moment in descending order of their ids.

    A tuple, because a page makes and compares a good hundred of them.
    """

    time_ms: int
    conversation: ConversationId


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the projection is, in commit time (ms).

    Attributes:
        settled_ms: what is older is in the lists, of every partition; what still comes is of this moment or later.
        newest_ms: the newest time that any partition has reached.
    """

    settled_ms: int
    newest_ms: int


class ListCursor(NamedTuple):
    """What is left of a list.

    Attributes:
        place: where the reading goes on, exclusive; None: at the top of the list, or on the way up at its bottom.
        turn: on the way down, where the way up will begin, exclusive; None before the first read.
        until_ms: on the way up, the newest time that it reads; 0 on the way down.
    """

    place: ListPosition | None = None
    turn: ListPosition | None = None
    until_ms: int = 0

    @property
    def upward(self) -> bool:
        """The bottom has been reached."""
        return self.until_ms > 0

    def pack(self) -> bytes:
        """56 bytes: place and turn, each time u64 and conversation, all zero for None; until u64."""
        return _pack(self.place) + _pack(self.turn) + self.until_ms.to_bytes(8, "big")

    @classmethod
    def unpack(cls, data: bytes) -> ListCursor:
        """Read what `pack` wrote. Raises struct.error for another length."""
        place, turn, until_ms = struct.unpack(f">{_POSITION.size}s{_POSITION.size}sQ", data)
        return cls(_unpack(place), _unpack(turn), until_ms)


def _pack(position: ListPosition | None) -> bytes:
    return _NONE if position is None else _POSITION.pack(position.time_ms, position.conversation)


def _unpack(data: bytes) -> ListPosition | None:
    if data == _NONE:
        return None
    time_ms, conversation = _POSITION.unpack(data)
    return ListPosition(time_ms, ConversationId(conversation))


class ListRow(NamedTuple):
    """One row of a page; `turn` and `until_ms` are those of the page's cursor."""

    position: ListPosition
    turn: ListPosition | None
    until_ms: int

    @property
    def after(self) -> ListCursor:
        """The cursor of a page that ends with this row."""
        return ListCursor(self.position, self.turn, self.until_ms)


def take_page(
    cursor: ListCursor, found: list[ListPosition], room: int, progress: Progress
) -> tuple[list[ListRow], ListCursor | None, bool]:
    """Turn one read into rows.

    Args:
        cursor: where the read began.
        found: up to `room` + 1 positions beyond the cursor's place, in the cursor's direction.
        room: how many rows the page still takes, from 0.
        progress: of the projection, taken before the read.

    Returns:
        The rows; the cursor after them, None when nothing is left; and whether that cursor has turned, so that the page
        may hold the beginning of the way up.
    """
    turn = cursor.turn
    if cursor.upward:
        found = [position for position in found if position.time_ms <= cursor.until_ms]
    elif turn is None and found:
        turn = min(found[0], ListPosition(progress.settled_ms, _LOWEST))
    rows = [ListRow(position, turn, cursor.until_ms) for position in found[:room]]
    if len(found) > room:
        return rows, rows[-1].after if rows else cursor, False
    if cursor.upward or cursor.place is None:
        # At the top; or a list that was one read, in which nothing can have risen unseen.
        return rows, None, False
    return rows, ListCursor(place=turn, until_ms=progress.newest_ms + CHASE_MS), True

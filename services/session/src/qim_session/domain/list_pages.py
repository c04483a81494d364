"""Where a page of a conversation list goes on (storage.md, "Session": the list's page token). Pure.

A list is read down to its bottom, newest activity first; then what rose meanwhile is swept up. Rising late is usual:
partitions are projected independently, so a conversation may rise to a time below what was on top already, but never
below what every partition had reached when the reading began. That place is the turn.

The sweep goes through the conversations above the turn in the order of their ids, which messages do not change. So it
ends however fast messages arrive, and misses nothing: a conversation that is not above the turn when the sweep comes
past its id has not moved since the reading began, and was read on the way down.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from qim_common.ids import ConversationId

_POSITION: Final = struct.Struct(">Q16s")
_CURSOR: Final = struct.Struct(f">{_POSITION.size}s{_POSITION.size}s?16s")
_NONE: Final = bytes(_POSITION.size)
_LOWEST: Final = ConversationId(bytes(16))


class ListPosition(NamedTuple):
    """A place in a list: newest activity first, conversations of one moment in descending order of their ids.

    A tuple, because a page makes and compares a good hundred of them.
    """

    time_ms: int
    conversation: ConversationId


class ListCursor(NamedTuple):
    """What is left of a list.

    Attributes:
        place: on the way down, where the reading goes on, exclusive; None: at the top.
        turn: what is above it is swept up after the bottom; None before the first read.
        swept: in the sweep, the id up to which conversations have been looked through; None on the way down.
    """

    place: ListPosition | None = None
    turn: ListPosition | None = None
    swept: ConversationId | None = None

    @property
    def sweeping(self) -> bool:
        """The bottom has been reached."""
        return self.swept is not None

    def pack(self) -> bytes:
        """65 bytes: place and turn, each time u64 and conversation, all zero for None; sweeping u8 and an id."""
        return _CURSOR.pack(_pack(self.place), _pack(self.turn), self.sweeping, self.swept or _LOWEST)

    @classmethod
    def unpack(cls, data: bytes) -> ListCursor:
        """Read what `pack` wrote. Raises struct.error for another length."""
        place, turn, sweeping, swept = _CURSOR.unpack(data)
        return cls(_unpack(place), _unpack(turn), ConversationId(swept) if sweeping else None)


def _pack(position: ListPosition | None) -> bytes:
    return _NONE if position is None else _POSITION.pack(position.time_ms, position.conversation)


def _unpack(data: bytes) -> ListPosition | None:
    if data == _NONE:
        return None
    time_ms, conversation = _POSITION.unpack(data)
    return ListPosition(time_ms, ConversationId(conversation))


class ListRow(NamedTuple):
    """One row of a page; `turn` and `sweeping` are those of the page's cursor."""

    position: ListPosition
    turn: ListPosition | None
    sweeping: bool

    @property
    def after(self) -> ListCursor:
        """The cursor of a page that ends with this row."""
        if self.sweeping:
            return ListCursor(turn=self.turn, swept=self.position.conversation)
        return ListCursor(self.position, self.turn)


def take_page(
    cursor: ListCursor, found: list[ListPosition], room: int, settled_ms: int
) -> tuple[list[ListRow], ListCursor | None, bool]:
    """Turn one read into rows.

    Args:
        cursor: where the read began.
        found: up to `room` + 1 positions: below the cursor's place, newest first; in the sweep those above its turn
            with an id above `swept`, by id.
        room: how many rows the page still takes, from 0.
        settled_ms: the commit time below which everything was in the lists, of every partition, before the read.

    Returns:
        The rows; the cursor after them, None when nothing is left; and whether that cursor has turned, so that the page
        may hold the beginning of the sweep.
    """
    turn = cursor.turn
    if turn is None and found:
        turn = min(found[0], ListPosition(settled_ms, _LOWEST))
    rows = [ListRow(position, turn, cursor.sweeping) for position in found[:room]]
    if len(found) > room:
        return rows, rows[-1].after if rows else cursor, False
    if cursor.sweeping or cursor.place is None:
        # Swept to its end; or a list that was one read, in which nothing can have risen unseen.
        return rows, None, False
    return rows, ListCursor(turn=turn, swept=_LOWEST), True

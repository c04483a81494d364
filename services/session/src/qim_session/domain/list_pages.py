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

_CURSOR: Final = struct.Struct(">BQ16sQ16s")
_TOP, _DOWN, _SWEEP = range(3)
_LOWEST: Final = ConversationId(bytes(16))


class ListPosition(NamedTuple):
    """A place in a list: newest activity first, conversations of one moment in descending order of their ids.

    A tuple, because a page makes and compares a good hundred of them.
    """

    time_ms: int
    conversation: ConversationId


class Descent(NamedTuple):
    """What is left of a list on the way down.

    Attributes:
        place: where the reading goes on, exclusive; None: at the top.
        turn: what is above it is swept up after the bottom; None before the first read.
    """

    place: ListPosition | None = None
    turn: ListPosition | None = None


class Sweep(NamedTuple):
    """What is left of a list after its bottom.

    Attributes:
        turn: what is above it is swept up.
        swept: the id up to which conversations have been looked through.
    """

    turn: ListPosition
    swept: ConversationId


ListCursor = Descent | Sweep


def pack_cursor(cursor: ListCursor) -> bytes:
    """49 bytes: the kind u8, the place (of a sweep: 0 and the id), the turn; each time u64 and conversation."""
    if isinstance(cursor, Sweep):
        return _CURSOR.pack(_SWEEP, 0, cursor.swept, *cursor.turn)
    if cursor.place is None or cursor.turn is None:
        return _CURSOR.pack(_TOP, 0, _LOWEST, 0, _LOWEST)
    return _CURSOR.pack(_DOWN, *cursor.place, *cursor.turn)


def unpack_cursor(data: bytes) -> ListCursor:
    """Read what `pack_cursor` wrote. Raises struct.error for another length."""
    kind, place_ms, place, turn_ms, turn = _CURSOR.unpack(data)
    if kind == _TOP:
        return Descent()
    above = ListPosition(turn_ms, ConversationId(turn))
    if kind == _SWEEP:
        return Sweep(above, ConversationId(place))
    return Descent(ListPosition(place_ms, ConversationId(place)), above)


class ListRow(NamedTuple):
    """One row of a page, and where a page that ends with it goes on."""

    position: ListPosition
    turn: ListPosition
    sweeping: bool

    @property
    def after(self) -> ListCursor:
        """The cursor of a page that ends with this row."""
        if self.sweeping:
            return Sweep(self.turn, self.position.conversation)
        return Descent(self.position, self.turn)


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
    sweeping = isinstance(cursor, Sweep)
    turn = cursor.turn
    if turn is None:
        if not found:
            return [], None, False
        turn = min(found[0], ListPosition(settled_ms, _LOWEST))
    rows = [ListRow(position, turn, sweeping) for position in found[:room]]
    if len(found) > room:
        return rows, rows[-1].after if rows else cursor, False
    if sweeping or cursor == Descent():
        # Swept to its end; or a list that was one read, in which nothing can have risen unseen.
        return rows, None, False
    return rows, Sweep(turn, _LOWEST), True

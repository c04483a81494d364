"""Lists with big conversations in them (docs/decisions/0012-bounded-fan-out.md). Pure.

A message to a big group moves nobody's list. Its place there is the last activity that its owner tells, and a page is
merged from those places and the projected ones. Such a place rises without the projection, yet never below what every
partition had reached when a reading began; so what `list_pages` says about missing nothing holds for them as it does
for all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from qim_session.domain.list_pages import ListCursor, ListPosition, Sweep


def merge_big(
    cursor: ListCursor, projected: Iterable[ListPosition], big: Iterable[ListPosition], *, limit: int
) -> list[ListPosition]:
    """The first `limit` places that the cursor's read is about.

    Args:
        projected: such places in their order, at least `limit` unless there are fewer; none of them of a big
            conversation.
        big: where the big conversations stand now, in any order and anywhere in the list.
    """
    meant = [place for place in big if _is_meant(cursor, place)]
    if not meant:
        return list(projected)[:limit]
    if isinstance(cursor, Sweep):
        return sorted([*projected, *meant], key=attrgetter("conversation"))[:limit]
    return sorted([*projected, *meant], reverse=True)[:limit]


def _is_meant(cursor: ListCursor, place: ListPosition) -> bool:
    if isinstance(cursor, Sweep):
        return place.conversation > cursor.swept and place > cursor.turn
    return cursor.place is None or place < cursor.place

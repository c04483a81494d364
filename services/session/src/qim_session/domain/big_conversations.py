"""Lists with big conversations in them (docs/decisions/0012-bounded-fan-out.md). Pure.

A message to a big group moves nobody's list. Its place there is the last activity that its owner tells, and a page is
merged from those places and the projected ones. Such a place rises without the projection, yet never below what every
partition had reached when a reading began, and the way up is bounded by the newest place too; so what `list_pages` says
about missing nothing holds for them as it does for all others.
"""

from __future__ import annotations

from collections.abc import Iterable

from qim_session.domain.list_pages import ListCursor, ListPosition, Progress


def merge_big(
    cursor: ListCursor, projected: Iterable[ListPosition], big: Iterable[ListPosition], *, limit: int
) -> list[ListPosition]:
    """The first `limit` places beyond the cursor's, in its direction.

    Args:
        projected: places beyond the cursor's, in its direction and order, at least `limit` unless there are fewer; none
            of them of a big conversation.
        big: where the big conversations stand now, in any order and on either side of the cursor.
    """
    beyond = [place for place in big if _beyond(cursor, place)]
    if not beyond:
        return list(projected)[:limit]
    return sorted([*projected, *beyond], reverse=not cursor.upward)[:limit]


def reached(progress: Progress, big: Iterable[ListPosition]) -> Progress:
    """The progress of a list with these places: the writer may be ahead of every partition of the projection."""
    newest = max((place.time_ms for place in big), default=0)
    return Progress(progress.settled_ms, max(progress.newest_ms, newest))


def _beyond(cursor: ListCursor, place: ListPosition) -> bool:
    if cursor.place is None:
        return True
    return place > cursor.place if cursor.upward else place < cursor.place

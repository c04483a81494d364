"""Pages of a list: nothing is missed while conversations rise."""

from __future__ import annotations

import random
import struct

import pytest
from tests.support.dispatch import group

from qim_common.ids import ConversationId
from qim_session.domain.list_pages import ListCursor, ListPosition, take_page


class Inbox:
    """A list in memory that is read as a store is read."""

    def __init__(self, size: int) -> None:
        self.times = {group(number): 100 + number for number in range(1, size + 1)}
        self.now = 1000

    def rise(self, conversation: ConversationId) -> None:
        self.now += 1
        self.times[conversation] = self.now

    def read(self, cursor: ListCursor, limit: int) -> list[ListPosition]:
        ordered = sorted((ListPosition(time, key) for key, time in self.times.items()), reverse=True)
        above, below = cursor.above, cursor.below
        between = [at for at in ordered if (above is None or at > above) and (below is None or at < below)]
        return between[:limit]

    def page(self, cursor: ListCursor, size: int) -> tuple[list[ListPosition], ListCursor | None]:
        rows: list[ListPosition] = []
        while True:
            taken, after, new_sweep = take_page(cursor, self.read(cursor, size - len(rows) + 1), size - len(rows))
            rows += [row.position for row in taken]
            if after is None or not new_sweep:
                return rows, after
            cursor = after


def test_a_list_that_fits_into_a_page_is_that_page() -> None:
    rows, after = Inbox(3).page(ListCursor(), 3)
    assert [row.conversation for row in rows] == [group(3), group(2), group(1)]
    assert after is None


def test_an_empty_list_is_one_empty_page() -> None:
    assert Inbox(0).page(ListCursor(), 5) == ([], None)


def test_a_quiet_list_comes_once_and_in_order() -> None:
    inbox, cursor, seen = Inbox(10), ListCursor(), []
    while True:
        rows, after = inbox.page(cursor, 3)
        seen += [row.conversation for row in rows]
        if after is None:
            break
        cursor = after
    assert seen == [group(number) for number in range(10, 0, -1)]


def test_what_rose_meanwhile_comes_after_the_bottom() -> None:
    inbox = Inbox(4)
    first, cursor = inbox.page(ListCursor(), 2)
    assert cursor is not None
    inbox.rise(group(1))
    rest, after = inbox.page(cursor, 2)
    assert [row.conversation for row in first + rest] == [group(4), group(3), group(2), group(1)]
    assert after is None


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_missed_while_conversations_rise(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  no secret
    inbox, cursor = Inbox(40), ListCursor()
    seen: set[ConversationId] = set()
    rises = 60
    while True:
        rows, after = inbox.page(cursor, chance.randint(1, 9))
        seen.update(row.conversation for row in rows)
        if after is None:
            break
        cursor = ListCursor.unpack(after.pack())
        for _ in range(min(rises, chance.randint(0, 6))):
            rises -= 1
            inbox.rise(group(chance.randint(1, 40)))
    assert seen == set(inbox.times)


def test_a_page_can_end_at_any_of_its_rows() -> None:
    inbox = Inbox(5)
    taken, _, _ = take_page(ListCursor(), inbox.read(ListCursor(), 4), 3)
    rest, _ = inbox.page(taken[0].after, 10)
    assert [row.conversation for row in rest] == [group(4), group(3), group(2), group(1)]


@pytest.mark.parametrize(
    "cursor",
    [
        ListCursor(),
        ListCursor(above=ListPosition(5, group(1)), below=ListPosition(9, group(2)), top=ListPosition(9, group(3))),
        ListCursor(below=ListPosition(2**53 - 1, group(2))),
    ],
)
def test_a_cursor_survives_its_token(cursor: ListCursor) -> None:
    assert ListCursor.unpack(cursor.pack()) == cursor


def test_a_token_of_another_layout_is_refused() -> None:
    with pytest.raises(struct.error):
        ListCursor.unpack(b"short")

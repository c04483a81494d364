"""Pages of a list: nothing is missed while conversations rise."""

from __future__ import annotations

import random
import struct

import pytest
from tests.support.dispatch import group

from qim_common.ids import ConversationId
from qim_session.domain.list_pages import (
    Descent,
    ListCursor,
    ListPosition,
    Sweep,
    pack_cursor,
    take_page,
    unpack_cursor,
)


class Inbox:
    """A list in memory that is read as a store is read; everything below `settled` has been projected."""

    def __init__(self, size: int) -> None:
        self.times = {group(number): 100 + number for number in range(1, size + 1)}
        self.now = self.settled = 1000

    def rise(self, conversation: ConversationId) -> None:
        self.now += 1
        self.rise_to(conversation, self.now)

    def rise_to(self, conversation: ConversationId, time_ms: int) -> None:
        assert time_ms >= self.settled
        self.now = max(self.now, time_ms)
        self.times[conversation] = max(self.times[conversation], time_ms)

    def read(self, cursor: ListCursor, limit: int) -> list[ListPosition]:
        places = [ListPosition(time, key) for key, time in self.times.items()]
        if isinstance(cursor, Sweep):
            risen = [at for at in places if at > cursor.turn and at.conversation > cursor.swept]
            return sorted(risen, key=lambda at: at.conversation)[:limit]
        return sorted((at for at in places if cursor.place is None or at < cursor.place), reverse=True)[:limit]

    def page(self, cursor: ListCursor, size: int) -> tuple[list[ListPosition], ListCursor | None]:
        rows: list[ListPosition] = []
        while True:
            room = size - len(rows)
            taken, after, turned = take_page(cursor, self.read(cursor, room + 1), room, self.settled)
            rows += [row.position for row in taken]
            if after is None or not turned:
                return rows, after
            cursor = after

    def rest(self, cursor: ListCursor | None, size: int) -> list[ConversationId]:
        """All that still comes while nothing rises."""
        rows: list[ListPosition] = []
        while cursor is not None:
            taken, cursor = self.page(cursor, size)
            cursor = None if cursor is None else unpack_cursor(pack_cursor(cursor))
            rows += taken
            assert len(rows) <= 2 * len(self.times)
        return [row.conversation for row in rows]


def test_a_list_that_fits_into_a_page_is_that_page() -> None:
    rows, after = Inbox(3).page(Descent(), 3)
    assert [row.conversation for row in rows] == [group(3), group(2), group(1)]
    assert after is None


def test_an_empty_list_is_one_empty_page() -> None:
    assert Inbox(0).page(Descent(), 5) == ([], None)


def test_a_quiet_list_comes_once_and_in_order() -> None:
    assert Inbox(10).rest(Descent(), 3) == [group(number) for number in range(10, 0, -1)]


@pytest.mark.parametrize("size", [1, 3, 9])
@pytest.mark.parametrize("settled", [0, 101, 105, 110])
def test_a_list_at_rest_comes_at_most_twice_however_far_behind_a_partition_is(settled: int, size: int) -> None:
    inbox = Inbox(10)
    inbox.settled = settled
    down = [group(number) for number in range(10, 0, -1)]
    unsettled = [group(number) for number in range(1, 11) if 100 + number >= settled]
    assert inbox.rest(Descent(), size) == down + unsettled


@pytest.mark.parametrize("time_ms", [1000, 1002, 1003, 1004, 2000])
@pytest.mark.parametrize("late", [1, 5, 9])
def test_a_conversation_that_rises_late_is_not_missed(time_ms: int, late: int) -> None:
    inbox = Inbox(10)
    for number in (6, 7, 8):
        inbox.rise(group(number))
    first, cursor = inbox.page(Descent(), 2)
    inbox.rise_to(group(late), time_ms)
    assert {row.conversation for row in first} | set(inbox.rest(cursor, 2)) == set(inbox.times)


@pytest.mark.parametrize("size", [1, 3])
def test_pages_end_and_miss_nothing_while_everything_rises_between_any_two(size: int) -> None:
    inbox = Inbox(40)
    cursor: ListCursor = Descent()
    inbox.settled = 0
    seen: set[ConversationId] = set()
    for _ in range(2 * len(inbox.times)):
        rows, after = inbox.page(cursor, size)
        seen.update(row.conversation for row in rows)
        if after is None:
            break
        cursor = unpack_cursor(pack_cursor(after))
        for number in range(1, 41):
            inbox.rise(group(number))
    else:
        pytest.fail("the pages do not end")
    assert seen == set(inbox.times)


def test_what_rose_meanwhile_comes_after_the_bottom() -> None:
    inbox = Inbox(4)
    first, cursor = inbox.page(Descent(), 2)
    assert cursor is not None
    inbox.rise(group(1))
    rest, after = inbox.page(cursor, 2)
    assert [row.conversation for row in first + rest] == [group(4), group(3), group(2), group(1)]
    assert after is None


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_missed_while_conversations_rise(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  no secret
    inbox = Inbox(40)
    cursor: ListCursor = Descent()
    seen: set[ConversationId] = set()
    rises = 200
    while True:
        rows, after = inbox.page(cursor, chance.randint(1, 9))
        seen.update(row.conversation for row in rows)
        if after is None:
            break
        cursor = unpack_cursor(pack_cursor(after))
        for _ in range(min(rises, chance.randint(0, 6))):
            rises -= 1
            inbox.rise_to(group(chance.randint(1, 40)), chance.randint(inbox.settled, inbox.now + 3))
        inbox.settled = chance.randint(inbox.settled, inbox.now)
    assert seen == set(inbox.times)


def test_a_page_can_end_at_any_of_its_rows() -> None:
    inbox = Inbox(5)
    taken, _, _ = take_page(Descent(), inbox.read(Descent(), 4), 3, inbox.settled)
    rest, _ = inbox.page(taken[0].after, 10)
    assert [row.conversation for row in rest] == [group(4), group(3), group(2), group(1)]


@pytest.mark.parametrize(
    "cursor",
    [
        Descent(),
        Descent(ListPosition(5, group(1)), ListPosition(9, group(2))),
        Descent(ListPosition(5, group(1)), ListPosition(0, ConversationId(bytes(16)))),
        Sweep(ListPosition(2**53 - 1, group(2)), ConversationId(bytes(16))),
        Sweep(ListPosition(0, ConversationId(bytes(16))), group(2)),
    ],
)
def test_a_cursor_survives_its_token(cursor: ListCursor) -> None:
    assert unpack_cursor(pack_cursor(cursor)) == cursor


def test_a_token_of_another_layout_is_refused() -> None:
    with pytest.raises(struct.error):
        unpack_cursor(b"short")

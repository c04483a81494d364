"""Where unread is counted (design.md invariant 7) and what was delivered (invariants 4, 5 and 12)."""

from __future__ import annotations

import pytest
from tests.unit.writer.people import person, stay

from qim_writer.domain.stays import Person
from qim_writer.domain.visible import (
    Line,
    delivered_spans,
    newest_delivered,
    ordinary_spans,
    unread_span,
)


@pytest.mark.parametrize(
    ("who", "line", "read", "span"),
    [
        pytest.param(person(stay(0)), Line(9), 0, (0, 9), id="never read"),
        pytest.param(person(stay(0)), Line(9), 5, (5, 9), id="above the cursor"),
        pytest.param(person(stay(0)), Line(9), 9, (9, 9), id="all read"),
        pytest.param(person(stay(0)), Line(9), 9999, (9, 9), id="a cursor beyond the head is clamped"),
        pytest.param(person(stay(50, shows_from=0)), Line(60), 0, (50, 60), id="a newcomer's backlog never counts"),
        pytest.param(person(stay(50)), Line(60), 55, (55, 60), id="a newcomer who read"),
        pytest.param(person(stay(0, 6)), Line(26), 0, (0, 5), id="a leaver's ends before the leave"),
        pytest.param(person(stay(0, 6)), Line(26), 26, (5, 5), id="a leaver's cursor is clamped"),
        pytest.param(person(stay(0, 6)), Line(26), 3, (3, 5), id="a leaver who read a part"),
        pytest.param(
            person(stay(0, 8), stay(11, keeps=True)), Line(14), 0, (11, 14), id="from the newest join, not the first"
        ),
        pytest.param(person(stay(0, 5, revoked=True)), Line(9), 0, (4, 4), id="revoked: nothing"),
        pytest.param(
            person(stay(0, 3), stay(3, 7, keeps=True, revoked=True)), Line(7), 0, (6, 6), id="newest revoked: nothing"
        ),
        pytest.param(person(stay(0, 3, revoked=True), stay(3)), Line(7), 0, (3, 7), id="an earlier one revoked"),
        pytest.param(person(stay(0), cleared=7), Line(9), 2, (7, 9), id="above the own clear point"),
        pytest.param(person(stay(0), cleared=7), Line(9), 8, (8, 9), id="the cursor above the clear point"),
        pytest.param(person(stay(0)), Line(9, floor=8), 5, (8, 9), id="above the floor"),
        pytest.param(person(stay(0)), Line(0), 0, (0, 0), id="no message yet"),
    ],
)
def test_unread_is_counted_between_these_seqs(who: Person, line: Line, read: int, span: tuple[int, int]) -> None:
    found = unread_span(who, line, read)
    assert (found.lower, found.upper) == span


def test_a_floor_above_a_leavers_range_leaves_nothing_to_count() -> None:
    found = unread_span(person(stay(0, 5)), Line(9, floor=7), 0)
    assert found.upper <= found.lower


@pytest.mark.parametrize(
    ("who", "head", "spans"),
    [
        (person(stay(0)), 0, []),
        (person(stay(0)), 9, [(1, 9)]),
        (person(stay(36, shows_from=6)), 40, [(37, 40)]),
        (person(stay(0, 5)), 9, [(1, 5)]),
        (person(stay(0, 1)), 9, [(1, 1)]),
        (person(stay(0, 5, revoked=True)), 9, [(1, 5)]),
        (person(stay(0, 16), stay(79)), 85, [(1, 16), (80, 85)]),
        (person(stay(0, 4), stay(4, 6), stay(6)), 8, [(1, 4), (5, 6), (7, 8)]),
        (person(stay(0), cleared=9), 9, [(1, 9)]),
    ],
)
def test_delivered_is_what_came_during_the_stays_and_the_leavers_own_event(
    who: Person, head: int, spans: list[tuple[int, int]]
) -> None:
    assert list(delivered_spans(who, Line(head))) == spans


def test_delivery_is_not_undone_by_a_floor() -> None:
    assert list(delivered_spans(person(stay(0)), Line(9, floor=9))) == [(1, 9)]


@pytest.mark.parametrize(
    ("who", "head", "broadcast", "newest"),
    [
        pytest.param(person(stay(0)), 0, 0, 0, id="a group that nobody has written in"),
        pytest.param(person(stay(0)), 9, 7, 7, id="a member from the start"),
        pytest.param(person(stay(7, versions=(2, 0))), 8, 8, 8, id="the own join, which was broadcast"),
        pytest.param(person(stay(7, versions=(2, 0))), 8, 7, 8, id="the own join, which concerned nobody else"),
        pytest.param(person(stay(7, versions=(2, 0))), 12, 12, 12, id="what came after the join"),
        pytest.param(person(stay(0, 5, versions=(1, 2))), 9, 9, 5, id="the own leave"),
        pytest.param(person(stay(0, 5, versions=(1, 2)), stay(8, versions=(3, 0))), 9, 8, 9, id="the newest stay"),
    ],
)
def test_the_newest_seq_that_was_delivered(who: Person, head: int, broadcast: int, newest: int) -> None:
    assert newest_delivered(who, Line(head), broadcast) == newest


FIRST, AGAIN = stay(0, 16, versions=(1, 4)), stay(79, versions=(9, 0))


@pytest.mark.parametrize(
    ("who", "head", "after", "spans"),
    [
        pytest.param(person(stay(0)), 9, 9, [], id="nothing came since"),
        pytest.param(person(stay(0)), 9, 12, [], id="a seq beyond the head"),
        pytest.param(person(stay(0)), 9, 4, [(5, 9)], id="what came since"),
        pytest.param(person(stay(0, 5, versions=(1, 2))), 9, 5, [], id="hidden after the own leave"),
        pytest.param(person(stay(0, 5, versions=(1, 2))), 9, 4, [], id="the own leave is not ordinary"),
        pytest.param(person(stay(0, 5, versions=(1, 2))), 9, 3, [(4, 4)], id="what came before the leave"),
        pytest.param(person(FIRST, AGAIN), 80, 16, [], id="the own return is not ordinary"),
        pytest.param(person(FIRST, AGAIN), 85, 16, [(81, 85)], id="what came after the return"),
        pytest.param(person(FIRST, AGAIN), 85, 10, [(11, 15), (81, 85)], id="in both stays, not in between"),
        pytest.param(person(FIRST, AGAIN), 85, 81, [(82, 85)], id="hidden in the second stay"),
        pytest.param(person(stay(0), cleared=9), 9, 4, [(5, 9)], id="a clear point undoes no delivery"),
        pytest.param(person(stay(0, 5, revoked=True, versions=(1, 2))), 9, 3, [(4, 4)], id="a revoked stay was one"),
    ],
)
def test_ordinary_messages_that_were_delivered_after_a_seq_lie_in_these_spans(
    who: Person, head: int, after: int, spans: list[tuple[int, int]]
) -> None:
    assert ordinary_spans(who, Line(head), after) == spans


def test_a_floor_undoes_no_delivery_of_ordinary_messages() -> None:
    assert ordinary_spans(person(stay(0)), Line(9, floor=9), 4) == [(5, 9)]

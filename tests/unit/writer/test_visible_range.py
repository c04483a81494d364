"""What a person may read: every policy and every way in and out (design.md, "Decisions between the sources")."""

from __future__ import annotations

import pytest
from tests.unit.writer.people import person, stay

from qim_writer.domain.stays import Person
from qim_writer.domain.visible import Line, Visible, may_read, upper_bound, visible_range

Ranges = list[tuple[int, int]]


@pytest.mark.parametrize(
    ("who", "line", "ranges", "earliest"),
    [
        pytest.param(person(stay(0)), Line(0), [], 1, id="an initial member of a group without messages"),
        pytest.param(person(stay(0)), Line(9), [(1, 9)], 1, id="an initial member sees everything"),
        pytest.param(person(stay(36)), Line(37), [(37, 37)], 37, id="the join itself is visible"),
        pytest.param(person(stay(36)), Line(100), [(37, 100)], 37, id="SINCE_JOIN"),
        pytest.param(person(stay(4836, shows_from=4736)), Line(4900), [(4737, 4900)], 4737, id="LAST_N(100), J=4837"),
        pytest.param(person(stay(4, shows_from=0)), Line(5), [(1, 5)], 1, id="LAST_N(10) in a shorter group"),
        pytest.param(person(stay(50, shows_from=0)), Line(51), [(1, 51)], 1, id="ALL"),
        pytest.param(person(stay(0, 16)), Line(80), [(1, 15)], 1, id="a leaver reads up to the leave"),
        pytest.param(person(stay(0, 1)), Line(9), [], 1, id="left before the first message"),
        pytest.param(person(stay(36, 38)), Line(80), [(37, 37)], 37, id="joined and left with no message between"),
        pytest.param(person(stay(36, 80, shows_from=30)), Line(90), [(31, 79)], 31, id="LAST_N, then left"),
        pytest.param(person(stay(0, 16, revoked=True)), Line(80), [], 1, id="a revoked leaver sees nothing"),
        pytest.param(person(stay(0, 16), stay(79)), Line(100), [(80, 100)], 80, id="LATEST_STAY after a rejoin"),
        pytest.param(
            person(stay(0, 16), stay(79, keeps=True)), Line(85), [(1, 15), (80, 85)], 1, id="ALL_STAYS after a rejoin"
        ),
        pytest.param(
            person(stay(0, 4), stay(4, 6, keeps=True), stay(6, keeps=True)),
            Line(8),
            [(1, 3), (5, 5), (7, 8)],
            1,
            id="ALL_STAYS, two leaves and joins without a message between",
        ),
        pytest.param(
            person(stay(0, 4), stay(9, 14), stay(19, keeps=True)),
            Line(25),
            [(10, 13), (20, 25)],
            10,
            id="the chain ends at a stay that does not keep earlier ones",
        ),
        pytest.param(
            person(stay(0, 4), stay(9, 14, keeps=True), stay(19)),
            Line(25),
            [(20, 25)],
            20,
            id="what earlier stays keep does not help a later one that keeps none",
        ),
        pytest.param(
            person(stay(0, 3), stay(3, 7, keeps=True, revoked=True)),
            Line(7),
            [(1, 2)],
            1,
            id="the chain passes through a revoked newest stay",
        ),
        pytest.param(
            person(stay(0, 3), stay(3, 7, keeps=True, revoked=True), stay(7, keeps=True)),
            Line(8),
            [(1, 2), (8, 8)],
            1,
            id="the chain passes through a revoked stay in the middle",
        ),
        pytest.param(
            person(stay(0, 3), stay(3, 7, revoked=True), stay(7, keeps=True)),
            Line(8),
            [(8, 8)],
            8,
            id="a revoked stay that keeps none ends the chain",
        ),
        pytest.param(
            person(stay(0, 5, revoked=True), stay(5, keeps=True)), Line(7), [(6, 7)], 6, id="revoked stays revoked"
        ),
        pytest.param(
            person(stay(0, 4, revoked=True), stay(4, shows_from=0)),
            Line(5),
            [(1, 5)],
            1,
            id="ALL shows a returning person what any newcomer sees, also over a revoked stretch",
        ),
        pytest.param(
            person(stay(0, 11), stay(19, shows_from=14)),
            Line(20),
            [(15, 20)],
            15,
            id="LAST_N reaches into the absence",
        ),
        pytest.param(
            person(stay(0, 11), stay(19, shows_from=5, keeps=True)),
            Line(20),
            [(1, 20)],
            1,
            id="a later stay that reaches into an earlier one makes one range",
        ),
        pytest.param(
            person(stay(0, 11), stay(19, shows_from=10, keeps=True)),
            Line(20),
            [(1, 20)],
            1,
            id="ranges that touch make one",
        ),
        pytest.param(
            person(stay(0, 11), stay(19, shows_from=11, keeps=True)),
            Line(20),
            [(1, 10), (12, 20)],
            1,
            id="one seq between the ranges keeps them apart",
        ),
        pytest.param(
            person(stay(2, 5), stay(9, 12, keeps=True), stay(19, shows_from=0, keeps=True)),
            Line(20),
            [(1, 20)],
            1,
            id="a later stay that reaches behind several earlier ones",
        ),
        pytest.param(person(stay(0), cleared=40), Line(40), [], 41, id="everything cleared"),
        pytest.param(person(stay(0), cleared=7), Line(10), [(8, 10)], 8, id="cleared up to a seq"),
        pytest.param(
            person(stay(0, 43), stay(43, keeps=True), cleared=40),
            Line(44),
            [(41, 42), (44, 44)],
            41,
            id="a clear point holds after a rejoin",
        ),
        pytest.param(person(stay(0, 43), cleared=42), Line(60), [], 43, id="a leaver who cleared everything"),
        pytest.param(person(stay(0)), Line(10, floor=8), [(9, 10)], 9, id="the floor binds everyone"),
        pytest.param(person(stay(0)), Line(10, floor=10), [], 11, id="the floor at the head"),
        pytest.param(person(stay(0, 5)), Line(9, floor=7), [], 5, id="the floor above a leaver's range"),
        pytest.param(person(stay(0, 5)), Line(9, floor=4), [], 5, id="the floor at the end of a leaver's range"),
        pytest.param(person(stay(0, 5)), Line(9, floor=3), [(4, 4)], 4, id="the floor inside a leaver's range"),
        pytest.param(person(stay(0), cleared=5), Line(10, floor=8), [(9, 10)], 9, id="the floor above the clear point"),
        pytest.param(person(stay(0), cleared=8), Line(10, floor=5), [(9, 10)], 9, id="the clear point above the floor"),
        pytest.param(
            person(stay(0, 6), stay(12, keeps=True)),
            Line(13, floor=9),
            [(13, 13)],
            13,
            id="a floor inside the gap: earliest is the smallest readable seq",
        ),
        pytest.param(person(stay(36, shows_from=6)), Line(40, floor=20), [(21, 40)], 21, id="the floor cuts a backlog"),
    ],
)
def test_what_is_visible_and_what_comes_first(who: Person, line: Line, ranges: Ranges, earliest: int) -> None:
    visible = visible_range(who, line)
    assert list(visible.ranges) == ranges
    assert visible.earliest == earliest
    assert visible.head == (ranges[-1][1] if ranges else 0)


@pytest.mark.parametrize(
    ("who", "allowed"),
    [
        (person(stay(0)), True),
        (person(stay(0, 5)), True),
        (person(stay(0, 5, revoked=True)), False),
        (person(stay(0, 5, revoked=True), stay(5)), True),
        (person(stay(0, 5), stay(5, 8, revoked=True)), False),
        (person(stay(0, 5), stay(5, 8, keeps=True, revoked=True)), True),
        (person(stay(0, 5, revoked=True), stay(5, 8, keeps=True, revoked=True)), False),
        (person(stay(0, 2), stay(2, 5, revoked=True), stay(5, 8, keeps=True, revoked=True)), False),
        (person(stay(0), cleared=99), True),
    ],
)
def test_reading_is_open_to_whom_some_counting_unrevoked_stay_is_left(who: Person, allowed: bool) -> None:
    assert may_read(who) is allowed


def test_the_upper_bound_is_the_head_or_the_last_seq_before_the_leave() -> None:
    assert upper_bound(person(stay(0)), Line(9, floor=99)) == 9
    assert upper_bound(person(stay(0, 5)), Line(9)) == 4
    assert upper_bound(person(stay(0, 5), stay(7)), Line(9)) == 9


SPREAD = Visible(((3, 5), (9, 9), (12, 20)), 3)


@pytest.mark.parametrize(
    ("seq", "inside"),
    [(0, False), (2, False), (3, True), (5, True), (6, False), (9, True), (10, False), (20, True), (21, False)],
)
def test_a_seq_is_in_the_range_or_not(seq: int, inside: bool) -> None:
    assert (seq in SPREAD) is inside


@pytest.mark.parametrize(
    ("from_seq", "limit", "seqs"),
    [
        (0, 3, [20, 19, 18]),
        (0, 100, [20, 19, 18, 17, 16, 15, 14, 13, 12, 9, 5, 4, 3]),
        (13, 4, [13, 12, 9, 5]),
        (11, 2, [9, 5]),
        (9, 1, [9]),
        (3, 5, [3]),
        (2, 5, []),
        (999, 2, [20, 19]),
    ],
)
def test_older_pages_go_down_over_the_gaps(from_seq: int, limit: int, seqs: list[int]) -> None:
    assert SPREAD.older(from_seq, limit) == seqs


@pytest.mark.parametrize(
    ("from_seq", "limit", "seqs"),
    [
        (0, 3, [3, 4, 5]),
        (1, 5, [3, 4, 5, 9, 12]),
        (4, 3, [4, 5, 9]),
        (6, 1, [9]),
        (10, 2, [12, 13]),
        (20, 5, [20]),
        (21, 5, []),
        (0, 100, [3, 4, 5, 9, *range(12, 21)]),
    ],
)
def test_newer_pages_go_up_over_the_gaps(from_seq: int, limit: int, seqs: list[int]) -> None:
    assert SPREAD.newer(from_seq, limit) == seqs


def test_pages_of_nothing_are_empty() -> None:
    nothing = Visible((), 7)
    assert nothing.older(0, 10) == nothing.newer(0, 10) == []
    assert 7 not in nothing

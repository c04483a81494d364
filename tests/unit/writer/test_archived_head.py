"""Ranges where the head is the archived one, and stays begin or end above it (ack level archived).

Whatever the head, each answer is that of the whole line cut at it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from tests.unit.writer.people import person, stay

from qim_writer.domain.stays import Person
from qim_writer.domain.visible import (
    Line,
    delivered_spans,
    newest_delivered,
    ordinary_spans,
    unread_span,
    upper_bound,
    visible_range,
)

SEQS = 40


def random_person(choose: random.Random) -> Person:
    """Stays in turn, with joins and leaves at distinct seqs; the first may be that of an initial member."""
    borders = sorted(choose.sample(range(1, SEQS + 1), choose.randint(1, 6)))
    stays = []
    version = 1
    if choose.random() < 0.5:
        stays.append([0, 0, 1, 0])
    for seq in borders:
        version += choose.randint(1, 3)
        if stays and not stays[-1][1]:
            stays[-1][1], stays[-1][3] = seq, version
        else:
            stays.append([seq - 1, 0, version, 0])
    made = [
        stay(
            joined,
            left,
            shows_from=max(joined - choose.choice((0, 0, 3, SEQS)), 0),
            keeps=choose.random() < 0.5,
            revoked=bool(left) and choose.random() < 0.2,
            versions=(began, ended),
        )
        for joined, left, began, ended in stays
    ]
    return person(*made, cleared=choose.choice((0, 0, choose.randint(0, SEQS))))


def seqs(spans: Iterable[tuple[int, int]]) -> set[int]:
    return {seq for first, last in spans for seq in range(first, last + 1)}


@pytest.mark.parametrize("seed", range(200))
def test_every_answer_is_the_whole_lines_cut_at_the_head(seed: int) -> None:
    choose = random.Random(seed)  # noqa: S311  no secret
    who = random_person(choose)
    floor = choose.choice((0, choose.randint(0, SEQS)))
    whole = Line(SEQS, floor)
    concerned = {seq for seq in range(1, SEQS + 1) if choose.random() < 0.3}
    own = {border for one in who.stays for border in (one.joined_at + 1 if one.began_version > 1 else 0, one.left_at)}
    delivered = {seq for seq in seqs(delivered_spans(who, whole)) if seq not in concerned or seq in own}
    for head in range(SEQS + 1):
        line = Line(head, floor)
        upto = set(range(1, head + 1))
        assert seqs(visible_range(who, line).ranges) == seqs(visible_range(who, whole).ranges) & upto
        assert seqs(delivered_spans(who, line)) == seqs(delivered_spans(who, whole)) & upto
        after = choose.randint(0, SEQS)
        assert seqs(ordinary_spans(who, line, after)) == seqs(ordinary_spans(who, whole, after)) & upto
        assert upper_bound(who, line) == min(upper_bound(who, whole), head)
        span, of_whole = unread_span(who, line, after), unread_span(who, whole, after)
        assert seqs([(span.lower + 1, span.upper)]) == seqs([(of_whole.lower + 1, of_whole.upper)]) & upto
        broadcast = max((seq for seq in upto if seq not in concerned), default=0)
        assert newest_delivered(who, line, broadcast) == max(delivered & upto, default=0)


@pytest.mark.parametrize(
    ("who", "head", "ranges", "earliest", "newest"),
    [
        pytest.param(person(stay(7, versions=(2, 0))), 5, [], 8, 0, id="a join above the head"),
        pytest.param(person(stay(7, shows_from=2, versions=(2, 0))), 5, [(3, 5)], 3, 0, id="and what it shows"),
        pytest.param(person(stay(0, 7, versions=(1, 2))), 5, [(1, 5)], 1, 5, id="a leave above the head"),
        pytest.param(person(stay(0, 6, versions=(1, 2))), 5, [(1, 5)], 1, 5, id="a leave right above the head"),
        pytest.param(
            person(stay(0, 3, versions=(1, 2)), stay(7, versions=(3, 0))), 5, [], 8, 3, id="a return above the head"
        ),
        pytest.param(person(stay(0), cleared=8), 5, [], 9, 5, id="a clear point above the head"),
    ],
)
def test_what_lies_above_the_head_is_not_there_yet(
    who: Person, head: int, ranges: list[tuple[int, int]], earliest: int, newest: int
) -> None:
    visible = visible_range(who, Line(head))
    assert (list(visible.ranges), visible.earliest) == (ranges, earliest)
    assert newest_delivered(who, Line(head), head) == newest

"""The visible range against its rule, seq by seq, for any life in a group."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.writer.people import person, stay

from qim_writer.domain.stays import Person, Stay
from qim_writer.domain.visible import Line, counting_stays, may_read, visible_range


@st.composite
def lives(draw: st.DrawFn) -> tuple[Person, Line]:
    """Somebody with up to five stays, and a line that is at least as long."""
    stays: list[Stay] = []
    at = 0
    for number in range(draw(st.integers(1, 5))):
        joined = at if number == 0 and draw(st.booleans()) else at + draw(st.integers(0, 6))
        left = joined + 1 + draw(st.integers(0, 6))
        stays.append(
            stay(
                joined,
                left + (joined > 0),
                shows_from=draw(st.integers(0, joined)),
                keeps=draw(st.booleans()),
                revoked=draw(st.booleans()),
            )
        )
        at = left + (joined > 0)
    if draw(st.booleans()):
        last = stays.pop()
        stays.append(stay(last.joined_at, shows_from=last.history_from, keeps=last.keeps_earlier))
        at = last.joined_at + 1
    head = at + draw(st.integers(0, 6))
    return person(*stays, cleared=draw(st.integers(0, head))), Line(head, draw(st.integers(0, head)))


def _readable_one_by_one(who: Person, line: Line) -> list[int]:
    """The rule read out seq by seq, without ranges."""
    shows = [True]
    for later in reversed(who.stays[1:]):
        shows.insert(0, shows[0] and later.keeps_earlier)
    return [
        seq
        for seq in range(1, line.head + 1)
        if seq > who.own_clear
        and seq > line.floor
        and any(
            counts and not each.revoked and each.history_from < seq and (not each.left_at or seq < each.left_at)
            for counts, each in zip(shows, who.stays, strict=True)
        )
    ]


@given(lives())
def test_ranges_agree_with_the_rule_seq_by_seq(life: tuple[Person, Line]) -> None:
    who, line = life
    visible = visible_range(who, line)
    expected = _readable_one_by_one(who, line)
    assert [seq for first, last in visible.ranges for seq in range(first, last + 1)] == expected
    assert all(later[0] > earlier[1] + 1 for earlier, later in zip(visible.ranges, visible.ranges[1:], strict=False))
    assert [seq for seq in range(line.head + 2) if seq in visible] == expected
    assert visible.newer(0, 1000) == expected
    assert visible.older(0, 1000) == expected[::-1]
    if expected:
        assert visible.earliest == expected[0]
        assert may_read(who)
    else:
        assert visible.earliest <= (who.newest.left_at or line.head + 1)


@given(lives(), st.integers(1, 4), st.booleans())
def test_pages_put_together_are_the_whole(life: tuple[Person, Line], limit: int, older: bool) -> None:
    who, line = life
    visible = visible_range(who, line)
    whole = visible.older(0, 1000) if older else visible.newer(0, 1000)
    seqs: list[int] = []
    page = visible.older(0, limit) if older else visible.newer(0, limit)
    while page:
        assert len(page) <= limit
        seqs += page
        beyond = page[-1] - 1 if older else page[-1] + 1
        page = visible.older(beyond, limit) if older and beyond else [] if older else visible.newer(beyond, limit)
    assert seqs == whole


@given(lives())
def test_the_newest_stay_always_counts_and_the_counting_ones_are_the_last_ones(life: tuple[Person, Line]) -> None:
    who, _ = life
    counting = counting_stays(who)
    assert counting
    assert counting == who.stays[-len(counting) :]
    alone = who._replace(stays=(who.newest._replace(keeps_earlier=False),))
    assert len(counting_stays(alone)) == 1

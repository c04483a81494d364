"""What of a stretch of seqs a mailbox holds, and with or without bodies (design.md invariant 12)."""

from __future__ import annotations

import pytest

from qim_common.records import Audience
from qim_writer.domain.delivery import ControlEvent, PageOutline, Stretch, delivered_stretches, within
from qim_writer.domain.visible import Visible

OWN = frozenset({1, 7})


def foreign(seq: int) -> ControlEvent:
    """An event that reached only the people it is about, among whom the person is not."""
    return ControlEvent(seq, 1000 + seq, Audience.CONCERNED)


def broadcast(seq: int) -> ControlEvent:
    """Somebody else's event that everybody received."""
    return ControlEvent(seq, 1000 + seq, Audience.BROADCAST)


def own(seq: int, audience: Audience = Audience.CONCERNED) -> ControlEvent:
    """The person's own event."""
    return ControlEvent(seq, 7, audience)


def read(first: int, last: int = 0) -> Stretch:
    return Stretch(first, last or first, readable=True)


def hidden(first: int, last: int = 0) -> Stretch:
    return Stretch(first, last or first, readable=False)


def seeing(*ranges: tuple[int, int]) -> Visible:
    return Visible(ranges, ranges[0][0] if ranges else 1)


CASES = {
    "everything visible": ((1, 9), [], [(1, 9)], [read(1, 9)]),
    "nothing visible": ((1, 9), [], [], [hidden(1, 9)]),
    "a floor inside": ((1, 9), [], [(5, 20)], [hidden(1, 4), read(5, 9)]),
    "a visible range that ends before": ((5, 9), [], [(1, 4)], [hidden(5, 9)]),
    "a visible range that begins after": ((5, 9), [], [(10, 12)], [hidden(5, 9)]),
    "ranges with a gap": (
        (1, 9),
        [],
        [(2, 3), (6, 7)],
        [hidden(1), read(2, 3), hidden(4, 5), read(6, 7), hidden(8, 9)],
    ),
    "a foreign event was not delivered": ((1, 9), [foreign(4)], [(1, 9)], [read(1, 3), read(5, 9)]),
    "foreign events split what is withheld": (
        (1, 9),
        [foreign(1), foreign(4), foreign(5), foreign(9)],
        [],
        [hidden(2, 3), hidden(6, 8)],
    ),
    "only foreign events": ((4, 5), [foreign(4), foreign(5)], [], []),
    "somebody's broadcast event is like a message": ((1, 9), [broadcast(4)], [(3, 9)], [hidden(1, 2), read(3, 9)]),
    "the own event shows its body": ((1, 9), [own(9)], [], [hidden(1, 8), read(9)]),
    "also where it was broadcast": ((1, 9), [own(1, Audience.BROADCAST)], [], [read(1), hidden(2, 9)]),
    "a million seqs are one stretch": (
        (1, 1_000_010),
        [],
        [(1_000_001, 1_000_010)],
        [hidden(1, 1_000_000), read(1_000_001, 1_000_010)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_stretches(name: str) -> None:
    (first, last), events, ranges, expected = CASES[name]
    assert list(delivered_stretches(first, last, events, OWN, seeing(*ranges))) == expected


def outline(room: int, *stretches: Stretch) -> PageOutline:
    """A page with these offered to it until one does not fit."""
    page = PageOutline(room=room, upto=0)
    all(page.add(stretch) for stretch in stretches)
    return page


PAGES = {
    "a message takes a place each": (5, [read(1, 5)], [read(1, 5)], 5, False),
    "what does not fit is left": (3, [read(1, 5)], [read(1, 3)], 3, True),
    "a withheld stretch takes one place": (
        2,
        [hidden(1, 1000), read(1001, 1009)],
        [hidden(1, 1000), read(1001)],
        1001,
        True,
    ),
    "no place for a withheld stretch": (1, [read(1), hidden(2, 9)], [read(1)], 1, True),
    "a withheld stretch grows in a full page": (1, [hidden(1, 4), hidden(5, 9)], [hidden(1, 9)], 9, False),
    "but not over what was not delivered": (1, [hidden(1, 4), hidden(6, 9)], [hidden(1, 4)], 4, True),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_takes_what_fits(name: str) -> None:
    room, offered, taken, upto, more = PAGES[name]
    page = outline(room, *offered)
    assert (page.stretches, page.upto, page.more) == (taken, upto, more)


def test_the_events_within_a_part_of_the_line_are_found() -> None:
    events = [foreign(seq) for seq in (2, 4, 6)]
    assert [event.seq for event in within(events, 2, 4)] == [2, 4]
    assert [event.seq for event in within(events, 3, 3)] == []
    assert [event.seq for event in within(events, 5, 99)] == [6]

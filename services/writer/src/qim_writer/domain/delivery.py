"""What a person's mailbox holds of one conversation, as stretches of seqs (design.md invariant 12). Pure.

Everything delivered is named: as a message where the person may see its body now, or where it is the person's own
membership event, else as withheld. Whole stretches are decided at once, so that a floor at seq 1,000,000 costs as much
as one at seq 10.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from qim_common.records import Audience
from qim_writer.domain.visible import Visible


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """What is kept of a control message when its record is gone: the version that it made, and whom it reached."""

    seq: int
    version: int
    audience: Audience


@dataclass(frozen=True, slots=True)
class Stretch:
    """Delivered seqs without a gap, both ends included; `readable`: they come with their bodies, else withheld."""

    first: int
    last: int
    readable: bool


@dataclass(slots=True)
class PageOutline:
    """The stretches of one page of a mailbox as they are found. A message takes one place, a withheld stretch too.

    Attributes:
        room: places that are left.
        upto: everything delivered up to this seq is in the page, or was in an earlier one.
        more: something is left for the next page.
    """

    room: int
    upto: int
    more: bool = False
    stretches: list[Stretch] = field(default_factory=list)

    def add(self, stretch: Stretch) -> bool:
        """Put in what fits of a stretch behind all others; False, and `more`, when some of it does not."""
        before = self.stretches[-1] if self.stretches else None
        if stretch.readable:
            last = min(stretch.last, stretch.first + self.room - 1)
        elif before is not None and not before.readable and before.last == stretch.first - 1:
            self.stretches[-1] = Stretch(before.first, stretch.last, readable=False)
            self.upto = stretch.last
            return True
        else:
            last = stretch.last if self.room else stretch.first - 1
        if last >= stretch.first:
            self.stretches.append(Stretch(stretch.first, last, stretch.readable))
            self.room -= last - stretch.first + 1 if stretch.readable else 1
            self.upto = last
        self.more = last < stretch.last
        return not self.more


def within(events: Sequence[ControlEvent], first: int, last: int) -> Sequence[ControlEvent]:
    """Those of ascending `events` that lie in `[first, last]`."""
    start = bisect_left(events, first, key=_seq_of)
    return events[start : bisect_right(events, last, lo=start, key=_seq_of)]


def _seq_of(event: ControlEvent) -> int:
    return event.seq


def delivered_stretches(
    first: int, last: int, events: Sequence[ControlEvent], own: frozenset[int], visible: Visible
) -> Iterator[Stretch]:
    """What of `[first, last]`, a part of one stay, is in the mailbox: ascending stretches.

    Args:
        first, last: both ends included; the person was a member throughout, or left with `last`.
        events: all control messages in it, ascending.
        own: the versions with which the person's stays began or ended.
        visible: what the person may read now.
    """
    at = first
    for event in events:
        concerned = event.version in own
        if event.audience is Audience.BROADCAST and not concerned:
            continue
        yield from _cut(at, event.seq - 1, visible)
        if concerned:
            yield Stretch(event.seq, event.seq, readable=True)
        at = event.seq + 1
    yield from _cut(at, last, visible)


def _cut(first: int, last: int, visible: Visible) -> Iterator[Stretch]:
    """`[first, last]` in readable and withheld stretches; nothing when it is empty."""
    ranges = visible.ranges
    at = max(bisect_right(ranges, (first, float("inf"))) - 1, 0)
    while first <= last and at < len(ranges):
        low, high = ranges[at]
        at += 1
        if high < first:
            continue
        if low > last:
            break
        if first < low:
            yield Stretch(first, low - 1, readable=False)
        yield Stretch(max(first, low), min(high, last), readable=True)
        first = high + 1
    if first <= last:
        yield Stretch(first, last, readable=False)

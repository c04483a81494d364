"""The one function for the visible range (design.md invariant 6), and what follows from it: the earliest seq, the head,
unread and what was delivered. Every read path uses these and nothing else."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from qim_writer.domain.stays import Person, Stay


class Line(NamedTuple):
    """What the conversation itself adds: its head and the group's floor (at or below it nobody reads).

    The head is the archived one at the ack level `archived`: a stay may then begin or end above it.
    """

    head: int
    floor: int = 0


@dataclass(frozen=True, slots=True)
class Visible:
    """What a person may read now: ascending, disjoint ranges of seqs, both ends included."""

    ranges: tuple[tuple[int, int], ...]
    earliest: int
    """`earliest_available_conversation_seq` (design.md invariant 9)."""

    @property
    def head(self) -> int:
        """The newest visible seq; 0 when there is none."""
        return self.ranges[-1][1] if self.ranges else 0

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self.ranges, (seq, float("inf"))) - 1
        return at >= 0 and seq <= self.ranges[at][1]

    def older(self, from_seq: int, limit: int) -> list[int]:
        """At most `limit` visible seqs at or below `from_seq` (0: from the head), descending."""
        seqs: list[int] = []
        for first, last in reversed(self.ranges):
            top = min(last, from_seq) if from_seq else last
            seqs.extend(range(top, max(first, top - (limit - len(seqs)) + 1) - 1, -1))
            if len(seqs) == limit:
                break
        return seqs

    def newer(self, from_seq: int, limit: int) -> list[int]:
        """At most `limit` visible seqs at or above `from_seq`, ascending."""
        seqs: list[int] = []
        for first, last in self.ranges:
            bottom = max(first, from_seq)
            seqs.extend(range(bottom, min(last, bottom + limit - len(seqs) - 1) + 1))
            if len(seqs) == limit:
                break
        return seqs


def counting_stays(person: Person) -> tuple[Stay, ...]:
    """The stays that count, oldest first: the newest, and going back from it each earlier one as long as the later one
    keeps earlier ones. The chain passes through a revoked stay, which itself shows nothing."""
    stays = person.stays
    first = len(stays) - 1
    while first > 0 and stays[first].keeps_earlier:
        first -= 1
    return stays[first:]


def may_read(person: Person) -> bool:
    """Whether history, member list, MarkRead and ClearHistory are open: some counting stay is not revoked."""
    return any(not stay.revoked for stay in counting_stays(person))


def upper_bound(person: Person, line: Line) -> int:
    """How far a person's line goes: the head, or the last seq before the leave."""
    return _upper(person.newest, line)


def _upper(stay: Stay, line: Line) -> int:
    return min(stay.left_at - 1, line.head) if stay.left_at else line.head


def visible_range(person: Person, line: Line) -> Visible:
    """What `person` may read: the counting, unrevoked stays, cut by the own clear point and the group's floor."""
    cut = max(person.own_clear, line.floor)
    ranges: list[tuple[int, int]] = []
    lowest: int | None = None
    for stay in counting_stays(person):
        if stay.revoked:
            continue
        lowest = stay.history_from if lowest is None else min(lowest, stay.history_from)
        first = max(stay.history_from, cut) + 1
        last = _upper(stay, line)
        if first > last:
            continue
        if ranges and first <= ranges[-1][1] + 1:
            # A later stay that shows what came before its join reaches into, or below, an earlier one.
            while ranges and first <= ranges[-1][1] + 1:
                first = min(first, ranges[-1][0])
                last = max(last, ranges[-1][1])
                ranges.pop()
        ranges.append((first, last))
    return Visible(tuple(ranges), _earliest(person, cut, ranges, lowest))


def _earliest(person: Person, cut: int, ranges: list[tuple[int, int]], lowest: int | None) -> int:
    if ranges:
        return ranges[0][0]
    newest = person.newest
    earliest = max(lowest if lowest is not None else newest.history_from, cut) + 1
    return min(earliest, newest.left_at) if newest.left_at else earliest


class UnreadSpan(NamedTuple):
    """Unread are the ordinary messages of others in `(lower, upper]`; empty when upper <= lower."""

    lower: int
    upper: int


def unread_span(person: Person, line: Line, read: int) -> UnreadSpan:
    """Where unread is counted (design.md invariant 7). `read` is the read cursor."""
    newest = person.newest
    upper = upper_bound(person, line)
    if newest.revoked:
        return UnreadSpan(upper, upper)
    return UnreadSpan(max(min(read, upper), newest.joined_at, person.own_clear, line.floor), upper)


def delivered_spans(person: Person, line: Line) -> Iterator[tuple[int, int]]:
    """The seqs delivered to a person but for CONCERNED events of others: ascending, both ends included.

    A stay receives what is after `joined_at`, up to and including the leaver's own event, also when it is revoked
    (design.md invariants 4, 5 and 12).
    """
    for stay in person.stays:
        last = min(stay.left_at or line.head, line.head)
        if stay.joined_at < last:
            yield stay.joined_at + 1, last


def newest_delivered(person: Person, line: Line, newest_broadcast: int) -> int:
    """The newest seq delivered to a person, 0 for none: the leaver's own event, else the newest BROADCAST or ordinary
    seq of the stay, else the own join. `newest_broadcast` is the newest such seq up to the head."""
    for stay in reversed(person.stays):
        if stay.left_at and stay.left_at <= line.head:
            return stay.left_at
        if newest_broadcast > stay.joined_at:
            return newest_broadcast
        if stay.began_version > 1 and stay.joined_at < line.head:
            return stay.joined_at + 1
    return 0


def ordinary_spans(person: Person, line: Line, after: int) -> list[tuple[int, int]]:
    """Where ordinary messages delivered to a person after the seq `after` may be: ascending, both ends included.

    Delivery is a fact: neither the floor nor a clear point undoes it. A span without room for anything but the person's
    own comings and goings is left out.
    """
    spans = []
    for stay in person.stays:
        last = _upper(stay, line)
        first = max(stay.joined_at + (2 if stay.began_version > 1 else 1), after + 1)
        if first <= last:
            spans.append((first, last))
    return spans

"""Where a person's bars begin and end on the line of seqs. Pure.

Positions are on a continuous line on which seq S takes the stretch from S-1 to S. What is visible comes from the
service, whose one function for it also serves every read (design.md invariant 6); nothing is decided here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from qim_admin.timeline.reading import PersonLine
from qim_client import MemberState


class Kind(Enum):
    """What a stretch is to a person."""

    SHOWN = "in the group, may read"
    HIDDEN = "in the group then, hidden now"
    BACKLOG = "outside then, may read"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch from `start` up to `end`, longer than nothing."""

    kind: Kind
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class End:
    """A stay that ended with the event of seq `seq`."""

    seq: int
    state: MemberState


def spans(person: PersonLine, head: int) -> list[Span]:
    """The stretches of one person, ascending and disjoint; what is neither in a stay nor visible has none."""
    stays = _merged([(stay.joined_at, stay.left_at - 1 if stay.left_at else head) for stay in person.stays])
    visible = _merged([(item.first - 1, item.last) for item in person.visible])
    found: list[Span] = []
    points = sorted({point for stretch in (*stays, *visible) for point in stretch})
    inside, readable = _Cursor(stays), _Cursor(visible)
    for start, end in itertools.pairwise(points):
        kind = _kind(inside.covers(start), readable.covers(start))
        if kind is None:
            continue
        if found and found[-1].kind is kind and found[-1].end == start:
            found[-1] = Span(kind, found[-1].start, end)
        else:
            found.append(Span(kind, start, end))
    return found


def ends(person: PersonLine) -> list[End]:
    """The ends of a person's stays, ascending."""
    return [End(stay.left_at, stay.state) for stay in person.stays if stay.left_at]


def ticks(head: int, at_most: int) -> list[int]:
    """Round seqs to label on the line from 1 to `head`, ascending; about `at_most` of them, 2 or more."""
    step = 1
    while head / step > at_most:
        step = step * 5 // 2 if str(step).startswith("2") else step * 2
    return sorted({1, *range(step, head + 1, step)}) if head else []


def _kind(inside: bool, readable: bool) -> Kind | None:
    if inside:
        return Kind.SHOWN if readable else Kind.HIDDEN
    return Kind.BACKLOG if readable else None


def _merged(stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


class _Cursor:
    """Whether ascending points lie in ascending, disjoint stretches."""

    def __init__(self, stretches: Sequence[tuple[int, int]]) -> None:
        self._stretches = stretches
        self._at = 0

    def covers(self, point: int) -> bool:
        while self._at < len(self._stretches) and self._stretches[self._at][1] <= point:
            self._at += 1
        return self._at < len(self._stretches) and self._stretches[self._at][0] <= point

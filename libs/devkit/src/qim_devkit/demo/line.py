"""The seq line: a scale that gives every stretch between two edges its columns, and rows drawn on it. Pure.

It is not to scale: nothing happens for thousands of seqs, and then much within a hundred. Each stretch gets the columns
that its labels need, and a share of the rest that grows with the logarithm of its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Final, Generic, TypeVar

Cell = TypeVar("Cell")

GROUPED: Final = ","
UNGROUPED: Final = ""


@dataclass(frozen=True, slots=True)
class Run(Generic[Cell]):
    """`width` columns that all look the same."""

    cell: Cell
    width: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """The seqs `first` to `last`, both included, in `width` columns."""

    first: int
    last: int
    width: int


@dataclass(frozen=True, slots=True)
class SeqLine:
    """The seqs from 1 to `head` on a line of characters.

    Attributes:
        labels: seq to what happened there.
        grouping: between the thousands of a number.
    """

    stretches: tuple[Stretch, ...]
    labels: Mapping[int, str]
    grouping: str = GROUPED

    @property
    def head(self) -> int:
        """The newest seq."""
        return self.stretches[-1].last

    @property
    def width(self) -> int:
        """Columns."""
        return sum(stretch.width for stretch in self.stretches)

    def row(self, cell_of: Callable[[int], Cell]) -> list[Run[Cell]]:
        """The line with each stretch as `cell_of` says of its first seq. Whatever is drawn begins and ends at edges."""
        return [Run(cell_of(stretch.first), stretch.width) for stretch in self.stretches]

    def numbers(self) -> str:
        """The seqs at which stretches begin, and the head at the right end."""
        starts = {stretch.first: f"{stretch.first:{self.grouping}}" for stretch in self.stretches}
        head = f"{self.head:{self.grouping}}"
        return f"{self._placed(starts)[: self.width - len(head)]}{head}"

    def names(self) -> str:
        """What happened at the seqs at which stretches begin."""
        return self._placed(self.labels)

    def axis(self, *, corners: str, tick: str, rule: str, gap: str) -> str:
        """The line itself: a tick at each edge, and `gap` in the longest stretch."""
        longest = max(self.stretches, key=lambda stretch: stretch.last - stretch.first)
        parts: list[str] = []
        for stretch in self.stretches:
            part = tick + rule * (stretch.width - 1)
            if stretch is longest and stretch.width > len(gap) + 2:
                middle = (stretch.width - len(gap) + 1) // 2
                part = part[:middle] + gap + part[middle + len(gap) :]
            parts.append(part)
        return f"{corners[0]}{''.join(parts)[1:-1]}{corners[1]}"

    def _placed(self, texts: Mapping[int, str]) -> str:
        """Each text where the stretch that begins with its seq begins."""
        columns = [" "] * self.width
        at = 0
        for stretch in self.stretches:
            text = texts.get(stretch.first, "")[: self.width - at]
            columns[at : at + len(text)] = text
            at += stretch.width
        return "".join(columns)


def seq_line(edges: Iterable[int], head: int, width: int, events: Mapping[int, tuple[str, str]]) -> SeqLine:
    """The line from 1 to `head` in `width` columns.

    Args:
        edges: seqs at which something begins or ends to be so; those outside of 2 to `head` are left out.
        events: seq, from 1 to `head`, to what happened there, in words and in short; where the words have no room, the
            short ones are taken, and then numbers without commas.

    Raises ValueError when not even those fit.
    """
    starts = sorted({1, *events, *(edge for edge in edges if 1 < edge <= head)})
    bounds = list(zip(starts, [*(start - 1 for start in starts[1:]), head], strict=True))
    words = {seq: long for seq, (long, _) in events.items()}
    short = {seq: text for seq, (_, text) in events.items()}
    for labels, grouping in ((words, GROUPED), (short, GROUPED), (short, UNGROUPED)):
        needed = _needed(bounds, labels, grouping)
        if sum(needed) <= width:
            break
    else:
        raise ValueError(f"the seq line needs at least {sum(needed)} columns, not {width}")
    widths = _share(needed, [log2(last - first + 2) for first, last in bounds], width)
    stretches = (Stretch(first, last, columns) for (first, last), columns in zip(bounds, widths, strict=True))
    return SeqLine(tuple(stretches), labels, grouping)


def _needed(bounds: Sequence[tuple[int, int]], labels: Mapping[int, str], grouping: str) -> list[int]:
    """Columns for each stretch's number, and for its label, which may reach over the stretches up to the next one."""
    needed = [len(f"{first:{grouping}}") + 1 for first, _ in bounds]
    needed[-1] += len(f"{bounds[-1][1]:{grouping}}")
    labelled = [at for at, (first, _) in enumerate(bounds) if first in labels]
    for at, end in zip(labelled, [*labelled[1:], len(bounds)], strict=False):
        missing = len(labels[bounds[at][0]]) + 1 - sum(needed[at:end])
        needed[end - 1] += max(missing, 0)
    return needed


def _share(needed: Sequence[int], weights: Sequence[float], width: int) -> list[int]:
    """`needed` plus shares of what is left of `width`, as whole columns that add up to it."""
    spare = width - sum(needed)
    total = sum(weights)
    ends = [round(spare * sum(weights[: at + 1]) / total) for at in range(len(weights))]
    return [need + end - begin for need, begin, end in zip(needed, [0, *ends[:-1]], ends, strict=True)]

"""The seq line: a scale that gives every stretch between two edges its columns, and rows drawn on it. Pure.

It is not to scale: nothing happens for thousands of seqs, and then much within a hundred. Each stretch gets the columns
that its labels need, and a share of the rest that grows with the logarithm of its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Generic, TypeVar

Cell = TypeVar("Cell")


@dataclass(frozen=True, slots=True)
class Run(Generic[Cell]):
    """`width` columns that all look the same."""

    cell: Cell
    width: int


@dataclass(frozen=True, slots=True)
class _Stretch:
    first: int
    last: int
    width: int


@dataclass(frozen=True, slots=True)
class SeqLine:
    """The seqs from 1 to `head` on a line of characters."""

    stretches: tuple[_Stretch, ...]
    labels: Mapping[int, str]

    @property
    def head(self) -> int:
        """The newest seq."""
        return self.stretches[-1].last

    @property
    def width(self) -> int:
        """Columns."""
        return sum(stretch.width for stretch in self.stretches)

    def row(self, cell_of: Callable[[int], Cell]) -> list[Run[Cell]]:
        """The line with each stretch as `cell_of` says of its first seq; every edge of what is drawn is an edge here."""
        return [Run(cell_of(stretch.first), stretch.width) for stretch in self.stretches]

    def numbers(self) -> str:
        """The seqs at which stretches begin, and the head at the right end."""
        text = "".join(f"{stretch.first:,}".ljust(stretch.width) for stretch in self.stretches)
        head = f"{self.head:,}"
        return f"{text[: self.width - len(head)]}{head}"

    def axis(self, *, corner: str, tick: str, rule: str, gap: str) -> str:
        """The line itself, with a tick at each edge, and a gap in the first stretch, which is by far the longest."""
        parts = [tick + rule * (stretch.width - 1) for stretch in self.stretches]
        middle = self.stretches[0].width // 2
        text = parts[0][:middle] + gap + parts[0][middle + len(gap) :] + "".join(parts[1:])
        return f"{corner[0]}{text[1:-1]}{corner[1]}"

    def names(self) -> str:
        """What happened at the seqs at which stretches begin."""
        return "".join(self.labels.get(stretch.first, "").ljust(stretch.width) for stretch in self.stretches)


def seq_line(edges: Iterable[int], head: int, width: int, events: Mapping[int, Sequence[str]]) -> SeqLine:
    """The line from 1 to `head` in `width` columns.

    Args:
        edges: seqs at which something begins or ends to be so; those outside of 2 to `head` are left out.
        events: seq to what happened there, in versions from the longest to the shortest; the longest ones that fit
            together are taken.

    Raises ValueError when not even the numbers fit.
    """
    starts = [1, *sorted({edge for edge in edges if 1 < edge <= head} | {seq for seq in events if 1 < seq <= head})]
    bounds = list(zip(starts, [*(start - 1 for start in starts[1:]), head], strict=True))
    versions = max((len(texts) for texts in events.values()), default=1)
    for version in range(versions):
        labels = {seq: texts[min(version, len(texts) - 1)] for seq, texts in events.items()}
        needed = [_needed(first, last, head, labels.get(first, "")) for first, last in bounds]
        if sum(needed) <= width:
            break
    else:
        raise ValueError(f"the seq line needs at least {sum(needed)} columns, not {width}")
    widths = _share(needed, [log2(last - first + 2) for first, last in bounds], width)
    stretches = (_Stretch(first, last, columns) for (first, last), columns in zip(bounds, widths, strict=True))
    return SeqLine(tuple(stretches), labels)


def _needed(first: int, last: int, head: int, label: str) -> int:
    numbers = len(f"{first:,}") + 1 + (len(f"{head:,}") if last == head else 0)
    return max(numbers, len(label) + 1)


def _share(needed: Sequence[int], weights: Sequence[float], width: int) -> list[int]:
    """`needed` plus shares of what is left of `width`, as whole columns that add up to it."""
    spare = width - sum(needed)
    total = sum(weights)
    ends = [round(spare * sum(weights[: at + 1]) / total) for at in range(len(weights))]
    return [need + end - begin for need, begin, end in zip(needed, [0, *ends[:-1]], ends, strict=True)]

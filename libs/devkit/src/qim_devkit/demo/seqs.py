"""Sets of seqs as ascending, disjoint ranges. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from qim_client import SeqRange


@dataclass(frozen=True, slots=True)
class Seqs:
    """Some of the seqs of a conversation. `ranges` are ascending and do not touch each other; make one with `of`."""

    ranges: tuple[SeqRange, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[SeqRange]) -> Self:
        """The seqs in any of `ranges`, which may overlap and come in any order. Empty ranges count for nothing."""
        joined: list[SeqRange] = []
        for item in sorted(ranges, key=lambda item: item.first):
            if item.last < item.first:
                continue
            if joined and item.first <= joined[-1].last + 1:
                joined[-1] = SeqRange(joined[-1].first, max(joined[-1].last, item.last))
            else:
                joined.append(item)
        return cls(tuple(joined))

    @classmethod
    def between(cls, first: int, last: int) -> Self:
        """The seqs from `first` to `last`, both included; none if `last` is below `first`."""
        return cls.of([SeqRange(first, last)])

    def __len__(self) -> int:
        return sum(item.last - item.first + 1 for item in self.ranges)

    def __contains__(self, seq: int) -> bool:
        return any(item.first <= seq <= item.last for item in self.ranges)

    def __or__(self, other: Seqs) -> Seqs:
        return Seqs.of((*self.ranges, *other.ranges))

    def __and__(self, other: Seqs) -> Seqs:
        return Seqs.of(
            SeqRange(max(mine.first, theirs.first), min(mine.last, theirs.last))
            for mine in self.ranges
            for theirs in other.ranges
        )

    def __sub__(self, other: Seqs) -> Seqs:
        left = list(self.ranges)
        for gone in other.ranges:
            left = [
                part
                for item in left
                for part in (
                    SeqRange(item.first, min(item.last, gone.first - 1)),
                    SeqRange(max(item.first, gone.last + 1), item.last),
                )
            ]
        return Seqs.of(left)

    @property
    def edges(self) -> frozenset[int]:
        """Where the set begins, and the seqs right behind where it ends."""
        return frozenset(edge for item in self.ranges for edge in (item.first, item.last + 1))

    def __str__(self) -> str:
        """In words: "1 to 4,815 and 4,880 to 4,900"; "none" for the empty set."""
        words = [f"{r.first:,}" if r.first == r.last else f"{r.first:,} to {r.last:,}" for r in self.ranges]
        return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words) or "none"


NO_SEQS: Final = Seqs()

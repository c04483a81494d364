"""Which reads of the archive bring wanted seqs: ranges where they lie close together, names elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

RANGE_MAX: Final = 1_000
"""Seqs of one range; one page of the archive."""

GAP_MAX: Final = 8
"""So many seqs that nobody asked for are read along in the middle of a range."""

RANGE_MIN: Final = 4
"""Fewer seqs than these are named."""


@dataclass(frozen=True, slots=True)
class ColdReads:
    """Ranges, both ends included, and seqs to name: together all that is wanted, ascending and apart."""

    ranges: tuple[tuple[int, int], ...]
    named: tuple[int, ...]


def cold_reads(seqs: Iterable[int]) -> ColdReads:
    """How `seqs` are read: a page of history as one or two ranges, the few events of a timeline by their names."""
    ranges: list[tuple[int, int]] = []
    named: list[int] = []
    stretch: list[int] = []

    def end() -> None:
        if len(stretch) >= RANGE_MIN:
            ranges.append((stretch[0], stretch[-1]))
        else:
            named.extend(stretch)
        stretch.clear()

    for seq in sorted(set(seqs)):
        if stretch and (seq - stretch[-1] > GAP_MAX + 1 or seq - stretch[0] >= RANGE_MAX):
            end()
        stretch.append(seq)
    end()
    return ColdReads(tuple(ranges), tuple(named))


def left_out(asked: Iterable[int], found: Collection[int], gone: int) -> list[int]:
    """The seqs that the archive was asked for, did not bring, and should have: those above `gone`, up to which a
    removal may have come meanwhile. Ascending."""
    return sorted({seq for seq in asked if seq > gone and seq not in found})


def stretches(seqs: Sequence[int], at_most: int = 10) -> str:
    """Ascending seqs in words for a log: `1-9, 12`; after `at_most` stretches only how many more seqs there are."""
    ends: list[tuple[int, int]] = []
    for seq in seqs:
        if ends and ends[-1][1] == seq - 1:
            ends[-1] = ends[-1][0], seq
        else:
            ends.append((seq, seq))
    words = [str(first) if first == last else f"{first}-{last}" for first, last in ends[:at_most]]
    more = sum(last - first + 1 for first, last in ends[at_most:])
    return ", ".join([*words, f"and {more} more"] if more else words)

"""Sets of seqs behave like sets, and read well."""

from __future__ import annotations

import pytest

from qim_client import SeqRange
from qim_devkit.demo.seqs import Seqs


def seqs(*ranges: tuple[int, int]) -> Seqs:
    return Seqs.of(SeqRange(first, last) for first, last in ranges)


@pytest.mark.parametrize(
    ("ranges", "joined"),
    [
        ([], []),
        ([(4, 3)], []),
        ([(5, 5), (1, 3)], [(1, 3), (5, 5)]),
        ([(1, 3), (4, 6)], [(1, 6)]),
        ([(1, 9), (2, 3), (8, 12)], [(1, 12)]),
    ],
)
def test_ranges_are_put_in_order_and_joined(ranges: list[tuple[int, int]], joined: list[tuple[int, int]]) -> None:
    assert seqs(*ranges).ranges == tuple(SeqRange(first, last) for first, last in joined)


def test_the_operations_agree_with_those_of_sets() -> None:
    samples = [seqs(), seqs((1, 1)), seqs((1, 5), (9, 12)), seqs((3, 10)), seqs((2, 2), (5, 9), (12, 12))]

    def plain(value: Seqs) -> set[int]:
        return {seq for seq in range(20) if seq in value}

    for one in samples:
        assert len(one) == len(plain(one))
        for other in samples:
            assert plain(one | other) == plain(one) | plain(other)
            assert plain(one & other) == plain(one) & plain(other)
            assert plain(one - other) == plain(one) - plain(other)


def test_edges_are_where_something_begins_or_has_ended() -> None:
    assert seqs((1, 4), (8, 8)).edges == {1, 5, 8, 9}


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ([], "none"),
        ([(7, 7)], "7"),
        ([(1, 4815), (4880, 4900)], "1 to 4,815 and 4,880 to 4,900"),
        ([(1, 2), (4, 4), (6, 9)], "1 to 2, 4 and 6 to 9"),
    ],
)
def test_a_set_is_told_in_words(ranges: list[tuple[int, int]], words: str) -> None:
    assert str(seqs(*ranges)) == words

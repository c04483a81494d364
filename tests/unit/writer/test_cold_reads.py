"""How wanted seqs are cut into ranges and names (qim_writer.domain.cold_reads)."""

from __future__ import annotations

import random

import pytest

from qim_writer.domain.cold_reads import GAP_MAX, RANGE_MAX, ColdReads, cold_reads, left_out, stretches
from qim_writer.domain.seq_buckets import SEQS_PER_BUCKET, whole_buckets


@pytest.mark.parametrize(
    ("seqs", "reads"),
    [
        ([], ColdReads((), ())),
        ([7], ColdReads((), (7,))),
        ([9, 8, 7], ColdReads((), (7, 8, 9))),
        ([10, 9, 8, 7], ColdReads(((7, 10),), ())),
        ([1, 2, 3, 4, 100], ColdReads(((1, 4),), (100,))),
        ([1, 1, 2, 2], ColdReads((), (1, 2))),
        ([1, 2, 5, 6, 14], ColdReads(((1, 14),), ())),
        ([1, 2, 3, 4 + GAP_MAX], ColdReads(((1, 4 + GAP_MAX),), ())),
        ([1, 2, 3, 5 + GAP_MAX], ColdReads((), (1, 2, 3, 5 + GAP_MAX))),
        (range(1, RANGE_MAX + 1), ColdReads(((1, RANGE_MAX),), ())),
        (range(1, RANGE_MAX + 2), ColdReads(((1, RANGE_MAX),), (RANGE_MAX + 1,))),
        (range(2 * RANGE_MAX, 0, -1), ColdReads(((1, RANGE_MAX), (RANGE_MAX + 1, 2 * RANGE_MAX)), ())),
    ],
)
def test_what_lies_close_together_is_read_as_a_range(seqs: list[int], reads: ColdReads) -> None:
    assert cold_reads(seqs) == reads


def test_whatever_is_wanted_is_read_and_no_range_is_longer_than_a_page() -> None:
    chance = random.Random(6)  # noqa: S311  no secret
    for _ in range(200):
        wanted = {chance.randrange(1, chance.choice((30, 3_000))) for _ in range(chance.randrange(1_200))}
        reads = cold_reads(wanted)
        covered = set(reads.named)
        for first, last in reads.ranges:
            assert last - first < RANGE_MAX
            covered |= set(range(first, last + 1))
        assert wanted <= covered
        assert set(reads.named) <= wanted


@pytest.mark.parametrize(
    ("upto", "whole"),
    [(0, 0), (1, 0), (SEQS_PER_BUCKET - 1, 0), (SEQS_PER_BUCKET, 1), (SEQS_PER_BUCKET + 1, 1), (5_500, 5)],
)
def test_a_bucket_is_whole_once_its_last_seq_is_reached(upto: int, whole: int) -> None:
    assert whole_buckets(upto) == whole


@pytest.mark.parametrize(
    ("asked", "found", "gone", "lost"),
    [
        ([], set(), 0, []),
        ([1, 2, 3], {1, 2, 3}, 0, []),
        ([3, 2, 1, 2], {2}, 0, [1, 3]),
        ([1, 2, 3], {3}, 2, []),
        ([1, 2, 3], set(), 2, [3]),
        ([1, 2, 3], set(), 9, []),
        ([5], {4, 6}, 0, [5]),
    ],
)
def test_what_should_have_come_and_did_not_is_lost(
    asked: list[int], found: set[int], gone: int, lost: list[int]
) -> None:
    assert left_out(asked, found, gone) == lost


@pytest.mark.parametrize(
    ("seqs", "words"),
    [
        ([], ""),
        ([7], "7"),
        ([1, 2, 3, 5, 8, 9], "1-3, 5, 8-9"),
        (range(1, 1_001), "1-1000"),
        ([1, 3, 5, 6, 7], "1, 3, and 3 more"),
    ],
)
def test_lost_seqs_are_told_in_stretches(seqs: list[int], words: str) -> None:
    assert stretches(seqs, at_most=2 if words.endswith("more") else 10) == words

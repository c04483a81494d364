"""How a line is cut into partitions, windows and batches."""

from __future__ import annotations

import pytest

from qim_writer.domain.seq_buckets import BucketSpan, chunks, seq_bucket, spans, windows


@pytest.mark.parametrize(
    ("seq", "bucket"), [(1, 0), (1000, 0), (1001, 1), (2000, 1), (2001, 2), (2**53, 9007199254740)]
)
def test_a_bucket_holds_a_thousand_seqs_from_1(seq: int, bucket: int) -> None:
    assert seq_bucket(seq) == bucket


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (1, 1, [BucketSpan(0, 1, 1)]),
        (1, 1000, [BucketSpan(0, 1, 1000)]),
        (1000, 1001, [BucketSpan(0, 1000, 1000), BucketSpan(1, 1001, 1001)]),
        (500, 2500, [BucketSpan(0, 500, 1000), BucketSpan(1, 1001, 2000), BucketSpan(2, 2001, 2500)]),
        (5, 4, []),
    ],
)
def test_a_range_is_cut_at_the_borders(first: int, last: int, expected: list[BucketSpan]) -> None:
    assert list(spans(first, last)) == expected


def test_windows_cover_a_range_from_the_end_that_comes_first() -> None:
    assert list(windows(1, 25, size=10, newest_first=False)) == [(1, 10), (11, 20), (21, 25)]
    assert list(windows(1, 25, size=10, newest_first=True)) == [(16, 25), (6, 15), (1, 5)]
    assert list(windows(7, 6, size=10, newest_first=True)) == []


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1], ["a"]),
        ([1, 1, 1, 1], ["abc", "d"]),
        ([6, 6, 1], ["a", "bc"]),
        ([99, 1, 99], ["a", "b", "c"]),
        ([5, 5, 5], ["ab", "c"]),
    ],
)
def test_batches_keep_order_and_both_bounds(sizes: list[int], expected: list[str]) -> None:
    items = "abcdefgh"[: len(sizes)]
    assert list(chunks(items, sizes, max_items=3, max_bytes=10)) == expected

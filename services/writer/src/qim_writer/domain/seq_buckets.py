"""How a conversation's line is cut into partitions of the archive. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

SEQS_PER_BUCKET: Final = 1000
"""Seqs of one partition, for ever: what is stored lies where this says (docs/storage-tiers.md)."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class BucketSpan:
    """The seqs `first` to `last`, both included, all of one bucket."""

    bucket: int
    first: int
    last: int


def seq_bucket(seq: int) -> int:
    """The bucket of a seq, from 0; seqs begin at 1."""
    return (seq - 1) // SEQS_PER_BUCKET


def whole_buckets(upto: int) -> int:
    """How many buckets, the first ones, hold nothing above the seq `upto`."""
    return upto // SEQS_PER_BUCKET


def last_seq(bucket: int) -> int:
    """The last seq of a bucket."""
    return (bucket + 1) * SEQS_PER_BUCKET


def spans(first: int, last: int) -> Iterator[BucketSpan]:
    """The range cut at the borders of buckets, ascending; nothing for an empty range."""
    while first <= last:
        bucket = seq_bucket(first)
        end = min(last, last_seq(bucket))
        yield BucketSpan(bucket, first, end)
        first = end + 1


def windows(first: int, last: int, *, size: int, newest_first: bool) -> Iterator[tuple[int, int]]:
    """The range in pieces of at most `size` seqs, from its end where the newest come first."""
    while first <= last:
        if newest_first:
            yield max(first, last - size + 1), last
            last -= size
        else:
            yield first, min(last, first + size - 1)
            first += size


def chunks(items: Sequence[Item], sizes: Sequence[int], *, max_items: int, max_bytes: int) -> Iterator[Sequence[Item]]:
    """The items in their order, in pieces within both bounds; one that is larger alone is a piece of its own."""
    begin = total = 0
    for at, size in enumerate(sizes):
        if at > begin and (at - begin == max_items or total + size > max_bytes):
            yield items[begin:at]
            begin, total = at, 0
        total += size
    if begin < len(items):
        yield items[begin:]

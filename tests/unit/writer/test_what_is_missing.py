"""An instance is compared with what the archive has seen of its logs."""

from __future__ import annotations

import pytest

from qim_common.positions import Position
from qim_common.redis import Fingerprint
from qim_writer.backends.redis.fence import what_archive_lacks, what_is_missing
from qim_writer.storage_archive import ArchivePosition

HERE = Fingerprint(0, 1, 4, "tests", "now", True, ("older", "old"))
SEEN = Position(2_000, 5)


@pytest.mark.parametrize(
    ("log_id", "ends", "words"),
    [
        ("now", {0: SEEN}, ""),
        ("now", {0: SEEN.after()}, ""),
        ("now", {0: Position(2_001, 0)}, ""),
        ("now", {0: SEEN.before()}, "ends at 2000-4"),
        ("now", {0: Position(1_999, 9)}, "ends at 1999-9"),
        ("now", {}, "ends at 0-0"),
        ("old", {}, ""),
        ("older", {0: Position(1, 0)}, ""),
        ("unknown", {0: Position(9_999, 0)}, "another log"),
    ],
)
def test_a_log_ends_below_what_was_seen_of_it(log_id: str, ends: dict[int, Position], words: str) -> None:
    found = what_is_missing(HERE, {0: ArchivePosition(log_id, SEEN)}, ends)

    assert (words in found) if words else (found == "")


def test_buckets_that_the_archive_has_not_seen_lack_nothing() -> None:
    assert what_is_missing(HERE, {}, {0: Position(5, 0), 1: Position(0, 0)}) == ""


@pytest.mark.parametrize(
    ("seen", "archived", "words"),
    [
        ({}, {}, ""),
        ({}, {0: Position(0, 0)}, ""),
        ({}, {0: SEEN}, "knows nothing of it"),
        ({0: SEEN}, {0: Position(0, 0)}, ""),
        ({0: SEEN}, {0: SEEN.before()}, ""),
        ({0: SEEN}, {0: SEEN}, ""),
        ({0: SEEN}, {0: SEEN.after()}, "up to 2000-5"),
        ({0: SEEN}, {0: SEEN, 1: Position(1, 0)}, "bucket 1 is archived up to 1-0"),
        ({1: SEEN}, {0: SEEN, 1: SEEN}, "bucket 0"),
    ],
)
def test_an_archive_has_noted_what_the_instance_says_is_archived(
    seen: dict[int, Position], archived: dict[int, Position], words: str
) -> None:
    # In the name of a former log too: whoever gives an instance a new one notes it first.
    for log_id in ("now", "old", "unknown"):
        found = what_archive_lacks(
            {bucket: ArchivePosition(log_id, position) for bucket, position in seen.items()}, archived
        )
        assert (words in found) if words else (found == "")

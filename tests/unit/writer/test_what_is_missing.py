"""An instance is compared with what the archive has seen of its logs."""

from __future__ import annotations

import pytest

from qim_common.positions import Position
from qim_common.redis import Fingerprint
from qim_writer.backends.redis.fence import what_is_missing
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

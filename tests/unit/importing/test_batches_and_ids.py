"""What goes into one call, and under which ids."""

from __future__ import annotations

import pytest

from qim_common.ids import uuid7_millis
from qim_devkit.importing.batches import FRAME_BYTES, batches
from qim_devkit.importing.ids import line_id
from qim_devkit.importing.lines import Line, Op

IMPORT = bytes(range(16))


def lines(text: str, size: int = 1) -> list[Line]:
    """A line for each letter: m, j, l."""
    ops = {"m": Op.MESSAGE, "j": Op.JOIN, "l": Op.LEAVE}
    return [Line(at, ops[letter], 1, b"." * size, at) for at, letter in enumerate(text, 1)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", []), ("m", [1]), ("mmm", [3]), ("jl", [1, 1]), ("mmjmlm", [2, 1, 1, 1, 1]), ("m" * 600, [256, 256, 88])],
)
def test_messages_that_follow_one_another_share_a_frame(text: str, expected: list[int]) -> None:
    found = list(batches(lines(text)))
    assert [len(batch) for batch in found] == expected
    assert [line for batch in found for line in batch] == lines(text)


def test_a_frame_has_bounded_bytes_and_always_one_message() -> None:
    assert [len(batch) for batch in batches(lines("mmmmm", FRAME_BYTES // 2))] == [2, 2, 1]
    assert [len(batch) for batch in batches(lines("mm", FRAME_BYTES + 1))] == [1, 1]


def test_a_line_has_the_same_id_each_time_and_no_other_line_has_it() -> None:
    time_ms = 1_764_000_000_123
    ids = [line_id(IMPORT, number, time_ms) for number in range(1000)]
    assert ids == [line_id(IMPORT, number, time_ms) for number in range(1000)]
    assert len({*ids, *(line_id(IMPORT[::-1], number, time_ms) for number in range(1000))}) == 2000
    assert {uuid7_millis(value) for value in ids} == {time_ms}

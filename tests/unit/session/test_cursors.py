"""Cursors: forward by generation and seq, never beyond what was delivered."""

from __future__ import annotations

import struct

import pytest

from qim_session.domain.cursors import Cursor


@pytest.mark.parametrize(
    ("smaller", "greater"),
    [(Cursor(0, 1), Cursor(0, 2)), (Cursor(0, 9), Cursor(1, 1)), (Cursor(1, 2**40), Cursor(2, 0))],
)
def test_a_generation_counts_before_a_seq(smaller: Cursor, greater: Cursor) -> None:
    assert smaller < greater


@pytest.mark.parametrize(("seq", "newest", "expected"), [(5, 9, 5), (9, 9, 9), (10, 9, 9), (2**64 - 1, 0, 0)])
def test_a_cursor_is_clamped_to_what_was_delivered(seq: int, newest: int, expected: int) -> None:
    assert Cursor(3, seq).clamped(newest) == Cursor(3, expected)


def test_a_cursor_survives_its_stored_form() -> None:
    assert Cursor.unpack(Cursor(2**32 - 1, 2**53 - 1).pack()) == Cursor(2**32 - 1, 2**53 - 1)


def test_a_stored_cursor_that_is_cut_short_is_refused() -> None:
    with pytest.raises(struct.error):
        Cursor.unpack(b"\0" * 11)

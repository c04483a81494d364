"""What /proc tells of a process."""

from __future__ import annotations

import os

import pytest
from bench.processes import resident_bytes


def test_a_process_has_its_memory_in_bytes() -> None:
    assert 1 << 20 < resident_bytes(os.getpid()) < 1 << 36


def test_a_process_that_is_not_there_is_told() -> None:
    with pytest.raises(OSError, match="No such file"):
        resident_bytes(0)

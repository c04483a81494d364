"""One supervisor at a time uses a directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from qim_devkit.paths import SuitePaths
from qim_devkit.suite import Suite
from qim_devkit.up import DirectoryInUseError, exclusive, ready_line


def test_a_second_supervisor_is_told_who_runs(tmp_path: Path) -> None:
    paths = SuitePaths(tmp_path / "suite")
    with (
        exclusive(paths),
        pytest.raises(DirectoryInUseError, match=rf"process {os.getpid()}\).*Ctrl-C"),
        exclusive(paths),
    ):
        pass


def test_the_directory_is_free_again_afterwards(tmp_path: Path) -> None:
    paths = SuitePaths(tmp_path / "suite")
    for _ in range(2):
        with exclusive(paths):
            assert paths.lock.read_text() == f"{os.getpid()}\n"


def test_the_ready_line_names_the_directory_below_a_checkout_only(tmp_path: Path) -> None:
    checkout = Path(sys.executable).parents[2]
    assert ready_line(Suite(checkout / ".qim")).startswith("qim is ready (")
    assert ready_line(Suite(tmp_path / ".qim")).startswith("qim is ready (")
    assert ready_line(Suite(checkout / "docs" / ".qim")).startswith(f"qim is ready in {checkout}/docs/.qim (")

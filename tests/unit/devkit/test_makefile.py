"""The Makefile explains itself."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from qim_devkit.protos import repository_root

MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(MAKE is None, reason="make is not installed")


def run(*arguments: str, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=directory or repository_root(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def declared_targets() -> set[str]:
    """Every target that a person may call: the phony ones."""
    text = (repository_root() / "Makefile").read_text().replace("\\\n", " ")
    (phony,) = re.findall(r"^\.PHONY:(.*)$", text, flags=re.MULTILINE)
    return set(phony.split())


def test_help_is_the_default_and_lists_every_target_with_a_line() -> None:
    listed = dict(re.findall(r"^  ([a-z0-9-]+) +(\S.*)$", run().stdout, flags=re.MULTILINE))
    assert set(listed) == declared_targets()
    assert run("help").stdout == run().stdout


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A checkout without a virtual environment."""
    shutil.copy(repository_root() / "Makefile", tmp_path)
    (tmp_path / "requirements.lock").touch()
    return tmp_path


def test_a_machine_without_python_is_told_what_to_install(fresh: Path) -> None:
    finished = run("setup", "PYTHON=", directory=fresh)
    assert finished.returncode != 0
    assert "qim needs Python 3.11 or newer" in finished.stderr
    assert not (fresh / ".venv").exists()


def test_an_older_python_is_refused_by_its_version(fresh: Path) -> None:
    old = fresh / "python3.9"
    old.write_text('#!/bin/sh\ntest "$1" = --version && echo Python 3.9.2\n')
    old.chmod(0o755)
    finished = run("setup", f"PYTHON={old}", directory=fresh)
    assert finished.returncode != 0
    assert "python3.9 is Python 3.9.2" in finished.stderr
    assert not (fresh / ".venv").exists()

"""The Makefile explains itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from qim_devkit.protos import repository_root

MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(MAKE is None, reason="make is not installed")


def run(
    *arguments: str, directory: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=directory or repository_root(),
        env=os.environ | dict(environment or {}),
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


def test_the_acceptance_list_without_java_ends_with_what_to_install(tmp_path: Path) -> None:
    for name in ("env", "sh", "make", "ps"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    finished = run("acceptance", "-o", "setup", environment={"PATH": str(tmp_path), "JAVA_HOME": ""})
    assert finished.returncode != 0
    assert "Java is not installed; on Debian install openjdk-17-jre-headless and maven" in finished.stdout
    assert "skipped" not in finished.stdout


@pytest.mark.parametrize("target", ["up", "conformance", "replay", "bench"])
def test_the_directory_of_a_cluster_reaches_every_target_with_a_backend(target: str) -> None:
    planned = run("-n", target, "-o", "setup", "BACKEND=tiered", "CASSANDRA=.qim/other").stdout
    assert "--backend 'tiered' --cassandra '.qim/other'" in planned
    assert "--cassandra" not in run("-n", target, "-o", "setup", "BACKEND=tiered").stdout


def test_the_directory_of_a_cluster_reaches_the_acceptance_list() -> None:
    assert "QIM_TEST_CASSANDRA='.qim/other'" in run("-n", "acceptance", "-o", "setup", "CASSANDRA=.qim/other").stdout

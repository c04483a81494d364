"""Runs the fast part of the suite on weakened sources, each in a copy of its own.

The copies come first on PYTHONPATH, so that tests and services alike import them; the tree itself is never touched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.mutants.rules import SESSION, WRITER, Mutant

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = (WRITER, SESSION)
SUITE: Final = (
    "tests/unit/writer",
    "tests/unit/session",
    "tests/contract",
    "tests/integration/writer_scripts",
    "tests/model/test_visibility.py",
    "tests/model/test_machine.py",
    "tests/conformance",
)
"""In the order in which they are run, up to the first failure."""

SEQUENCES: Final = "150"
"""Of the model's machine: enough for a weakened rule, which nearly every sequence would meet."""

AT_ONCE: Final = 2
SECONDS: Final = 300
"""A run that takes longer has hung, and counts as survived."""

_FAILED: Final = re.compile(r"^FAILED (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant; `killer` is the first test that failed, empty when it survived."""

    mutant: Mutant
    killer: str
    seconds: float
    output: str

    def __str__(self) -> str:
        what = f"killed by {self.killer}" if self.killer else "SURVIVED"
        return f"{what}: {self.mutant.name} ({self.mutant.rule}; {self.seconds:.0f} s)"


@dataclass(frozen=True)
class Run:
    """One run of the suite."""

    exit_code: int
    output: str
    seconds: float

    @property
    def killer(self) -> str:
        """The first test that failed; a run that could not start its tests has none."""
        found = _FAILED.search(self.output)
        return found[1] if self.exit_code == 1 and found else ""


def verdicts(mutants: Sequence[Mutant]) -> Iterator[Verdict]:
    """Weaken one rule after another, `AT_ONCE` at a time; the verdicts in their order.

    Raises ValueError where a rule is not found in the sources, before anything runs.
    """
    for mutant in mutants:
        mutant.applied((ROOT / mutant.file).read_text())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(judge, mutants)


def judge(mutant: Mutant) -> Verdict:
    """Run the suite against one mutant."""
    run = run_suite(mutant)
    return Verdict(mutant, run.killer, run.seconds, run.output)


def run_suite(mutant: Mutant | None, suite: Sequence[str] = SUITE) -> Run:
    """Run the suite on a copy of the sources, weakened by `mutant`."""
    started = time.monotonic()
    with TemporaryDirectory(prefix="qim-mutant-") as name:
        copy = Path(name)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            file = copy / mutant.file
            file.write_text(mutant.applied(file.read_text()))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str((copy / package).parent) for package in PACKAGES),
            "PYTHONDONTWRITEBYTECODE": "1",
            "QIM_MODEL_SEQUENCES": SEQUENCES,
            "QIM_MODEL_SHRINK": "0",
        }
        options = ("-x", "-q", "--tb=short", "-p", "no:cacheprovider", f"--basetemp={copy / 'tests'}")
        command = (sys.executable, "-m", "pytest", *options, *suite)
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired as late:
            return Run(-1, f"no end within {late.timeout} s", time.monotonic() - started)
    return Run(done.returncode, done.stdout + done.stderr, time.monotonic() - started)

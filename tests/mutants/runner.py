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

from tests.mutants.rules import CONSUMERS, SESSION, WRITER, Mutant

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = (WRITER, SESSION)
SUITE: Final = (
    (
        "tests/unit/writer",
        "tests/unit/session",
        "tests/contract",
        "tests/integration/writer_state",
        "tests/integration/writer_scripts",
        "tests/integration/session/test_people.py",
        "tests/integration/session/test_push_lane.py",
    ),
    ("tests/model/test_visibility.py", "tests/model/test_machine.py", "tests/conformance"),
)
"""In-process, then the whole service: each part up to its first failure, the second only if the first passes."""

CONSUMER_SUITE: Final = (
    ("tests/model/consumers",),
    tuple(
        f"tests/integration/session/test_{name}.py"
        for name in ("registration", "memlog", "held_partitions", "dispatch_consumer", "project_entries", "leases")
    ),
)
"""What comes first for the rules of consumers. A walk is random, so the tests of single rules stand behind it."""

WALKS: Final = "30"
"""Of the consumers."""

SEQUENCES: Final = "100"
"""Of the model's machine: enough for a weakened rule, which nearly every sequence would meet."""

AT_ONCE: Final = min(max(os.cpu_count() or 2, 2), 8)
SECONDS: Final = 300
"""A run that takes longer has hung, and counts as survived."""

_FAILED: Final = re.compile(r"^FAILED (.+?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """One run of the suite; `exit_code` as pytest's."""

    exit_code: int
    output: str

    @property
    def killer(self) -> str:
        """The first test that failed; a run that could not start its tests has none."""
        found = _FAILED.search(self.output)
        return found[1] if self.exit_code == 1 and found else ""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant, or of the sources as they are (None)."""

    mutant: Mutant | None
    run: Run
    seconds: float

    @property
    def passed(self) -> bool:
        """A mutant has to fail a test, the sources as they are none."""
        return bool(self.run.killer) if self.mutant else self.run.exit_code == 0

    def __str__(self) -> str:
        if self.mutant is None:
            return f"{'passes' if self.passed else 'FAILS'} without a mutant ({self.seconds:.0f} s)"
        what = f"killed by {self.run.killer}" if self.passed else "SURVIVED"
        return f"{self.mutant.name} ({self.mutant.rule}): {what} ({self.seconds:.0f} s)"


def verdicts(mutants: Sequence[Mutant | None]) -> Iterator[Verdict]:
    """Weaken one rule after another (None: none), `AT_ONCE` at a time; the verdicts in their order.

    Raises ValueError where a rule is not found in the sources, before anything runs.
    """
    for mutant in filter(None, mutants):
        mutant.applied((ROOT / mutant.file).read_text())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(judge, mutants)


def judge(mutant: Mutant | None) -> Verdict:
    """Run the suite on a copy of the sources, weakened by `mutant`."""
    started = time.monotonic()
    with TemporaryDirectory(prefix="qim-mutant-") as name:
        copy = Path(name)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            file = copy / mutant.file
            file.write_text(mutant.applied(file.read_text()))
        run = Run(0, "")
        for part in SUITE if mutant is not None and mutant not in CONSUMERS else (*CONSUMER_SUITE, *SUITE):
            run = _run(copy, part)
            if run.exit_code and not run.killer:
                # Nothing was tested: a port that another process took meanwhile, say. Once more, then it counts.
                run = _run(copy, part)
            if run.exit_code:
                break
    return Verdict(mutant, run, time.monotonic() - started)


def _run(copy: Path, tests: Sequence[str]) -> Run:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str((copy / package).parent) for package in PACKAGES),
        "PYTHONDONTWRITEBYTECODE": "1",
        "QIM_MODEL_SEQUENCES": SEQUENCES,
        "QIM_CONSUMER_WALKS": WALKS,
        "QIM_MODEL_SHRINK": "0",
    }
    options = ("-x", "-q", "--tb=short", "-p", "no:cacheprovider", f"--basetemp={copy / 'tests'}")
    command = (sys.executable, "-m", "pytest", *options, *tests)
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        return Run(-1, f"no end within {late.timeout} s")
    return Run(done.returncode, done.stdout + done.stderr)

"""`python -m tests.conformance.runner [FILE...]`: performs scenario files on a suite of its own.

A line for each failed expectation, and at the end `N passed, N failed`. Exit code 0 when all hold, 1 when one does not,
2 when a file is not in the format (nothing is performed then) or the suite does not run. Without files: all of
tests/conformance.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.runner.document import ScenarioFileError
from tests.conformance.runner.files import read_files
from tests.conformance.runner.performance import Theatre
from tests.conformance.runner.scenario import Scenario

from qim_client.presentation import explain
from qim_common.errors import QimError
from qim_devkit.processes import SuiteError
from qim_devkit.suite import Suite
from qim_devkit.valkey import ValkeyNotAvailable, ValkeyStartError


def main(arguments: Sequence[str]) -> int:
    """Perform the files; the exit code."""
    paths = [Path(argument) for argument in arguments] or sorted(Path(__file__).parent.parent.glob("*.yaml"))
    try:
        scenarios = read_files(paths)
        return asyncio.run(perform(scenarios))
    except ScenarioFileError as error:
        print(f"conformance: {error}", file=sys.stderr)
    except (SuiteError, ValkeyStartError, ValkeyNotAvailable) as error:
        print(f"conformance: {error}", file=sys.stderr)
    return 2


async def perform(scenarios: Sequence[Scenario]) -> int:
    """Perform scenarios one after another on one suite, and print. The exit code.

    Raises SuiteError, ValkeyStartError or ValkeyNotAvailable where the suite does not run.
    """
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="qim-conformance-") as directory:
        async with Suite(Path(directory) / "suite") as suite, Theatre(suite) as theatre:
            for scenario in scenarios:
                try:
                    checks = await theatre.perform(scenario)
                except QimError as error:
                    failed += 1
                    print(f"FAILED {scenario.file}: scenario {scenario.name}: {'; '.join(explain(error).lines())}")
                    continue
                for check in checks:
                    passed += check.passed
                    failed += not check.passed
                    if not check.passed:
                        print(check, flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tests.conformance.runner [--mode MODE] [--backend BACKEND] [FILE...]`: performs scenario files on a suite.

A line for each failed expectation, and at the end `N passed, N failed`. Exit code 0 when all hold, 1 when one does not,
2 when a file is not in the format (nothing is performed then) or the suite does not run. Without files: all of
tests/conformance. Modes: pull (the default), subscribe, wiped; or all of them, one after another, on one suite.

With the backend `tiered` it uses the cluster of `make cassandra-up`, or starts it for the run; messages leave Redis as
soon as the archive holds them, so that reads are cold.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.conformance.runner.document import ScenarioFileError
from tests.conformance.runner.files import read_files
from tests.conformance.runner.scenario import Scenario
from tests.conformance.runner.theatre import SESSIONS, Mode, Outcome, Theatre

from qim_client.presentation import explain
from qim_devkit.start_faults import START_FAULTS
from qim_devkit.suite import Suite
from qim_devkit.tiered import CLUSTER_HELP, COLD, PROMPT, Backend, BackendArguments, backend_arguments, new_tenant

ALL: Final = "all"


def main(arguments: Sequence[str]) -> int:
    """Perform the files; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.runner", description="Perform scenario files.")
    parser.add_argument("--mode", choices=[*Mode, ALL], default=Mode.PULL, help="how (tests/conformance/README.md)")
    parser.add_argument("--seed", type=int, default=0, help="chooses the steps at which the mode wiped loses things")
    parser.add_argument("--backend", choices=list(Backend), default=Backend.REDIS)
    parser.add_argument("--cassandra", type=Path, metavar="DIRECTORY", help=CLUSTER_HELP)
    parser.add_argument("files", metavar="FILE", type=Path, nargs="*", help="scenario files; default: all of them")
    given = parser.parse_args(arguments)
    modes = list(Mode) if given.mode == ALL else [Mode(given.mode)]
    try:
        scenarios = read_files(given.files or sorted(Path(__file__).parent.parent.glob("*.yaml")))
        with backend_arguments(given.backend, given.cassandra) as backend:
            return asyncio.run(perform(scenarios, modes, given.seed, backend))
    except (ScenarioFileError, *START_FAULTS) as error:
        print(f"conformance: {error}", file=sys.stderr)
    return 2


async def perform(scenarios: Sequence[Scenario], modes: Sequence[Mode], seed: int, backend: BackendArguments) -> int:
    """Perform scenarios in each of these modes on one suite, and print. The exit code.

    Raises one of START_FAULTS where the suite does not run.
    """
    passed = failed = 0
    sessions = max(SESSIONS[mode] for mode in modes)
    with tempfile.TemporaryDirectory(prefix="qim-conformance-") as directory:
        async with Suite(
            Path(directory) / "suite",
            sessions=sessions,
            tenants=(new_tenant(),),
            env_overrides=COLD | PROMPT,
            **backend,
        ) as suite:
            for mode in modes:
                async with Theatre(suite, mode, seed) as theatre:
                    async for outcome in theatre.perform_all(scenarios):
                        for line in _failures(outcome):
                            print(f"{line} (mode {mode})" if mode is not Mode.PULL else line, flush=True)
                        passed += sum(check.passed for check in outcome.checks)
                        failed += sum(not check.passed for check in outcome.checks) + (outcome.error is not None)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def _failures(outcome: Outcome) -> Iterator[str]:
    """A line for each comparison that failed, or for why nothing could be compared."""
    if outcome.error is not None:
        scenario = outcome.scenario
        yield f"FAILED {scenario.file}: scenario {scenario.name}: {'; '.join(explain(outcome.error).lines())}"
    for check in outcome.checks:
        if not check.passed:
            yield str(check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

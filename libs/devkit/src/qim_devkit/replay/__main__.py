"""`python -m qim_devkit.replay TRACE EXPECT`, which `make replay` runs.

Prints each difference and closes with `N passed, N failed`, where N counts single values. Exit code 0 when all agree,
1 when one does not, 2 when a file cannot be taken or the suite does not run. With the backend `tiered` it uses the
cluster of `make cassandra-up`, or starts it for the run.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop
from rich.console import Console

from qim_client import GroupSettings, LeaverHistory, NewcomerPolicy, RejoinHistory
from qim_client.presentation import explain
from qim_common.errors import QimError
from qim_devkit.importing.importer import ImportStoppedError
from qim_devkit.importing.lines import ImportFileError
from qim_devkit.replay.answers import AnswersError, read_answers
from qim_devkit.replay.run import replay
from qim_devkit.replay.sights import NotListedError
from qim_devkit.start_faults import START_FAULTS
from qim_devkit.tiered import CLUSTER_HELP, Backend, backend_arguments


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay and print; the exit code."""
    given = _parser().parse_args(arguments)
    policy, last_n = given.newcomer
    settings = GroupSettings(
        newcomer=policy, last_n=last_n, rejoin=RejoinHistory[given.rejoin], leaver=LeaverHistory[given.leaver]
    )
    console = Console(stderr=True, highlight=False, markup=False)
    began = time.monotonic()

    def step(text: str) -> None:
        console.print(f"{text} ...")

    try:
        expected = read_answers(given.expect)
        with (
            backend_arguments(given.backend, given.cassandra) as backend,
            tempfile.TemporaryDirectory(prefix="qim-replay-") as directory,
        ):
            found = uvloop.run(replay(Path(directory), given.trace, expected, settings, console, step, backend=backend))
    except (AnswersError, ImportFileError, *START_FAULTS) as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2
    except (ImportStoppedError, NotListedError) as error:
        print(f"replay: {error}", file=sys.stderr)
        return 1
    except QimError as error:
        print("\n".join(["replay:", *explain(error).lines()]), file=sys.stderr)
        return 1
    seconds = time.monotonic() - began
    console.print(f"{found.done:,} lines carried out, {found.refused:,} refused; {seconds:.1f} s in all")
    for difference in found.differences:
        print(difference)
    print(f"{found.compared - len(found.differences)} passed, {len(found.differences)} failed")
    return 1 if found.differences else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make replay",
        description="Import a room's history into a suite of its own and compare each person with the right answers.",
        usage="make replay TRACE=room.jsonl EXPECT=room.csv [NEWCOMER=LAST_N:100] [REJOIN=ALL_STAYS] [LEAVER=NONE] "
        "[BACKEND=tiered [CASSANDRA=directory]]",
    )
    parser.add_argument("trace", metavar="TRACE", type=_file, help="the history (docs/import-format.md)")
    parser.add_argument("expect", metavar="EXPECT", type=_file, help="the right answers, one row per person")
    parser.add_argument(
        "--newcomer", metavar="NEWCOMER", type=_newcomer, default="SINCE_JOIN", help="SINCE_JOIN, LAST_N:n or ALL"
    )
    parser.add_argument("--rejoin", metavar="REJOIN", choices=list(RejoinHistory.__members__), default="LATEST_STAY")
    parser.add_argument("--leaver", metavar="LEAVER", choices=list(LeaverHistory.__members__), default="UNTIL_LEFT")
    parser.add_argument("--backend", metavar="BACKEND", choices=list(Backend), default=Backend.REDIS)
    parser.add_argument("--cassandra", metavar="CASSANDRA", type=Path, help=CLUSTER_HELP)
    return parser


def _file(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("is not given; name both TRACE=... and EXPECT=...")
    return Path(text)


def _newcomer(text: str) -> tuple[NewcomerPolicy, int]:
    match = re.fullmatch(r"LAST_N:([1-9][0-9]{0,9})", text, re.ASCII)
    if match is not None and int(match[1]) <= 1_000_000_000:
        return NewcomerPolicy.LAST_N, int(match[1])
    if text in ("SINCE_JOIN", "ALL"):
        return NewcomerPolicy[text], 0
    raise argparse.ArgumentTypeError("must be SINCE_JOIN, ALL, or LAST_N:n with n from 1 to 1,000,000,000")


if __name__ == "__main__":
    sys.exit(main())

"""The demo from start to end: suite, play, checks, pictures, exit status."""

from __future__ import annotations

import asyncio
import io
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from qim_client import GatewayClient, OperatorClient
from qim_client.presentation import explain
from qim_common.errors import QimError
from qim_devkit.demo import verdict
from qim_devkit.demo.chapter import ALL_STAYS, CHAPTER, Chapter
from qim_devkit.demo.checks import IN_OR_OUT, Check, check_all
from qim_devkit.demo.pictures import Pictures
from qim_devkit.demo.play import CALL_SECONDS, TENANT, Performance, Stage
from qim_devkit.demo.poster import save_poster
from qim_devkit.demo.progress import Loading
from qim_devkit.demo.reading import NotListedError
from qim_devkit.demo.staging import InterruptedBySignal, on_suite
from qim_devkit.processes import SuiteError
from qim_devkit.suite import Suite
from qim_devkit.up import FIRST_COMMAND
from qim_devkit.valkey import ValkeyNotAvailable, ValkeyStartError

WIDEST: Final = 100
NARROWEST: Final = 80
"""Columns of what is printed: a terminal's own width between these, and WIDEST where there is no terminal."""

LOG_LINES: Final = 12


def main(
    chapter: Chapter = CHAPTER, *, env_overrides: Mapping[str, str] | None = None, poster: Path | None = None
) -> int:
    """Play and print everything.

    Args:
        chapter: what is expected.
        env_overrides: environment variables of the services.
        poster: where to draw README's picture, if anywhere.

    Returns the exit status: 0 when every number agrees, 1 when one does not or a service failed, 128 and the signal's
    number when somebody asked to stop.
    """
    console = _console()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="qim-demo-") as directory:
        suite = Suite(Path(directory) / "suite", valkeys=2, tenants=(int(TENANT),), env_overrides=env_overrides)
        try:
            performance = asyncio.run(_perform(suite, console))
        except (InterruptedBySignal, KeyboardInterrupt) as stop:
            # The latter only where Ctrl-C comes before the play has taken over the signals.
            number = stop.number if isinstance(stop, InterruptedBySignal) else signal.SIGINT
            console.print(f"Stopped by {number.name}; everything has ended.", style="yellow")
            return 128 + number
        except (SuiteError, ValkeyStartError, ValkeyNotAvailable) as error:
            _print(console, verdict.failure("A process of the suite failed.", str(error)))
            return 1
        except (QimError, NotListedError) as error:
            reason = "\n".join(explain(error).lines()) if isinstance(error, QimError) else str(error)
            _print(console, verdict.failure("A call failed.", f"{reason}\n{_logs(suite)}"))
            return 1
    seconds = time.monotonic() - began
    if poster is not None:
        save_poster(performance, poster)
    checks = check_all(performance.played, chapter)
    return _show(console, performance, checks, seconds)


async def _perform(suite: Suite, console: Console) -> Performance:
    with Loading(console) as loading:

        async def play() -> Performance:
            gateway = GatewayClient(
                suite.addresses["writer"], suite.addresses["session"], suite.gateway_files(), timeout=CALL_SECONDS
            )
            backend = OperatorClient(suite.addresses["admin"], suite.backend_files(), TENANT, timeout=CALL_SECONDS)
            async with gateway, backend, gateway.open_stream() as stream:
                return await Stage(gateway, backend, stream, loading).play()

        loading.step("Starting two Valkeys, writer, session and admin")
        return await on_suite(suite, play)


def _console() -> Console:
    """Plain text where standard output is no terminal; other glyphs where it cannot show them. rich obeys NO_COLOR."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False, emoji=False, markup=False)
    console.width = max(min(console.width, WIDEST), NARROWEST) if console.is_terminal else WIDEST
    return console


def _print(console: Console, drawn: RenderableType) -> None:
    """Prints; into files and pipes without the blanks with which rich fills its lines."""
    if console.is_terminal:
        console.print(drawn)
        return
    with console.capture() as capture:
        console.print(drawn)
    console.print(Text("\n".join(line.rstrip() for line in capture.get().splitlines())), soft_wrap=True)


def _show(console: Console, performance: Performance, checks: list[Check], seconds: float) -> int:
    """Prints everything and returns the exit status."""
    ascii_only = console.options.ascii_only
    marks = verdict.Marks.of(ascii_only=ascii_only)
    pictures = Pictures(performance.played, width=console.width, ascii_only=ascii_only)
    by_policy = {play.policy: play for play in performance.played}

    def picture(drawn: RenderableType, section: str) -> None:
        below = verdict.below_picture([check for check in checks if check.section == section], marks)
        _print(console, Group(drawn, below))

    _print(console, pictures.of_changes(by_policy[ALL_STAYS]))
    picture(pictures.of_table(by_policy[ALL_STAYS]), IN_OR_OUT)
    for play in performance.played:
        picture(pictures.of_policy(play), play.policy.title)
    _print(console, Group(pictures.heading("The chapter's numbers"), verdict.chapter_table(checks, marks)))
    if wrong := [check for check in checks if not check.agrees]:
        lines = [f"{check.section}: {verdict.describe(check)}" for check in wrong]
        _print(console, verdict.failure(f"{len(wrong)} of {len(checks)} numbers differ.", "\n".join(lines)))
        return 1
    _print(console, _conclusion(performance, len(checks), seconds))
    return 0


def _conclusion(performance: Performance, checks: int, seconds: float) -> Padding:
    text = Text.assemble(
        (f"All {checks} numbers agree. ", "bold green"),
        f"{performance.messages:,} messages and {performance.changes} membership changes went over mTLS in ",
        f"{performance.seconds:.1f} s, each fsynced before its answer; everything, from an empty directory, took ",
        f"{seconds:.1f} s.\n",
        ("Next: ", "bold"),
        f"`make up`, and in another terminal `.venv/bin/qim {FIRST_COMMAND}`",
    )
    return Padding(text, (0, 1), expand=False)


def _logs(suite: Suite) -> str:
    """The last lines of every service's log: a refused call does not tell whose fault it was."""
    parts: list[str] = []
    for name in suite.service_names:
        log = suite.log(name)
        lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:] if log.exists() else []
        parts += [f"\nThe end of the log of {name}:", *(lines or ["(nothing)"])]
    return "\n".join(parts)

"""`qim-dev up`, which `make up` runs: the suite in the foreground, for development.

It prints one line when everything is ready. Ctrl-C, SIGTERM and a closed terminal stop everything in order, with exit
status 0; the data stays, and the next start finds it. One supervisor at a time uses a directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from qim_devkit.cassandra import CONTACT_POINTS_VARIABLE
from qim_devkit.cassandra.command import cassandra_down, cassandra_up
from qim_devkit.cli_program import program
from qim_devkit.paths import SuitePaths
from qim_devkit.processes import SuiteError
from qim_devkit.start_faults import START_FAULTS
from qim_devkit.suite import Suite
from qim_devkit.tiered import CLUSTER_DIRECTORY, Backend, backend_arguments

FIRST_COMMAND = "--as ana group create hikers ben cara"
TIERED_DIRECTORY = Path(".qim/tiered")
"""A directory keeps its backend, and data of both may stand side by side."""

_STORES_HINT = (
    "\nIf an instance has to be recovered first: `qim-dev up --backend tiered --stores` runs the stores without the "
    "services (docs/recovery.md)"
)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

app = typer.Typer(add_completion=False, no_args_is_help=True, help="qim on this machine, for developers.")


class DirectoryInUseError(Exception):
    """Another supervisor runs on this directory; the message names it and what to do."""


@contextlib.contextmanager
def exclusive(paths: SuitePaths) -> Iterator[None]:
    """Holds the directory's lock; the kernel gives it up when this process ends, however that ends.

    Raises DirectoryInUseError where another process holds it.
    """
    paths.root.mkdir(parents=True, exist_ok=True)
    # Append mode: opening must not erase the holder's process id.
    with paths.lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise DirectoryInUseError(
                f"`make up` already runs on {paths.root} (process {file.read().strip() or 'unknown'}); "
                "use it, or stop it with Ctrl-C in its terminal"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


async def run(suite: Suite) -> None:
    """Run the suite until a stop signal comes.

    Raises SuiteError or ValkeyStartError where a process does not start, or ends by itself; everything else is
    stopped then.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    stop = asyncio.create_task(stopped.wait())
    work = asyncio.create_task(_start_and_watch(suite))
    try:
        await asyncio.wait({stop, work}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await work
    finally:
        # A second Ctrl-C must not tear the orderly stop: the signals stay handled until it is through.
        for task in (stop, work):
            task.cancel()
        await asyncio.gather(stop, work, return_exceptions=True)
        await suite.stop()
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


async def _start_and_watch(suite: Suite) -> None:
    await suite.start()
    print(ready_line(suite), flush=True)
    await suite.watch()


def ready_line(suite: Suite) -> str:
    """The one line that tells that everything serves: the addresses, and the next command to try."""
    if not suite.service_names:
        file = _shown(suite.paths.qimctl_environment)
        return (
            f"the stores are ready{_place(suite.paths)}, without services; {file} has the variables of `qimctl recover`"
        )
    addresses = ", ".join(f"{name} {address}" for name, address in suite.addresses.items())
    place, config = suite.cassandra_place, ""
    if place is not None:
        addresses += f"; backend {suite.backend}, Cassandra {place.contact_points}, keyspace {place.keyspace}"
        # `qim` finds no file there by itself.
        config = f"--config {shlex.quote(_shown(suite.paths.client_config))} "
    return f"qim is ready{_place(suite.paths)} ({addresses}). Try: {program('qim')} {config}{FIRST_COMMAND}"


def _shown(path: Path) -> str:
    """Relative to the working directory where it lies below it."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def _place(paths: SuitePaths) -> str:
    """Where the suite lives, when it was started somewhere below the checkout, whose own `.qim` this is not."""
    checkout, root = Path(sys.executable).parents[2], paths.root.resolve()
    if root.is_relative_to(checkout) and root != checkout / ".qim":
        return f" in {root}"
    return ""


@app.command()
def up(
    directory: Annotated[
        Path | None,
        typer.Option(
            help=f"Where certificates, data and logs live. Default: .qim, {TIERED_DIRECTORY} for {Backend.TIERED}."
        ),
    ] = None,
    valkeys: Annotated[int, typer.Option(min=1, max=16, help="How many embedded Valkey instances.")] = 2,
    sessions: Annotated[int, typer.Option(min=1, max=16, help="How many replicas of the session service.")] = 1,
    backend: Annotated[Backend, typer.Option(help="Where messages are kept.")] = Backend.REDIS,
    cassandra: Annotated[
        Path | None,
        typer.Option(
            help=f"With {Backend.TIERED}: the cluster's directory. One that runs is used and stays. Default: the "
            f"Cassandra that {CONTACT_POINTS_VARIABLE} names, which nobody here starts or stops; without that "
            f"{CLUSTER_DIRECTORY}."
        ),
    ] = None,
    stores: Annotated[
        bool, typer.Option("--stores", help="Run the stores without the services, to recover one (docs/recovery.md).")
    ] = False,
) -> None:
    """Run the suite in the foreground; Ctrl-C stops it, and its data stays."""
    paths = SuitePaths((directory or (TIERED_DIRECTORY if backend == Backend.TIERED else Path(".qim"))).resolve())
    try:
        with exclusive(paths), backend_arguments(backend, cassandra, throwaway=False) as arguments:
            if stores:
                suite = Suite(paths.root, valkeys=valkeys, services=(), archivers=0, **arguments)
            else:
                suite = Suite(paths.root, valkeys=valkeys, sessions=sessions, **arguments)
            asyncio.run(run(suite))
    except (DirectoryInUseError, ValueError, *START_FAULTS) as error:
        hint = _STORES_HINT if isinstance(error, SuiteError) and backend is Backend.TIERED else ""
        raise SystemExit(f"qim: {error}{hint}") from None
    except KeyboardInterrupt:
        return  # while the cluster started, which has ended again


app.command("cassandra-up")(cassandra_up)
app.command("cassandra-down")(cassandra_down)


def main() -> None:
    """The entry point `qim-dev`."""
    app()


if __name__ == "__main__":
    main()

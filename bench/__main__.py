"""`python -m bench`: the command line of the benchmarks. `make bench` runs all of them, in about six minutes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop
from rich.console import Console

from bench.archive import ArchiveReport, ArchiveTimes, archive
from bench.baseline import Baseline, baseline
from bench.commit import CommitReport, CommitTimes, commit
from bench.connection import connection
from bench.delivery import RATES, SHAPE, DeliveryOptions, DeliveryReport, delivery
from bench.large_groups import LargeGroups, large_groups
from bench.lists import lists
from bench.projection import Projection, projection
from bench.redis_load import RedisFigures
from bench.report import Report
from bench.resources import ResourceOptions, resources
from bench.rig import BODY_BYTES, LoadOptions, Shape
from bench.script import script
from bench.scylla import comparison
from qim_devkit.start_faults import START_FAULTS
from qim_devkit.tiered import CLUSTER_HELP, Backend, backend_arguments

SHAPES: Final = (Shape(groups=200, members=10), Shape(groups=20, members=500))

app = typer.Typer(add_completion=False, help="Benchmarks of the services, on this machine.")


class Output(StrEnum):
    """How the report is printed."""

    TABLE = "table"
    JSON = "json"


Quick = Annotated[bool, typer.Option("--quick", help="Shorter runs: the whole in about a minute, and less exact.")]
Format = Annotated[Output, typer.Option("--output", help="Tables, or one JSON document.")]
Rate = Annotated[float, typer.Option(min=100, help="Messages a second offered for the latency figures.")]
Seconds = Annotated[float, typer.Option(min=1, help="How long the fixed rate is offered.")]
Valkeys = Annotated[int, typer.Option(min=1, max=8, help="Embedded Valkey instances.")]
Gateways = Annotated[int, typer.Option(min=1, max=8, help="Load generator processes.")]
Streams = Annotated[int, typer.Option(min=1, max=64, help="SendMessages streams of each load generator.")]
Tick = Annotated[float, typer.Option(min=1, max=100, help="Milliseconds whose messages travel in one frame.")]
Groups = Annotated[int, typer.Option(min=0, help="Groups of one shape instead of the two usual ones; with --members.")]
Members = Annotated[int, typer.Option(min=1, max=1000, help="Members of each group; with --groups.")]
Rates = Annotated[list[float] | None, typer.Option("--rate", help="Messages a second; repeat it for several.")]
Subscriptions = Annotated[int, typer.Option("--streams", min=1, max=8, help="Subscribe streams of the subscriber.")]
Acknowledge = Annotated[float, typer.Option(min=0, help="Seconds after which devices acknowledge; 0: they do not.")]
OnBackend = Annotated[Backend, typer.Option(help="redis, or tiered: with a Cassandra cluster beside.")]
Cassandra = Annotated[Path | None, typer.Option(metavar="DIRECTORY", help=CLUSTER_HELP)]
Profile = Annotated[str, typer.Option(help="A file for cProfile figures of the load generator or subscriber.")]


@app.command("commit")
def commit_command(
    rate: Rate = 10_000,
    seconds: Seconds = 30,
    valkeys: Valkeys = 1,
    gateways: Gateways = 1,
    streams: Streams = 2,
    tick_ms: Tick = 2.0,
    groups: Groups = 0,
    members: Members = 10,
    profile: Profile = "",
    quick: Quick = False,
    output: Format = Output.TABLE,
) -> None:
    """The commit path end to end, with a raw baseline before it."""
    options = LoadOptions(valkeys, gateways, streams, tick_ms, profile)
    shapes = (Shape(groups, members),) if groups else SHAPES

    async def measure() -> Report:
        plain = await _baseline(quick=quick)
        reports = await _commit(shapes, options, _times(rate, seconds, quick=quick))
        return Report(options, baseline=plain, commit=reports)

    _finish(measure, output)


@app.command("script")
def script_command(quick: Quick = False, output: Format = Output.TABLE) -> None:
    """The send script alone, batched and message by message, over 200 groups and in one."""

    async def measure() -> Report:
        return Report(LoadOptions(), script=await _script(quick=quick))

    _finish(measure, output)


@app.command("connection")
def connection_command(quick: Quick = False, output: Format = Output.TABLE) -> None:
    """The client's CPU per call: qim's connection against redis-py."""

    async def measure() -> Report:
        return Report(LoadOptions(), connection=await connection(quick=quick))

    _finish(measure, output)


@app.command("groups")
def groups_command(quick: Quick = False, output: Format = Output.TABLE) -> None:
    """Groups of 100,000 and long unread spans: how long each script call holds the instance."""

    async def measure() -> Report:
        return Report(LoadOptions(), groups=await _groups(quick=quick))

    _finish(measure, output)


@app.command("projection")
def projection_command(quick: Quick = False, output: Format = Output.TABLE) -> None:
    """The script that projects and registers, against a bare ZADD GT of the same data."""

    async def measure() -> Report:
        return Report(LoadOptions(), projection=await _projection(quick=quick))

    _finish(measure, output)


@app.command("lists")
def lists_command(quick: Quick = False, output: Format = Output.TABLE) -> None:
    """The list of a person with 5,000 conversations, page by page."""

    async def measure() -> Report:
        return Report(LoadOptions(), lists=await lists(_tell, quick=quick))

    _finish(measure, output)


@app.command("delivery")
def delivery_command(
    rate: Rates = None,
    seconds: Seconds = 15,
    streams: Subscriptions = 2,
    groups: Groups = 0,
    members: Members = 10,
    acknowledge: Acknowledge = 5.0,
    tick_ms: Tick = 2.0,
    profile: Profile = "",
    quick: Quick = False,
    output: Format = Output.TABLE,
) -> None:
    """From the send to the subscribers' streams, everything that a device must get verified."""
    options = DeliveryOptions(
        shape=Shape(groups, members) if groups else SHAPE,
        rates=tuple(rate or RATES),
        seconds=seconds,
        streams=streams,
        acknowledge_seconds=acknowledge,
        tick_ms=tick_ms,
        profile=profile,
    )

    async def measure() -> Report:
        return Report(LoadOptions(), delivery=await _delivery(options, quick=quick))

    _finish(measure, output)


@app.command("archive")
def archive_command(
    rate: Rate = 10_000,
    seconds: Seconds = 20,
    groups: Groups = 0,
    members: Members = 10,
    cassandra: Cassandra = None,
    quick: Quick = False,
    output: Format = Output.TABLE,
) -> None:
    """The archiver beside the commit path, and on a full outbox; needs Cassandra."""
    options = LoadOptions(backend=Backend.TIERED, cassandra=cassandra)
    shape = Shape(groups, members) if groups else SHAPES[0]

    async def measure() -> Report:
        return Report(options, archive=await _archive(shape, options, rate, seconds, quick=quick))

    _finish(measure, output)


@app.command("tiered")
def tiered_command(cassandra: Cassandra = None, quick: Quick = False, output: Format = Output.TABLE) -> None:
    """What differs with the backend tiered: commits beside those of the backend redis, and archiving."""
    options = LoadOptions(backend=Backend.TIERED, cassandra=cassandra)

    async def measure() -> Report:
        times = _times(10_000, 15, quick=quick)
        # Before the first run: where there is no cluster, that is told at once.
        with backend_arguments(Backend.TIERED, cassandra):
            plain = await _commit(SHAPES[:1], LoadOptions(), times)
            tiered = await _commit(SHAPES[:1], options, times)
            archived = await _archive(SHAPES[0], options, 10_000, 20, quick=quick)
        return Report(options, commit=[*plain, *tiered], archive=archived)

    _finish(measure, output)


@app.command("scylla")
def scylla_command(cassandra: Cassandra = None, quick: Quick = False, output: Format = Output.TABLE) -> None:
    """The comparison backend on a Cassandra cluster, beside redis, about half a minute; not part of `all`."""

    async def measure() -> Report:
        return Report(LoadOptions(), scylla=await comparison(_tell, quick=quick, cassandra=cassandra))

    _finish(measure, output)


@app.command("resources")
def resources_command(
    rate: Rates = None,
    seconds: Seconds = 15,
    cassandra: Cassandra = None,
    quick: Quick = False,
    output: Format = Output.TABLE,
) -> None:
    """Memory and CPU of every process, idle and per message, and requests and limits that follow; not part of `all`.
    With --cassandra the backend is tiered, with an archiver."""
    options = ResourceOptions(seconds=seconds, cassandra=cassandra)
    if rate:
        options = replace(options, rates=tuple(rate))
    if quick:
        options = replace(options, seconds=min(seconds, 4), idle_seconds=4)

    async def measure() -> Report:
        return Report(LoadOptions(), resources=await resources(options, _tell))

    _finish(measure, output)


@app.command("all")
def all_command(quick: Quick = False, output: Format = Output.TABLE) -> None:
    """Everything (the default)."""

    async def measure() -> Report:
        options = LoadOptions()
        return Report(
            options,
            baseline=await _baseline(quick=quick),
            commit=await _commit(SHAPES, options, _times(10_000, 30, quick=quick)),
            script=await _script(quick=quick),
            connection=await connection(quick=quick),
            groups=await _groups(quick=quick),
            projection=await _projection(quick=quick),
            lists=await lists(_tell, quick=quick),
            delivery=await _delivery(DeliveryOptions(), quick=quick),
        )

    _finish(measure, output)


@app.callback(invoke_without_command=True)
def default(
    context: typer.Context,
    quick: Quick = False,
    output: Format = Output.TABLE,
    backend: OnBackend = Backend.REDIS,
    cassandra: Cassandra = None,
) -> None:
    """Runs everything when no command is named; with `--backend tiered` what differs there."""
    if context.invoked_subcommand is not None:
        return
    if backend is Backend.TIERED:
        tiered_command(cassandra=cassandra, quick=quick, output=output)
    else:
        all_command(quick=quick, output=output)


def _times(rate: float, seconds: float, *, quick: bool) -> CommitTimes:
    times = CommitTimes(rate=rate, seconds=seconds, warmup_seconds=2, closed_seconds=6, step_seconds=5)
    if quick:
        return replace(
            times, seconds=min(seconds, 4), warmup_seconds=1, closed_seconds=2, step_seconds=1, steps=(0.9, 0.7, 0.5)
        )
    return times


async def _baseline(*, quick: bool) -> Baseline:
    _tell("raw baseline")
    return await baseline(25_600 if quick else 204_800, BODY_BYTES)


async def _commit(shapes: tuple[Shape, ...], options: LoadOptions, times: CommitTimes) -> list[CommitReport]:
    return [await commit(shape, options, times, _tell) for shape in shapes]


async def _archive(shape: Shape, options: LoadOptions, rate: float, seconds: float, *, quick: bool) -> ArchiveReport:
    times = ArchiveTimes(rate=rate, seconds=seconds)
    if quick:
        times = replace(times, seconds=min(seconds, 6), warmup_seconds=3, fill_seconds=2)
    return await archive(shape, options, times, _tell)


async def _script(*, quick: bool) -> list[RedisFigures]:
    _tell("the send script alone")
    return await script(12_800 if quick else 51_200)


async def _groups(*, quick: bool) -> LargeGroups:
    _tell("large groups")
    return await large_groups(quick=quick)


async def _projection(*, quick: bool) -> Projection:
    _tell("projection")
    return await projection(quick=quick)


async def _delivery(options: DeliveryOptions, *, quick: bool) -> DeliveryReport:
    if quick:
        options = replace(options, seconds=min(options.seconds, 4), warmup_seconds=1)
    return await delivery(options, _tell)


def _tell(what: str) -> None:
    Console(stderr=True, highlight=False).print(f"[dim]{what}[/dim]")


def _finish(measure: Callable[[], Awaitable[Report]], output: Output) -> None:
    async def run() -> Report:
        return await measure()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            report = runner.run(run())
        except (ValueError, *START_FAULTS) as error:
            raise SystemExit(f"bench: {error}") from None
    if output is Output.JSON:
        sys.stdout.write(report.to_json() + "\n")
    else:
        report.print()
    if report.faults:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()

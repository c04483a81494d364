"""Reports as tables for people, and as one JSON document."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table

from bench.archive import ArchiveReport
from bench.archive_table import archive_table
from bench.baseline import Baseline
from bench.commit import CommitReport, carries
from bench.connection import ClientCost
from bench.delivery import DeliveryReport
from bench.figures import Latency, histogram_quantile
from bench.large_groups import SMALL, LargeGroups
from bench.lists import ListReport
from bench.projection import Projection
from bench.redis_load import RedisFigures
from bench.resources import ResourceReport
from bench.resources_table import resources_table
from bench.rig import LoadOptions, Measured
from bench.scylla import Comparison, comparison_table
from bench.session_tables import delivery_table, lists_table, projection_table, verdict

_WIDTH: Final = 140
"""Columns where the output is no terminal."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one run measured; what was not asked for is None."""

    options: LoadOptions
    baseline: Baseline | None = None
    commit: Sequence[CommitReport] | None = None
    script: Sequence[RedisFigures] | None = None
    connection: Sequence[ClientCost] | None = None
    groups: LargeGroups | None = None
    projection: Projection | None = None
    lists: ListReport | None = None
    delivery: DeliveryReport | None = None
    archive: ArchiveReport | None = None
    scylla: Comparison | None = None
    resources: ResourceReport | None = None

    @property
    def faults(self) -> list[str]:
        """What the verifications found wrong."""
        verified = (*(self.commit or ()), self.lists, self.delivery, self.scylla, self.archive, self.resources)
        return [fault for part in verified if part is not None for fault in part.faults]

    def to_json(self) -> str:
        """The whole report, with the machine it was taken on."""
        machine = {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
        document = {"machine": machine, **{name: part for name, part in asdict(self).items() if part is not None}}
        return json.dumps(document, indent=2)

    def print(self) -> None:
        """As tables on standard output."""
        console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
        for part in self._tables():
            console.print(part)

    def _tables(self) -> list[RenderableType]:
        parts: list[RenderableType] = []
        if self.baseline:
            parts.append(_redis_table("raw baseline, appendfsync always", self.baseline.commands))
            parts.append(f"64 KiB and fdatasync, ms: {_latency(self.baseline.fsync)}")
        parts += [_commit_table(report) for report in self.commit or ()]
        if self.script:
            parts.append(_redis_table("the send script alone", self.script))
        if self.connection:
            parts.append(_connection_table(self.connection))
        if self.groups:
            parts.append(_groups_table(self.groups))
        if self.projection:
            parts.append(projection_table(self.projection))
        if self.lists:
            parts.append(lists_table(self.lists))
        if self.delivery:
            parts.append(delivery_table(self.delivery))
        if self.scylla:
            parts.append(comparison_table(self.scylla))
        if self.archive:
            parts.append(archive_table(self.archive))
        if self.resources:
            parts.append(resources_table(self.resources))
        return parts


def _latency(latency: Latency | None) -> str:
    if latency is None:
        return "-"
    return f"P50 {latency.p50:.2f}  P99 {latency.p99:.2f}  P99.9 {latency.p999:.2f}  max {latency.max:.2f}"


def _commit_table(report: CommitReport) -> RenderableType:
    table = Table(
        title=f"the commit path: {report.shape}, backend {report.backend}", title_justify="left", box=SIMPLE_HEAD
    )
    for column in ("", "offered/s", "achieved/s", "P50 ms", "P99", "P99.9", "max"):
        table.add_column(column, justify="right" if column else "left")
    for name in report.fixed.cpu_us:
        table.add_column(f"{name} us", justify="right")
    for column in ("cores", "errors"):
        table.add_column(column, justify="right")
    rows = [("fixed rate", report.fixed), ("closed loop", report.closed)]
    rows += [("carried" if carries(step) else "not carried", step) for step in report.steps]
    for name, measured in rows:
        table.add_row(name, *_measured(measured))
    best = f"{report.carried.offered:,.0f}/s" if report.carried else "none of the rates tried"
    lines = [
        f"highest rate committed: {report.closed.achieved:,.0f}/s; carried open loop, P99 within 100 ms: {best}",
        f"at the fixed rate: sends a script call {_shares(report.fixed.batches)}; {_calls(report.fixed)}",
        f"in the closed loop: sends a script call {_shares(report.closed.batches)}; {_calls(report.closed)}",
    ]
    verified = f"verified: {report.acknowledged:,} acknowledged, seqs dense, heads equal"
    return Group(table, *lines, verdict(verified, report.faults), "")


def _measured(measured: Measured) -> list[str]:
    latency = measured.latency
    figures = ["-"] * 4 if latency is None else [f"{part:.1f}" for part in asdict(latency).values()]
    cpu = [f"{microseconds:.1f}" for microseconds in measured.cpu_us.values()]
    errors = ", ".join(f"{reason} {count}" for reason, count in measured.errors.items()) or "0"
    offered = f"{measured.offered:,.0f}" if measured.offered else "-"
    return [offered, f"{measured.achieved:,.0f}", *figures, *cpu, f"{measured.cores:.2f}", errors]


def _shares(batches: dict[str, float]) -> str:
    return ", ".join(f"{size}: {share:.1%}" for size, share in batches.items() if share >= 0.005)


def _calls(measured: Measured) -> str:
    half, most = (histogram_quantile(measured.commit_buckets, share) * 1e3 for share in (0.5, 0.99))
    return f"{measured.calls_per_second:,.0f} calls/s, half within {half:g} ms, 99 % within {most:g} ms"


def _redis_table(title: str, figures: Sequence[RedisFigures]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in ("", "a call", "in flight", "messages/s", "Redis us", "client us", "call P50 ms", "P99", "max"):
        table.add_column(column, justify="right" if column else "left")
    for row in figures:
        latency = (f"{part:.2f}" for part in (row.latency.p50, row.latency.p99, row.latency.max))
        counts = (str(row.per_call), str(row.in_flight), f"{row.per_second:,.0f}")
        table.add_row(row.name, *counts, f"{row.redis_us:.2f}", f"{row.client_us:.2f}", *latency)
    return table


def _connection_table(costs: Sequence[ClientCost]) -> Table:
    table = Table(title="client CPU per call, us", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("client")
    for shape in costs[0].cpu_us:
        table.add_column(shape, justify="right")
    for cost in costs:
        table.add_row(cost.client, *(f"{figure:.1f}" for figure in cost.cpu_us.values()))
    return table


def _groups_table(groups: LargeGroups) -> RenderableType:
    table = Table(title="large groups: a script call, on the instance", title_justify="left")
    for column in ("script", "", "calls", "P50 ms", "max ms", "CPU P50 ms"):
        table.add_column(column, justify="left" if column in ("script", "") else "right")
    for row in groups.times:
        figures = (f"{ms:.2f}" for ms in (row.median_ms, row.max_ms, row.cpu_ms))
        table.add_row(row.script, row.situation, str(row.calls), *figures)
    slowest = max(row.median_ms for row in groups.times)
    growth = ", ".join(f"{change} {times:.2f}" for change, times in groups.growth.items())
    lines = [
        f"slowest median: {slowest:.2f} ms (bound: 5)",
        f"CPU with {groups.members:,} members, as a multiple of that with {SMALL}: {growth}",
    ]
    return Group(table, *lines, "")

"""The tables of the session service's benchmarks: projection, lists, delivery."""

from __future__ import annotations

from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.delivery import DeliveryReport
from bench.figures import Latency
from bench.lists import PAGE_BOUND_MS, PAGE_SIZES, ListReport
from bench.projection import RATIO_BOUND, Projection

_FAULTS_SHOWN: Final = 20


def projection_table(report: Projection) -> RenderableType:
    """CPU per entry, and the ratio to the bare command."""
    title = f"projection: {report.people:,} people, {report.entries_a_call} entries a call"
    table = _table(title, ("", "lists of", "entries new", "Redis us an entry", "a call, P50 ms", "ratio"))
    for cost in report.costs:
        figures = (f"{cost.redis_us:.2f}", f"{cost.call_ms:.2f}", f"{cost.ratio:.2f}")
        table.add_row(cost.way, str(cost.conversations), "all" if cost.new else "none", *figures)
    return Group(table, f"highest ratio of project_entries: {report.worst:.2f} (bound: {RATIO_BOUND:g})", "")


def lists_table(report: ListReport) -> RenderableType:
    """Latency and CPU of a call."""
    title = f"a person with {report.conversations:,} conversations"
    columns = ("", "calls", "P50 ms", "P99", "max", "session CPU ms", "writer", "redis")
    table = _table(title, columns)
    for row in report.times:
        latency = (f"{ms:.2f}" for ms in (row.latency.p50, row.latency.p99, row.latency.max))
        cpu = (f"{row.cpu_ms[name]:.2f}" for name in ("session", "writer", "redis"))
        table.add_row(row.call, str(row.calls), *latency, *cpu)
    half = report.times[0].latency.p50
    bound = f"half of the pages of {PAGE_SIZES[0]} within {half:.2f} ms (bound: {PAGE_BOUND_MS:g})"
    return Group(table, bound, verdict("every pass showed every conversation once", report.faults), "")


def delivery_table(report: DeliveryReport) -> RenderableType:
    """Latencies of the acknowledgement and of the deliveries, and CPU per message."""
    title = f"delivery: {report.shape}, {report.devices:,} devices on {report.streams} streams"
    columns = ("offered/s", "", "P50 ms", "P99", "P99.9", "max")
    table = _table(title, columns)
    lines = []
    for stage in report.stages:
        rows = (
            ("due to acknowledged", stage.acknowledged),
            ("due to delivered", stage.from_due),
            ("acknowledged to delivered", stage.from_acknowledged),
        )
        for name, latency in rows:
            table.add_row(f"{stage.offered:,.0f}", name, *_figures(latency))
        cpu = ", ".join(f"{name} {us:.0f}" for name, us in stage.cpu_us.items())
        errors = ", ".join(f"{reason} {count}" for reason, count in stage.errors.items()) or "none"
        lines.append(
            f"at {stage.offered:,.0f}/s: {stage.achieved:,.0f}/s committed, {stage.deliveries:,} of {stage.expected:,} "
            f"deliveries in {stage.events:,} events and {stage.frames:,} frames; late {stage.late:.1%}, errors {errors}"
        )
        lines.append(f"  CPU us a message: {cpu}; {stage.cores:.2f} cores")
    verified = f"verified: {report.messages:,} acknowledged messages, each once on each of its devices, in order"
    return Group(table, *lines, verdict(verified, report.faults), "")


def verdict(verified: str, faults: list[str]) -> Text:
    """What the verification found."""
    if faults:
        return Text("\n".join(["NOT VERIFIED", *faults[:_FAULTS_SHOWN]]), style="bold red")
    return Text(verified, style="green")


def _figures(latency: Latency | None) -> list[str]:
    if latency is None:
        return ["-"] * 4
    return [f"{part:.1f}" for part in (latency.p50, latency.p99, latency.p999, latency.max)]


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    return table

"""The archiver's figures as a table."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from bench.archive import ArchiveReport, Archiving
from bench.session_tables import verdict


def archive_table(report: ArchiveReport) -> RenderableType:
    """The archiver beside the commits, and on a full outbox."""
    table = Table(title=f"archiving: {report.shape}", title_justify="left", box=SIMPLE_HEAD)
    for column in ("", "messages/s", "a request", "lag s, half", "99 %", "max"):
        table.add_column(column, justify="right" if column else "left")
    names = list(report.beside.cpu_us)
    for name in names:
        table.add_column(f"{name} us", justify="right")
    table.add_column("cores", justify="right")
    rows: list[tuple[str, Archiving]] = [("beside the commits", report.beside), ("a full outbox", report.drained)]
    for title, row in rows:
        lags = (f"{row.lag_half:g}", f"{row.lag_most:g}", f"{row.lag_max:.2f}")
        cpu = (f"{row.cpu_us[name]:.1f}" for name in names)
        table.add_row(title, f"{row.per_second:,.0f}", f"{row.per_request:.1f}", *lags, *cpu, f"{row.cores:.2f}")
    found = report.commit.latency
    latency = f"P50 {found.p50:.1f}  P99 {found.p99:.1f}  max {found.max:.1f}" if found else "-"
    commits = f"commits meanwhile: {report.commit.achieved:,.0f}/s, ms: {latency}"
    verified = f"verified: {report.acknowledged:,} acknowledged and archived, seqs dense, heads equal"
    return Group(table, commits, verdict(verified, report.faults), "")

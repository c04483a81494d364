"""The tables of the resources, and the requests and limits that follow."""

from __future__ import annotations

from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from bench.resources import ResourceReport
from bench.session_tables import verdict
from bench.sizing import SIZED_FOR, kept_bytes

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_EXAMPLES: Final = ((10.0, 24.0), (100.0, 24.0), (500.0, 6.0))
"""Messages a second on average, and hours that Valkey keeps them."""


def resources_table(report: ResourceReport) -> RenderableType:
    """Memory, CPU, Valkey's memory per message, and what follows."""
    processes = list(report.idle_cores)
    title = f"resources, backend {report.backend}, {report.devices:,} devices attached: "
    memory = _table(title + "resident memory, MiB", ("", *processes))
    memory.add_row("after the start", *_mib(report.started_bytes))
    memory.add_row("with groups and devices", *_mib(report.attached_bytes))
    cpu = _table("CPU seconds for 1,000 messages, beside the idle CPU", ("", "messages", "achieved/s", *processes))
    cpu.add_row("idle, cores", "", "", *(f"{cores:.3f}" for cores in report.idle_cores.values()))
    for load in report.loads:
        name = f"groups of {load.members}, {load.offered:,.0f}/s"
        memory.add_row(f"at most: {name}", *_mib(load.highest_bytes))
        figures = (f"{load.cpu_per_thousand(process, report.idle_cores[process]):.3f}" for process in processes)
        cpu.add_row(name, f"{load.committed:,}", f"{load.achieved:,.0f}", *figures)
    lines = [f"refused at {load.offered:,.0f}/s: {load.errors}" for load in report.loads if load.errors]
    for load in report.loads:
        stored = load.stored_per_message
        lines.append(
            f"Valkey keeps {stored:,.0f} bytes a message in groups of {load.members} at {load.offered:,.0f}/s: "
            f"{stored * 1e5 / _MIB:,.0f} MiB for 100,000"
        )
    most = max(load.stored_per_message for load in report.loads)
    for rate, hours in _EXAMPLES:
        lines.append(f"{rate:g}/s on average for {hours:g} h at that: {kept_bytes(most, rate, hours) / _GIB:.1f} GiB")
    sized = _table(f"for {SIZED_FOR:,.0f} messages/s a replica", ("", "CPU request, m", "memory, MiB"))
    for one in report.sizing:
        sized.add_row(one.process, str(one.cpu_request), str(one.memory))
    return Group(memory, cpu, *lines, sized, verdict("every attached device got everything once", report.faults), "")


def _mib(sizes: dict[str, int]) -> list[str]:
    return [f"{size / _MIB:,.0f}" for size in sizes.values()]


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    return table

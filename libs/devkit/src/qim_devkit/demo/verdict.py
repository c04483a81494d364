"""Draws the checks: a line below each picture, the chapter's numbers in a table, and what it comes to. For rich."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from qim_devkit.demo.chapter import POLICIES
from qim_devkit.demo.checks import Check

RIGHT = "green"
WRONG = "bold red"


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands before a number that agrees, and before one that does not."""

    right: str
    wrong: str

    @classmethod
    def of(cls, *, ascii_only: bool) -> Marks:
        """The marks that the terminal can show."""
        return cls("ok", "XX") if ascii_only else cls("✓", "✗")


def below_picture(checks: Sequence[Check], marks: Marks) -> RenderableType:
    """One green line where all agree, else a red one for each that does not."""
    wrong = [check for check in checks if not check.agrees]
    lines = [Text(f"{marks.wrong} {describe(check)}", style=WRONG) for check in wrong]
    if not wrong:
        lines = [Text(f"{marks.right} {len(checks)} numbers checked, all agree", style=RIGHT)]
    return Padding(Group(*lines), (1, 1, 0, 1), expand=False)


def describe(check: Check) -> str:
    """A check in words."""
    return f"{check.what}: expected {check.expected}, found {check.found}"


def chapter_table(checks: Sequence[Check], marks: Marks) -> RenderableType:
    """The numbers that the chapter itself names, each once, beside what was found wherever it was looked for."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for header in ("", "what the chapter counts"):
        table.add_column(header, no_wrap=True)
    for header in ("chapter", "found"):
        table.add_column(header, justify="right")
    table.add_column("where")
    merged: dict[tuple[str, str, str], list[str]] = {}
    for check in checks:
        if check.chapter:
            merged.setdefault((check.what, check.expected, check.found), []).append(check.section)
    for (what, expected, found), sections in merged.items():
        agrees = expected == found
        style = RIGHT if agrees else WRONG
        mark = marks.right if agrees else marks.wrong
        everywhere = len(sections) == len(POLICIES)
        where = Text("under every policy" if everywhere else ", ".join(sections), style="dim")
        table.add_row(Text(mark, style=style), what, expected, Text(found, style=style), where)
    return Padding(table, (1, 1), expand=False)


def failure(title: str, text: str) -> RenderableType:
    """A red box."""
    return Panel(Text(text), title=Text(f" {title} ", style=WRONG), title_align="left", border_style=WRONG)

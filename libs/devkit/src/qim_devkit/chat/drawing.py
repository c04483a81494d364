"""How a chat looks, as rich text: lines of a conversation, rows of the list. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from qim_client import Conversation, MemberState
from qim_client.presentation import body_text
from qim_devkit.chat.lines import Line, LineKind, event_line
from qim_devkit.chat.names import Names

FAINT: Final = "#7480a6"
CHOSEN: Final = "#7aa2f7"
EDGE: Final = "#e0af68"
NEW: Final = "#f7768e"
WITHHELD: Final = "#bb9af7"
MINE: Final = "#9ece6a"
BADGE: Final = "bold #1a1b26 on #7aa2f7"
QUIET_BADGE: Final = "#1a1b26 on #565f89"
PEOPLE: Final = ("#7dcfff", "#ff9e64", "#bb9af7", "#73daca", "#e0af68", "#7aa2f7", "#f7768e", "#b4f9f8")

SEQ_COLUMNS: Final = 5
NAME_COLUMNS: Final = 10
TIME_COLUMNS: Final = 6
WITH_TIMES: Final = 56
"""Columns from which on times are shown."""

_WRAPPING = Console(width=80)


def person_style(name: str, *, mine: bool) -> str:
    """The colour of a person's name, always the same one."""
    return f"bold {MINE}" if mine else f"bold {PEOPLE[hashlib.blake2s(name.encode()).digest()[12] % len(PEOPLE)]}"


def draw_line(line: Line, width: int, *, times: bool) -> list[Text]:
    """One line of a conversation in `width` columns, as one row or more."""
    if line.kind in (LineKind.EDGE, LineKind.NEW):
        return _rule(line.text, width, NEW if line.kind is LineKind.NEW else EDGE)
    clock = times and width >= WITH_TIMES and bool(line.time_ms)
    seq = "…" if line.kind is LineKind.PENDING else str(line.seq or "")
    head = Text().append(f"{seq:>{SEQ_COLUMNS}} ", style=FAINT)
    match line.kind:
        case LineKind.EVENT:
            body = Text(line.text, style=f"italic {FAINT}")
            mark = Text("·".rjust(NAME_COLUMNS), style=FAINT)
        case LineKind.WITHHELD:
            body = Text(line.text, style=f"italic {WITHHELD}")
            mark = Text("▒".rjust(NAME_COLUMNS), style=WITHHELD)
        case _:
            body = Text(line.text, style=FAINT if line.kind is LineKind.PENDING else "")
            shown = _cropped(line.sender, NAME_COLUMNS)
            mark = Text(" " * (NAME_COLUMNS - cell_len(shown)) + shown, style=person_style(line.sender, mine=line.mine))
    head.append_text(mark).append("  ")
    room = max(width - head.cell_len - (TIME_COLUMNS if clock else 0), 8)
    rows = list(body.wrap(_WRAPPING, room)) or [Text()]
    first = head.append_text(rows[0])
    if clock:
        first.append(" " * max(width - first.cell_len - TIME_COLUMNS + 1, 1))
        first.append(datetime.fromtimestamp(line.time_ms / 1000).astimezone().strftime("%H:%M"), style=FAINT)
    indent = " " * (SEQ_COLUMNS + 1 + NAME_COLUMNS + 2)
    return [first, *(Text(indent).append_text(row) for row in rows[1:])]


def draw_entry(entry: Conversation, names: Names, width: int) -> tuple[Text, Text]:
    """One conversation of the list in `width` columns: its name with state, marks and unread; its newest message."""
    marks = [
        *([entry.state.name] if entry.state is not MemberState.MEMBER else []),
        *(["muted"] if entry.muted else []),
        *(["hidden"] if entry.hidden else []),
    ]
    right = Text()
    for mark in marks:
        right.append(mark, style=f"bold {EDGE}" if mark.isupper() else FAINT).append(" ")
    if entry.unread_count:
        right.append(f" {entry.unread_count:,} ", style=QUIET_BADGE if entry.muted else BADGE)
    name = _cropped(names.conversation(entry.conversation), max(width - right.cell_len - 1, 4))
    outside = entry.state is not MemberState.MEMBER
    first = Text(name, style=FAINT if outside else "bold" if entry.unread_count else "")
    first.append(" " * max(width - cell_len(name) - right.cell_len, 1)).append_text(right)
    return first, Text(_cropped(preview(entry, names), width), style=FAINT)


def preview(entry: Conversation, names: Names) -> str:
    """The newest visible message on one line."""
    message = entry.preview
    if message is None:
        return "nothing to see" if entry.state is not MemberState.MEMBER else "nothing yet"
    if message.event is not None:
        return event_line(message.event, names.person)
    return f"{names.person(message.sender)}: {body_text(message.body)}"


def help_table(commands: Sequence[tuple[str, str]]) -> Table:
    """A table of words and what they do."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold #7aa2f7")
    table.add_column()
    for word, meaning in commands:
        table.add_row(Text(word), Text(meaning))
    return table


def _rule(words: str, width: int, style: str) -> list[Text]:
    rows = Text(words).wrap(_WRAPPING, max(width - 8, 8))
    drawn: list[Text] = []
    for row in rows:
        row.rstrip()
        fill = max(width - row.cell_len - 2, 2)
        left = fill // 2
        drawn.append(Text(f"{'─' * left} {row.plain} {'─' * (fill - left)}", style=style))
    return drawn


def _cropped(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)) + "…"

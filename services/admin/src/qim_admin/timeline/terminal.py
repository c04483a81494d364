"""A timeline in the terminal: one row a person on a shared axis of seqs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from qim_admin.timeline.reading import PersonLine, Timeline
from qim_admin.timeline.spans import Kind, ends, spans, ticks
from qim_admin.words import Line
from qim_client import MemberState
from qim_client.words import NameOf

MIN_WIDTH: Final = 60
MAX_WIDTH: Final = 240
_COLUMNS_PER_TICK: Final = 12

_GLYPHS: Final = {Kind.SHOWN: "█", Kind.HIDDEN: "░", Kind.BACKLOG: "▂"}
_STYLES: Final = {"█": "green", "░": "red", "▂": "cyan", "▓": "yellow", "L": "bold", "R": "bold red", "#": "bold"}
_MIXED: Final = "▓"
_SEVERAL: Final = "#"
_FLOOR: Final = "F"
_LEGEND: Final = {
    **{glyph: kind.value for kind, glyph in _GLYPHS.items()},
    _MIXED: "in the group, partly hidden",
    "L": "left",
    "R": "removed",
    _SEVERAL: "several ends in one column",
    _FLOOR: "floor: nobody reads up to it",
}


def bars(timeline: Timeline, name_of: NameOf, width: int) -> list[Text]:
    """The axis, one row a person, and the legend of what occurs, in `width` columns."""
    width = min(max(width, MIN_WIDTH), MAX_WIDTH)
    head = timeline.group.head_seq
    if not head:
        return [Text("no seq yet: the group is as it was created", style="dim")]
    names = [name_of(person.user) for person in timeline.people]
    column = min(max((cell_len(name) for name in names), default=0), width * 2 // 5)
    room = width - column - 1
    rows = [cells(person, head, room) for person in timeline.people]
    labels, ruler = _axis(head, timeline.group.group_floor_seq, room)
    lines = [Text(" " * (column + 1) + labels, style="dim"), Text(" " * (column + 1) + ruler, style="dim")]
    for name, row in zip(names, rows, strict=True):
        line = Text(set_cell_size(name, column) if cell_len(name) <= column else _cropped(name, column))
        line.append(" ")
        for glyph in row.rstrip():
            line.append(glyph, _STYLES.get(glyph, ""))
        lines.append(line)
    used = {glyph for row in (*rows, ruler) for glyph in row}
    items = [Text.assemble((glyph, _STYLES.get(glyph, "")), f" {_LEGEND[glyph]}") for glyph in _LEGEND if glyph in used]
    if head > room:
        items.append(Text(f"one column: about {-(-head // room):,} seqs"))
    return [*lines, *_packed(items, width)]


def cells(person: PersonLine, head: int, room: int) -> str:
    """One person's row: `room` columns for the seqs 1 to `head`, which is at least 1."""
    # A column's share of a stretch is counted in units of 1/room of a seq, so that everything stays whole numbers.
    shares: list[dict[Kind, int]] = [{} for _ in range(room)]
    for span in spans(person, head):
        for at in range(span.start * room // head, min(-(-span.end * room // head), room)):
            share = min(span.end * room, (at + 1) * head) - max(span.start * room, at * head)
            shares[at][span.kind] = shares[at].get(span.kind, 0) + share
    row = [_glyph(share) for share in shares]
    marked: set[int] = set()
    for end in ends(person):
        at = min((end.seq - 1) * room // head, room - 1)
        row[at] = _SEVERAL if at in marked else "R" if end.state is MemberState.REMOVED else "L"
        marked.add(at)
    return "".join(row)


def events_table(lines: Sequence[Line], at_most: int) -> Table:
    """The newest `at_most` lines, oldest first."""
    table = Table("seq", "made", "time", "what", box=None, pad_edge=False, header_style="dim")
    for line in lines[-at_most:] if at_most else ():
        table.add_row(line.place, line.number, Text(line.time, no_wrap=True), Text(line.words))
    return table


def _glyph(share: dict[Kind, int]) -> str:
    if not share:
        return " "
    if Kind.SHOWN in share and Kind.HIDDEN in share:
        return _MIXED
    return _GLYPHS[max(share, key=lambda kind: (share[kind], kind is not Kind.BACKLOG))]


def _axis(head: int, floor: int, room: int) -> tuple[str, str]:
    labels, ruler = [" "] * room, ["─"] * room
    free = 0
    for seq in ticks(head, room // _COLUMNS_PER_TICK):
        at = (seq - 1) * room // head
        text = f"{seq:,}"
        if at < free or at + len(text) > room:
            continue
        labels[at : at + len(text)] = text
        ruler[at] = "┬"
        free = at + len(text) + 1
    if floor:
        ruler[min((floor - 1) * room // head, room - 1)] = _FLOOR
    return "".join(labels).rstrip(), "".join(ruler)


def _packed(items: Sequence[Text], width: int) -> list[Text]:
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + 3 + item.cell_len <= width:
            lines[-1].append("   ").append_text(item)
        else:
            lines.append(Text(style="dim").append_text(item))
    return lines


def _cropped(name: str, column: int) -> str:
    return set_cell_size(name, column - 1) + "…"

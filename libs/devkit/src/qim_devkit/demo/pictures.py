"""Draws what was found: the seq line with a row a person, the words, the legend. For rich, in 80 columns or more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from qim_devkit.demo import words
from qim_devkit.demo.chapter import ALL_STAYS
from qim_devkit.demo.line import SeqLine, seq_line
from qim_devkit.demo.sights import Played, Sight, TableSight, in_or_out

LABEL_COLUMNS: Final = 11
MARGIN: Final = 1
FIGURES: Final = ("readable", "delivered", "unread")
TABLE_FIGURES: Final = ("returned", "too many", "too few")


class Look(Enum):
    """How one stretch of a row looks: glyph, glyph in ASCII, style."""

    BOTH = ("█", "#", "green")
    READABLE = ("▒", "+", "cyan")
    DELIVERED = ("▁", "_", "yellow")
    NEITHER = ("·", ".", "dim")
    WRONG = ("▓", "X", "red")
    MISSING = ("░", "-", "magenta")
    NOT_YET = (" ", " ", "")


LEGEND: Final = (
    (Look.BOTH, "readable, delivered"),
    (Look.READABLE, "readable only"),
    (Look.DELIVERED, "delivered only"),
    (Look.NEITHER, "neither"),
)
TABLE_LEGEND: Final = (
    (Look.BOTH, "returned"),
    (Look.WRONG, "returned wrongly"),
    (Look.MISSING, "wrongly not returned"),
    (Look.NEITHER, "hidden"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One person on the line: how each seq looks, and the figures at the right."""

    label: str
    look: Callable[[int], Look]
    figures: tuple[int, int, int]


def sight_row(sight: Sight) -> Row:
    """A row of a policy's picture; figures as in FIGURES, the first one counted from what paging returned."""

    def look(seq: int) -> Look:
        if seq > sight.head:
            return Look.NOT_YET
        readable, delivered = seq in sight.visible, seq in sight.delivered.seqs
        if readable:
            return Look.BOTH if delivered else Look.READABLE
        return Look.DELIVERED if delivered else Look.NEITHER

    return Row(sight.label, look, (len(sight.history), len(sight.delivered.seqs), sight.unread))


def table_row(table: TableSight) -> Row:
    """A row of the contrast; figures as in TABLE_FIGURES."""

    def look(seq: int) -> Look:
        if seq > table.sight.head:
            return Look.NOT_YET
        if seq in table.returned:
            return Look.WRONG if seq in table.wrong else Look.BOTH
        return Look.MISSING if seq in table.missing else Look.NEITHER

    return Row(table.sight.label, look, (len(table.returned), len(table.wrong), len(table.missing)))


class Pictures:
    """All pictures share one line, so that they can be compared.

    Args:
        played: one play for each policy.
        width: columns. Raises ValueError where the line does not fit.
    """

    def __init__(self, played: Sequence[Played], *, width: int, ascii_only: bool) -> None:
        self._ascii = ascii_only
        sights = [sight for play in played for sight in play.sights]
        edges = {edge for sight in sights for edge in sight.visible.edges | sight.delivered.seqs.edges}
        figures = max(sum(map(_columns, names)) for names in (FIGURES, TABLE_FIGURES))
        self.line: SeqLine = seq_line(
            edges,
            max(play.head for play in played),
            width - 2 * MARGIN - LABEL_COLUMNS - figures,
            {seq: texts for play in played for seq, texts in play.events.items()},
        )

    def heading(self, title: str, aside: str = "", style: str = "cyan") -> RenderableType:
        """A line across that begins a section."""
        text = Text(title, style=f"bold {style}").append(f"  {aside}" if aside else "", style="not bold dim")
        return Padding(Rule(text, align="left", style=style, characters="-" if self._ascii else "─"), (1, 0, 0, 0))

    def of_changes(self, play: Played) -> RenderableType:
        """What happened, in words."""
        return Group(self.heading("The hiking group"), _text(words.about_changes(play)))

    def of_table(self, play: Played) -> RenderableType:
        """The contrast: a member table that only says "in or out", at `play`'s moments."""
        tables = [in_or_out(sight) for sight in play.sights]
        return Group(
            self.heading('A plain member table: "in or out"', "not qim, worked out for contrast", "red"),
            _text(
                "A history read returns everything to members and nothing to anyone else. "
                f'Right would be what "{ALL_STAYS.title}" below returns.'
            ),
            self._rows([table_row(table) for table in tables], TABLE_FIGURES),
            self._legend(TABLE_LEGEND),
            _sentences([(table.sight.label, words.about_table(table)) for table in tables]),
        )

    def of_policy(self, play: Played) -> RenderableType:
        """One policy of qim."""
        settings = play.policy.settings
        newcomer = settings.newcomer.name + (f"({settings.last_n})" if settings.last_n else "")
        return Group(
            self.heading(
                play.policy.title, f"newcomer_history {newcomer}, rejoin_history {settings.rejoin.name}", "green"
            ),
            _text(play.policy.rule),
            self._rows([sight_row(sight) for sight in play.sights], FIGURES),
            self._legend(LEGEND),
            _sentences([(sight.label, words.about(sight)) for sight in play.sights]),
        )

    def _rows(self, rows: Sequence[Row], figures: Sequence[str]) -> RenderableType:
        corners, tick, rule = ("++", "+", "-") if self._ascii else ("├┤", "┼", "─")
        blank = " " * LABEL_COLUMNS
        lines = [
            Text((blank + self.line.names()).rstrip(), style="bold"),
            Text(blank + self.line.numbers() + "".join(name.rjust(_columns(name)) for name in figures), style="dim"),
            Text(blank + self.line.axis(corners=corners, tick=tick, rule=rule, gap="//"), style="dim"),
        ]
        for row in rows:
            line = Text().append(row.label.ljust(LABEL_COLUMNS), style="bold")
            for run in self.line.row(row.look):
                line.append(self._glyph(run.cell) * run.width, style=run.cell.value[2])
            for name, figure in zip(figures, row.figures, strict=True):
                alarming = name.startswith("too") and figure
                line.append(f"{figure:,}".rjust(_columns(name)), style="bold red" if alarming else "")
            lines.append(line)
        return Padding(Group(*lines), (1, MARGIN), expand=False)

    def _legend(self, entries: Sequence[tuple[Look, str]]) -> RenderableType:
        text = Text(" " * LABEL_COLUMNS)
        for number, (look, meaning) in enumerate(entries):
            text.append("  " if number else "").append(self._glyph(look), style=look.value[2])
            text.append(f" {meaning}", style="dim")
        return Padding(text, (0, MARGIN, 1, MARGIN), expand=False)

    def _glyph(self, look: Look) -> str:
        return look.value[1] if self._ascii else look.value[0]


def _columns(figure: str) -> int:
    return len(figure) + 1


def _text(text: str) -> RenderableType:
    return Padding(Text(text), (0, MARGIN), expand=False)


def _sentences(people: Sequence[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(width=LABEL_COLUMNS - 1, style="bold")
    table.add_column()
    for label, sentence in people:
        table.add_row(label, Text(sentence))
    return Padding(table, (0, 0, 0, MARGIN), expand=False)

"""The pictures and verdicts on a terminal, in a file, without colour, in ASCII and in 80 columns."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Literal

import pytest
from rich.console import Console, RenderableType

from qim_devkit.demo import verdict
from qim_devkit.demo.chapter import CHAPTER
from qim_devkit.demo.checks import check_all
from qim_devkit.demo.pictures import Pictures
from qim_devkit.demo.sights import Played


def drawn(what: RenderableType, width: int = 100, *, terminal: bool = False) -> list[str]:
    colours: Literal["standard"] | None = "standard" if terminal else None
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=colours)
    with console.capture() as capture:
        console.print(what)
    return [line.rstrip() for line in capture.get().splitlines()]


def row_of(lines: list[str], label: str) -> str:
    return next(line.strip() for line in lines if line.strip().startswith(label) and "█" in line)


def everything(plays: list[Played], width: int, *, ascii_only: bool) -> list[str]:
    pictures = Pictures(plays, width=width, ascii_only=ascii_only)
    parts = [pictures.of_changes(plays[-1]), pictures.of_table(plays[-1]), *map(pictures.of_policy, plays)]
    return [line for part in parts for line in drawn(part, width)]


@pytest.mark.parametrize("width", [80, 99, 100])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_everything_fits_the_width_and_no_row_is_broken(plays: list[Played], width: int, *, ascii_only: bool) -> None:
    lines = everything(plays, width, ascii_only=ascii_only)
    assert max(map(len, lines)) <= width
    pictures = 1 + len(plays)
    for label in ("Ana ", "Ben, away ", "Ben, back ", "Cara "):
        rows = [line for line in lines if re.fullmatch(rf" {label} *[^a-z]+( +[\d,]+){{3}}", line)]
        assert len(rows) == pictures


def test_ascii_stays_ascii(plays: list[Played]) -> None:
    for line in everything(plays, 100, ascii_only=True):
        line.encode("ascii")


def test_a_policys_rows_show_what_is_readable_and_what_was_delivered(plays: list[Played]) -> None:
    pictures = Pictures(plays, width=100, ascii_only=False)
    since, hundred, stays = (drawn(pictures.of_policy(play)) for play in plays)
    glyphs = "█▒▁·"

    def order(line: str) -> str:
        shown = [glyph for glyph in line if glyph in glyphs]
        return "".join(glyph for at, glyph in enumerate(shown) if at == 0 or shown[at - 1] != glyph)

    assert order(row_of(since, "Ben, back")) == "▁·█"
    assert order(row_of(hundred, "Ben, back")) == "▁█▒█"
    assert order(row_of(stays, "Ben, back")) == "█▁·█"
    assert order(row_of(hundred, "Cara")) == "·▒█"
    assert order(row_of(stays, "Ben, away")) == "█▁·"
    assert row_of(stays, "Ben, back").split()[-3:] == ["4,836", "4,837", "19"]


def test_the_contrast_says_that_it_is_not_qim(plays: list[Played]) -> None:
    lines = drawn(Pictures(plays, width=100, ascii_only=False).of_table(plays[-1]))
    assert "not qim" in "\n".join(lines)
    assert row_of(lines, "Ben, back").split()[-3:] == ["4,900", "64", "0"]


def test_a_difference_is_red_and_names_both_numbers(plays: list[Played]) -> None:
    checks = check_all(plays, replace(CHAPTER, hidden_from_ben=63))
    marks = verdict.Marks.of(ascii_only=False)
    below = "\n".join(drawn(verdict.below_picture(checks, marks), terminal=True))
    assert "\x1b[1;31m✗ messages that Ben sees, but should not: expected 63, found 64" in below
    table = drawn(verdict.chapter_table(checks, marks))
    assert [line.split()[0] for line in table if "sees" in line] == ["✗", "✓"]


def test_the_chapters_table_names_each_number_once(plays: list[Played]) -> None:
    table = drawn(verdict.chapter_table(check_all(plays, CHAPTER), verdict.Marks.of(ascii_only=False)))
    (leave,) = (line for line in table if "the seq that Ben's leave took" in line)
    assert leave.split("took")[1].split() == ["4,816", "4,816", "under", "every", "policy"]

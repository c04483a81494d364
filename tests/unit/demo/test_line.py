"""The seq line: every edge has its column, numbers and names stand where they belong, and all of it fits."""

from __future__ import annotations

import pytest

from qim_devkit.demo.line import Run, SeqLine, Stretch, seq_line

EDGES = (1, 4_737, 4_780, 4_816, 4_817, 4_837, 4_880, 4_901)
EVENTS = {
    4_816: ("Ben leaves", "-Ben"),
    4_837: ("Cara joins", "+Cara"),
    4_880: ("Ben returns", "+Ben"),
}


@pytest.mark.parametrize("width", [37, 43, 50, 60, 61, 100])
def test_numbers_names_and_axis_fit_the_width_and_stand_at_their_stretches(width: int) -> None:
    line = seq_line(EDGES, 4_900, width, EVENTS)
    assert line.width == width
    assert [stretch.first for stretch in line.stretches] == [1, 4_737, 4_780, 4_816, 4_817, 4_837, 4_880]
    axis = line.axis(corners="++", tick="|", rule="-", gap="//")
    assert len(line.numbers()) == len(line.names()) == len(axis) == width
    at = 0
    for stretch in line.stretches:
        assert line.numbers()[at:].split()[0] == f"{stretch.first:{line.grouping}}"
        assert line.names()[at:].startswith(line.labels.get(stretch.first, ""))
        assert axis[at] == ("+" if at == 0 else "|")
        at += stretch.width
    assert line.numbers().endswith(f"{4_900:{line.grouping}}")


def test_words_give_way_to_short_ones_and_then_the_commas_go() -> None:
    wide, narrow, narrowest = (seq_line(EDGES, 4_900, width, EVENTS) for width in (100, 43, 42))
    assert "Ben returns" in wide.names()
    assert narrow.names().split() == ["-Ben", "+Cara", "+Ben"]
    assert (narrow.grouping, narrowest.grouping) == (",", "")


def test_a_line_that_cannot_hold_its_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 37 columns, not 36"):
        seq_line(EDGES, 4_900, 36, EVENTS)


def test_a_longer_stretch_gets_no_fewer_columns() -> None:
    line = seq_line((1, 11, 1_011), 1_111, 80, {})
    by_length = sorted(line.stretches, key=lambda stretch: stretch.last - stretch.first)
    assert [stretch.width for stretch in by_length[:1]] < [stretch.width for stretch in by_length[-1:]]


def test_edges_outside_of_the_line_are_left_out() -> None:
    assert seq_line((0, 1, 5, 11, 12), 10, 30, {}).stretches == (Stretch(1, 4, 13), Stretch(5, 10, 17))


def test_a_row_asks_once_for_each_stretch() -> None:
    line = SeqLine((Stretch(1, 4, 3), Stretch(5, 9, 2)), {})
    assert line.row(lambda seq: seq) == [Run(1, 3), Run(5, 2)]

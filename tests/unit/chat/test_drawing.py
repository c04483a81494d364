"""Rows of the list and of a conversation fit their width, whatever is in them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.support.chat_feed import ANA, CARA, COOKS, TestNames, entry, membership, message

from qim_client import MemberState
from qim_common.ids import MembershipOp
from qim_devkit.chat.drawing import draw_entry, draw_line
from qim_devkit.chat.lines import Line, LineKind

NAMES = TestNames()


@pytest.mark.parametrize("width", [24, 40, 80])
@pytest.mark.parametrize("kind", list(LineKind))
@pytest.mark.parametrize("words", ["", "short", "a long walk " * 20, "x" * 300, "山の上で" * 30])
def test_no_row_is_wider_than_its_place(width: int, kind: LineKind, words: str) -> None:
    rows = draw_line(Line(kind, words, 12345, "a-name-that-is-too-long", time_ms=1), width, times=True)
    assert rows
    assert all(row.cell_len <= max(width, 28) for row in rows)


def test_a_message_says_who_and_when_in_a_wide_window_only() -> None:
    line = Line(LineKind.MESSAGE, "hello", 7, "ben", time_ms=60_000)
    assert re.fullmatch(r" {4}7 {8}ben  hello +\d\d:\d\d", draw_line(line, 60, times=True)[0].plain)
    assert draw_line(line, 40, times=True)[0].plain == "    7        ben  hello"
    assert draw_line(line, 60, times=False)[0].plain == "    7        ben  hello"


@pytest.mark.parametrize(
    ("fields", "row"),
    [
        ({}, "cooks"),
        ({"unread_count": 3}, "cooks                     3"),
        ({"unread_count": 12345, "muted": True}, "cooks           muted  12,345"),
        ({"state": MemberState.LEFT}, "cooks                   LEFT"),
        ({"state": MemberState.REMOVED, "hidden": True}, "cooks         REMOVED hidden"),
    ],
)
def test_a_row_of_the_list_shows_state_marks_and_unread(fields: dict[str, Any], row: str) -> None:
    first, second = draw_entry(entry(COOKS, **fields), NAMES, 29)
    assert " ".join(first.plain.split()) == " ".join(row.split())
    assert max(first.cell_len, second.cell_len) <= 29


def test_the_newest_message_is_previewed_on_one_line() -> None:
    said = entry(COOKS, head=2, preview=message(2, "soup\nis ready, everybody to the table"))
    assert draw_entry(said, NAMES, 20)[1].plain == "ben: soup⏎is ready,…"
    came = entry(COOKS, head=2, preview=membership(2, MembershipOp.JOIN, CARA, actor=ANA))
    assert draw_entry(came, NAMES, 20)[1].plain == "ana added cara"
    assert draw_entry(entry(COOKS), NAMES, 20)[1].plain == "nothing yet"
    assert draw_entry(entry(COOKS, state=MemberState.REMOVED), NAMES, 20)[1].plain == "nothing to see"

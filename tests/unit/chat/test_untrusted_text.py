"""What others wrote or are named never steers the terminal, is no markup and breaks no row."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from tests.support.chat_feed import ANA, BEN, CARA, COOKS, HIKERS, FakeFeed, delivered, entry, membership, message
from textual import events

from qim_client import MemberState
from qim_client.namebook import NameBook
from qim_common.errors import RemoteError
from qim_common.ids import MembershipOp, TenantId
from qim_devkit.chat.app import ChatApp
from qim_devkit.chat.names import BookNames
from qim_devkit.chat.story import Window

HOSTILE = [
    "\x1b]0;owned\x07\x1b[2J\x1b[31mred",
    "\x9b31mred\x9d0;owned\x9c",
    "abc\u202efed\u2066x\u2069\u200f\u061c",
    "one\ntwo\r\nthree\rfour\x0bfive\x0csix\x85seven\u2028eight\u2029nine",
    "\ttab\x00nul\x08\x08back\x7f",
    "[red]red[/red][/][@click=app.quit]click[/][bold",
    ":warning: $primary \\[x] {x!r} %s",
]
SIZE = (100, 24)


def book(path: Path, hostile: str) -> BookNames:
    """A book whose file somebody has changed: every name in it is hostile."""
    names = NameBook(path)
    for person in ("ana", "ben", "cara"):
        names.user(person)
    names.group("hikers")
    names.save()

    def changed(part: object) -> object:
        if isinstance(part, dict):
            return {key: changed(value) for key, value in part.items()}
        return part + hostile if isinstance(part, str) else part

    path.write_text(json.dumps(changed(json.loads(path.read_text()))))
    return BookNames(path, TenantId(1), ANA)


@asynccontextmanager
async def chatting_with(feed: FakeFeed, names: BookNames) -> AsyncIterator[Window]:
    app = ChatApp(feed, names, start=(HIKERS, None), times=True)
    async with app.run_test(size=SIZE) as pilot:
        window = Window("the chat", app, pilot)
        await window.until(lambda: app.state.live and app.state.view and app.state.view.loaded)
        yield window


def assert_tame(window: Window) -> None:
    rows = window.app.screen._compositor.render_strips()
    assert len(rows) == SIZE[1]
    for row in rows:
        text = "".join(piece.text for piece in row)
        assert text.isprintable(), repr(text)
        assert not [piece for piece in row if piece.control]
        assert not [piece for piece in row if piece.style and "@click" in piece.style.meta]
        assert row.cell_length == SIZE[0]


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_messages_names_types_and_refusals_are_shown_tamed(feed: FakeFeed, tmp_path: Path, hostile: str) -> None:
    said = message(1, f"{hostile} end", custom_type=hostile)
    came = membership(2, MembershipOp.JOIN, CARA, actor=BEN)
    feed.has(entry(head=2, preview=said), said, came)
    feed.has(entry(COOKS, head=9, preview=replace(said, conversation=COOKS, sender=CARA)))
    async with chatting_with(feed, book(tmp_path / "names.json", hostile)) as window:
        await window.until(lambda: "end" in window.visible and "added" in window.visible)
        await window.pilot.pause()
        assert_tame(window)
        feed.refusals["set_flags"] = RemoteError(code=grpc.StatusCode.UNAVAILABLE, message=f"{hostile} refused")
        await window.type("/mute")
        await window.until(lambda: "refused" in window.status)
        await window.pilot.pause()
        assert_tame(window)


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_who_put_one_out_is_named_tamed_where_one_cannot_write(
    feed: FakeFeed, tmp_path: Path, hostile: str
) -> None:
    gone = entry(head=1, state=MemberState.REMOVED, stay=replace(entry().stay, left_at=2, state=MemberState.REMOVED))
    feed.has(gone, message(1, hostile))
    parting = membership(2, MembershipOp.REMOVE, ANA, actor=BEN)
    async with chatting_with(feed, book(tmp_path / "names.json", hostile)) as window:
        feed.happen(delivered(parting))
        await window.until(lambda: "you were removed by" in window.prompt.placeholder)
        await window.pilot.pause()
        assert_tame(window)


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_what_is_pasted_is_tame_in_the_input_line_and_in_complaints(
    feed: FakeFeed, tmp_path: Path, hostile: str
) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting_with(feed, book(tmp_path / "names.json", "")) as window:
        window.prompt.post_message(events.Paste(f"/x{hostile}"))
        await window.until(lambda: window.prompt.value)
        assert_tame(window)
        await window.pilot.press("enter")
        await window.until(lambda: "is no command" in window.status)
        await window.pilot.pause()
        assert_tame(window)


async def test_a_pasted_family_stays_one(feed: FakeFeed, tmp_path: Path) -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    feed.has(entry(head=1), message(1))
    async with chatting_with(feed, book(tmp_path / "names.json", "")) as window:
        window.prompt.post_message(events.Paste(family))
        await window.until(lambda: window.prompt.value == family)

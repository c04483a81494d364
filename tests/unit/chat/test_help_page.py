"""The help page: everything on it can be reached in a small terminal, and however many keys come, it closes once."""

from __future__ import annotations

import pytest
from tests.support.chat_feed import FakeFeed, entry, message
from tests.unit.chat.conftest import chatting
from textual import events
from textual.containers import VerticalScroll

from qim_devkit.chat.commands import Command
from qim_devkit.chat.help_page import HelpPage
from qim_devkit.chat.story import Window


def is_open(window: Window) -> bool:
    return isinstance(window.app.screen, HelpPage) and window.app.screen.is_mounted


def seen(window: Window) -> str:
    """The page as it is drawn."""
    return "\n".join("".join(piece.text for piece in row) for row in window.app.screen._compositor.render_strips())


@pytest.mark.parametrize("keys", ["xy", "xyz", ("x", "f1"), ("escape", "escape"), ("f1", "f1"), ("enter", "x")])
async def test_keys_that_come_together_close_the_page_once(feed: FakeFeed, keys: str | tuple[str, ...]) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        await window.pilot.press("f1")
        await window.until(lambda: is_open(window))
        for key in keys:
            window.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await window.until(lambda: not isinstance(window.app.screen, HelpPage))
        assert window.app.return_code is None
        await window.type("still there")
        await window.until(lambda: "still there" in window.transcript)


async def test_clicks_that_come_together_close_the_page_once(feed: FakeFeed) -> None:
    async with chatting(feed) as window:
        await window.pilot.press("f1")
        await window.until(lambda: is_open(window))
        await window.pilot.click(offset=(1, 1), times=2)
        await window.until(lambda: not isinstance(window.app.screen, HelpPage))


async def test_f1_pressed_twice_at_once_opens_one_page(feed: FakeFeed) -> None:
    async with chatting(feed) as window:
        window.app.action_help()
        window.app.action_help()
        await window.until(lambda: is_open(window))
        assert len(window.app.screen_stack) == 2


@pytest.mark.parametrize("size", [(80, 24), (60, 15), (60, 20), (100, 11), (40, 10)])
async def test_all_commands_and_keys_can_be_reached(feed: FakeFeed, size: tuple[int, int]) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed, size=size) as window:
        await window.pilot.press("f1")
        await window.until(lambda: is_open(window))
        page = window.app.screen.query_one("#help", VerticalScroll)
        await window.until(lambda: "any other key closes" in seen(window))
        text = seen(window)
        while page.scroll_offset.y < page.max_scroll_y:
            await window.pilot.press("down")
            text += seen(window)
        assert is_open(window)
        for word in (*(f"/{command}" for command in Command), "F1", "Ctrl+Q", "Page Up", "end the chat"):
            assert word in text
        await window.pilot.press("pageup", "up", "pagedown", "home", "end")
        assert is_open(window)
        await window.pilot.press("x")
        await window.until(lambda: not isinstance(window.app.screen, HelpPage))


async def test_the_arrows_leave_the_conversation_alone_meanwhile(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        view = window.app.state.view
        await window.pilot.press("f1", "down", "up", "x")
        assert view is not None
        assert window.app.state.is_open(view.conversation)
        assert feed.called("older") == []

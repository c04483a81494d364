"""A chat in a real terminal on a feed without services: how it ends, and what the terminal is like afterwards."""

from __future__ import annotations

import signal
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.support.chat_pty import Terminal, in_terminal

PLAYER = """
import asyncio, sys
from tests.support.chat_feed import HIKERS, FakeFeed, TestNames, entry, message
from qim_devkit.chat.app import ChatApp
from qim_devkit.chat.terminal import run_in_terminal

class Feed(FakeFeed):
    async def leave(self, group):
        raise RuntimeError("nobody foresaw this")

feed = Feed()
feed.has(entry(head=40, unread_count=40), *(message(seq, f"step-{seq}.") for seq in range(1, 41)))
app = ChatApp(feed, TestNames(), start=(HIKERS, None), times=False)
sys.exit(asyncio.run(run_in_terminal(app)))
"""
SCREEN_IS_BACK = b"\x1b[?1049l"
CURSOR_IS_BACK = b"\x1b[?25h"


def playing() -> AbstractAsyncContextManager[Terminal]:
    root = Path(__file__).parents[3]
    return in_terminal(sys.executable, "-c", PLAYER, environment={"PYTHONPATH": str(root)})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_a_signal_gives_the_terminal_back_and_is_the_exit_status(number: signal.Signals) -> None:
    async with playing() as terminal:
        await terminal.until(b"step-40.")
        terminal.process.send_signal(number)
        assert await terminal.status() == 128 + number
        assert terminal.seen.rindex(SCREEN_IS_BACK) > terminal.seen.rindex(b"step-40.")
        assert CURSOR_IS_BACK in terminal.seen[terminal.seen.rindex(SCREEN_IS_BACK) :]
        assert b"Traceback" not in terminal.seen


async def test_a_terminal_that_is_gone_ends_the_chat() -> None:
    async with playing() as terminal:
        await terminal.until(b"step-40.")
        terminal.hang_up()
        assert await terminal.status() != 0


async def test_an_error_that_nobody_foresaw_is_the_exit_status_and_told_on_the_terminal() -> None:
    async with playing() as terminal:
        await terminal.until(b"step-40.")
        terminal.type(b"/leave\r")
        assert await terminal.status() == 1
        assert b"nobody foresaw this" in terminal.seen[terminal.seen.rindex(SCREEN_IS_BACK) :]


async def test_keys_typed_together_over_the_help_page_do_no_harm() -> None:
    async with playing() as terminal:
        await terminal.until(b"step-40.")
        terminal.type(b"/help\r")
        await terminal.until(b"any other key closes")
        terminal.seen.clear()
        terminal.type(b"xy")
        await terminal.until(b"step-40.")
        terminal.type(b"\r/quit\r")
        assert await terminal.status() == 0

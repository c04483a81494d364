"""A chat in a window without a terminal, on a feed that the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.chat_feed import HIKERS, FakeFeed, TestNames

from qim_common.ids import ConversationId, UserId
from qim_devkit.chat.app import ChatApp
from qim_devkit.chat.story import Window


@asynccontextmanager
async def chatting(
    feed: FakeFeed,
    *,
    start: tuple[ConversationId, UserId | None] | None = (HIKERS, None),
    size: tuple[int, int] = (100, 24),
) -> AsyncIterator[Window]:
    """A chat that is live."""
    app = ChatApp(feed, TestNames(), start=start, times=False)
    async with app.run_test(size=size) as pilot:
        window = Window("the chat", app, pilot)
        await window.until(lambda: app.state.live)
        yield window


@pytest.fixture
def feed() -> FakeFeed:
    return FakeFeed()

"""The picture of two chats: one file that needs nothing else."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from tests.support.chat_feed import FakeFeed, entry, message
from tests.unit.chat.conftest import chatting

from qim_devkit.chat.poster import side_by_side


async def test_two_windows_become_one_picture_without_anything_from_elsewhere(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1, "Good morning"))
    async with chatting(feed) as window:
        await window.until(lambda: "Good morning" in window.transcript)
        picture = window.app.export_screenshot(title="qim chat")
    assert "@font-face" in picture
    whole = side_by_side([picture, picture])
    root = ElementTree.fromstring(whole)  # noqa: S314  made here
    assert len(root) == 2
    assert "@font-face" not in whole
    assert whole.count("http") == whole.count('xmlns="http://www.w3.org/2000/svg"')


def test_the_committed_picture_needs_nothing_else() -> None:
    picture = (Path(__file__).parents[3] / "docs" / "chat.svg").read_text(encoding="utf-8")
    assert picture.count("http") == picture.count('xmlns="http://www.w3.org/2000/svg"') == 1
    assert "you&#160;see&#160;nothing&#160;after&#160;5" in picture


@pytest.mark.parametrize("picture", ["", "<svg></svg>", '<svg viewBox="0 0 9 9"><image href="x"/></svg>'])
def test_what_is_no_such_picture_or_would_load_something_is_refused(picture: str) -> None:
    with pytest.raises(ValueError, match="picture"):
        side_by_side([picture])

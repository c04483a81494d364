"""What of the chat is in sight: the newest line until somebody scrolls up, and only that is marked read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.chat_feed import ANA, BEN, COOKS, HIKERS, FakeFeed, delivered, entry, message, page
from tests.unit.chat.conftest import chatting
from textual import events

from qim_client import Message
from qim_common.ids import ConversationId
from qim_devkit.chat.story import Window
from qim_devkit.chat.widgets import ConversationList, Transcript

SIZES = [(80, 24), (60, 15), (60, 20), (100, 11), (40, 16)]


def walk(count: int, *, where: ConversationId = HIKERS) -> list[Message]:
    return [message(seq, f"step {seq}.", where=where) for seq in range(1, count + 1)]


def unread(feed: FakeFeed, count: int) -> None:
    feed.has(entry(head=count, unread_count=count), *walk(count))


def at_end(window: Window) -> bool:
    transcript = window.app.query_one(Transcript)
    return transcript.max_scroll_y > 0 and transcript.scroll_offset.y == transcript.max_scroll_y


def last_row(window: Window) -> str:
    return window.visible.splitlines()[-1].strip()


@pytest.mark.parametrize("size", SIZES)
async def test_a_long_conversation_opens_at_its_newest_line(feed: FakeFeed, size: tuple[int, int]) -> None:
    unread(feed, 40)
    async with chatting(feed, size=size) as window:
        await window.until(lambda: "step 40." in window.visible)
        assert at_end(window)
        assert last_row(window).endswith("step 40.")
        assert "step 1." not in window.visible
        await window.until(lambda: feed.called("mark_read") == [(HIKERS, 40)])


@pytest.mark.parametrize("size", SIZES)
async def test_what_comes_and_what_is_sent_stays_in_sight(feed: FakeFeed, size: tuple[int, int]) -> None:
    unread(feed, 40)
    async with chatting(feed, size=size) as window:
        await window.until(lambda: "step 40." in window.visible)
        feed.has(entry(head=41, unread_count=1, read_seq=40), *walk(41))
        feed.happen(delivered(message(41, "step 41.")))
        await window.until(lambda: "step 41." in window.visible)
        await window.until(lambda: (HIKERS, 41) in feed.called("mark_read"))
        await window.type("and I")
        await window.until(lambda: "42        ana  and I" in window.visible)
        assert at_end(window)


async def test_a_conversation_that_outgrows_its_pane_is_followed(feed: FakeFeed) -> None:
    feed.has(entry(head=1), *walk(1))
    async with chatting(feed, size=(80, 15)) as window:
        await window.until(lambda: "step 1." in window.visible)
        for count in range(2, 25):
            feed.has(entry(head=count), *walk(count))
            feed.happen(delivered(message(count, f"step {count}.")))
        await window.until(lambda: "step 24." in window.visible)
        assert at_end(window)


async def test_the_newest_line_stays_in_sight_when_the_terminal_changes(feed: FakeFeed) -> None:
    unread(feed, 40)
    async with chatting(feed) as window:
        await window.until(lambda: "step 40." in window.visible)
        for size in [*SIZES, (120, 60), *SIZES[::-1]]:
            await window.pilot.resize_terminal(*size)
            await window.until(lambda: last_row(window).endswith("step 40."))


async def test_what_is_below_is_not_marked_read_before_it_was_in_sight(feed: FakeFeed) -> None:
    unread(feed, 40)
    async with chatting(feed, size=(80, 24)) as window:
        await window.until(lambda: feed.called("mark_read") == [(HIKERS, 40)])
        await window.pilot.press("pageup")
        await window.until(lambda: "step 40." not in window.visible)
        before = window.visible
        feed.has(entry(head=60, unread_count=20, read_seq=40), *walk(60))
        feed.happen(*(delivered(message(seq, f"step {seq}.")) for seq in range(41, 61)))
        await window.until(lambda: HIKERS in feed.acknowledged and feed.acknowledged[HIKERS].seq == 60)
        assert window.visible == before
        assert feed.called("mark_read") == [(HIKERS, 40)]
        await window.until(lambda: window.conversations.splitlines()[0].endswith("20"))

        await window.pilot.press("pagedown", "pagedown")
        await window.until(lambda: len(feed.called("mark_read")) > 1)
        marked = feed.called("mark_read")[-1][1]
        assert 40 < marked < 60
        assert last_row(window).endswith(f"step {marked}.")
        await window.pilot.press("pagedown", "pagedown", "pagedown")
        await window.until(lambda: feed.called("mark_read")[-1] == (HIKERS, 60))
        assert at_end(window)


async def test_the_wheel_ends_following_and_begins_it_again(feed: FakeFeed) -> None:
    unread(feed, 40)
    async with chatting(feed) as window:
        await window.until(lambda: "step 40." in window.visible)
        transcript = window.app.query_one(Transcript)
        transcript.post_message(
            events.MouseScrollUp(None, x=1, y=1, delta_x=0, delta_y=0, button=0, shift=False, meta=False, ctrl=False)
        )
        await window.until(lambda: not transcript.following)
        assert "step 40." not in window.visible
        await window.pilot.press("pagedown")
        await window.until(lambda: transcript.following and "step 40." in window.visible)


async def test_sending_goes_to_the_newest_line(feed: FakeFeed) -> None:
    unread(feed, 40)
    async with chatting(feed, size=(80, 24)) as window:
        await window.until(lambda: "step 40." in window.visible)
        await window.pilot.press("pageup", "pageup")
        await window.until(lambda: "step 40." not in window.visible)
        await window.type("here I am")
        await window.until(lambda: "41        ana  here I am" in window.visible)


async def test_older_messages_come_above_what_is_in_sight(feed: FakeFeed) -> None:
    feed.has(entry(head=60), *(message(seq, f"step {seq}.") for seq in range(31, 61)))
    feed.histories[HIKERS] = replace(feed.histories[HIKERS], next_from_seq=30)
    feed.older[HIKERS, 30] = page(*walk(30))
    async with chatting(feed) as window:
        await window.until(lambda: "step 60." in window.visible)
        while window.app.query_one(Transcript).scroll_offset.y:
            await window.pilot.press("pageup")
        assert "there is more above" in window.visible
        await window.pilot.press("pageup")
        await window.until(lambda: "step 1." in window.transcript)
        assert window.visible.splitlines()[1].endswith("step 31.")
        await window.pilot.press("pageup")
        await window.until(lambda: "step 20." in window.visible)


async def test_another_conversation_opens_at_its_newest_line_though_this_one_was_scrolled(feed: FakeFeed) -> None:
    unread(feed, 40)
    feed.has(entry(COOKS, head=90, unread_count=30), *walk(30, where=COOKS))
    async with chatting(feed) as window:
        await window.until(lambda: "step 40." in window.visible)
        await window.pilot.press("pageup", "up")
        await window.until(lambda: "step 30." in window.visible)
        assert at_end(window)
        await window.until(lambda: (COOKS, 30) in feed.called("mark_read"))


async def test_a_message_taller_than_the_pane_counts_once_its_end_was_in_sight(feed: FakeFeed) -> None:
    tall = message(2, "far " * 400)
    feed.has(entry(head=3), message(1, "near"), tall, message(3, "last", sender=ANA))
    async with chatting(feed, size=(60, 15)) as window:
        await window.until(lambda: "last" in window.visible)
        transcript = window.app.query_one(Transcript)
        assert transcript.seen_to() is None
        await window.pilot.press("pageup", "pageup")
        await window.until(lambda: not transcript.following)
        assert transcript.seen_to() == 1


@pytest.mark.parametrize(("size", "rows"), [((60, 15), 5), ((60, 14), 4), ((60, 12), 6), ((71, 20), 8), ((100, 11), 5)])
async def test_a_small_terminal_leaves_most_rows_to_the_conversation(
    feed: FakeFeed, size: tuple[int, int], rows: int
) -> None:
    unread(feed, 40)
    async with chatting(feed, size=size) as window:
        await window.until(lambda: last_row(window).endswith("step 40."))
        assert len(window.visible.splitlines()) >= rows


@pytest.mark.parametrize("size", [(60, 15), (60, 20), (60, 40), (100, 24)])
async def test_the_chosen_conversation_is_in_sight_in_the_list(feed: FakeFeed, size: tuple[int, int]) -> None:
    feed.has(entry(head=1), *walk(1))
    for number in range(30):
        where = ConversationId(HIKERS[:1] + number.to_bytes(15, "big"))
        feed.has(entry(where, head=100 + number))
    async with chatting(feed, size=size) as window:
        listed = window.app.query_one(ConversationList)

        def rows() -> list[str]:
            return [listed.render_line(row).text for row in range(listed.scrollable_content_region.height)]

        await window.until(lambda: any(row.startswith("▌ hikers") for row in rows()))
        for _ in range(7):
            await window.pilot.press("up")
        await window.until(lambda: any(row.startswith("▌") and "hikers" not in row for row in rows()))
        feed.has(entry(head=500, preview=message(500, "I moved")), message(500))
        feed.happen(delivered(message(500)))
        await window.until(lambda: listed.entries[0].conversation == HIKERS)
        assert sum(row.startswith("▌") for row in rows()) == 2


async def test_nothing_is_marked_read_behind_the_help_page(feed: FakeFeed) -> None:
    feed.has(entry(head=1), *walk(1))
    async with chatting(feed) as window:
        await window.pilot.press("f1")
        feed.has(entry(head=2, unread_count=1), *walk(2))
        feed.happen(delivered(message(2, "step 2.", sender=BEN)))
        await window.until(lambda: HIKERS in feed.acknowledged)
        assert (HIKERS, 2) not in feed.called("mark_read")
        await window.pilot.press("x")
        await window.until(lambda: (HIKERS, 2) in feed.called("mark_read"))

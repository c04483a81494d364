"""The chat's window on a feed that the test plays: what is seen, typed, read, acknowledged and refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import grpc
import pytest
from tests.support.chat_feed import (
    ANA,
    BEN,
    CARA,
    COOKS,
    HIKERS,
    NOBODY,
    FakeFeed,
    delivered,
    entry,
    membership,
    message,
    page,
    sees,
    stay,
    withheld,
)
from tests.unit.chat.conftest import chatting
from textual import events

from qim_client import MemberState, ReadMarked, ResyncRequired, StatesChanged
from qim_common.errors import BackendUnavailable, GroupFrozen, OwnerCannotLeave, PermissionDenied, RemoteError
from qim_common.ids import MembershipOp
from qim_devkit.chat.feed import Link
from qim_devkit.chat.help_page import HelpPage
from qim_devkit.chat.widgets import ConversationList


async def test_the_list_and_the_open_conversation_are_shown_and_marked_read(feed: FakeFeed) -> None:
    first = message(1, "Good morning")
    feed.has(entry(head=1, unread_count=1, preview=first), first)
    feed.has(entry(COOKS, head=3, unread_count=7, muted=True))
    async with chatting(feed) as window:
        await window.until(lambda: feed.called("mark_read"))
        await window.until(lambda: "cooks" in window.conversations.splitlines()[0])
        assert "muted" in window.conversations.splitlines()[0]
        assert window.conversations.splitlines()[0].endswith("7")
        assert window.conversations.splitlines()[3] == "ben: Good morning"
        assert "    1        ben  Good morning" in window.transcript
        assert feed.called("mark_read") == [(HIKERS, 1)]
        await window.until(lambda: window.app.query_one("#conversations").border_subtitle == "7 unread")


async def test_without_a_name_the_newest_conversation_is_opened(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1, "walk"))
    feed.has(entry(COOKS, head=2), message(2, "soup", where=COOKS))
    async with chatting(feed, start=None) as window:
        await window.until(lambda: "soup" in window.transcript)
        await window.pilot.press("down")
        await window.until(lambda: "walk" in window.transcript)
        await window.pilot.press("up")
        await window.until(lambda: "soup" in window.transcript)


async def test_a_live_message_is_shown_read_and_acknowledged(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        news = message(2, "here I am")
        feed.has(entry(head=2, unread_count=1), message(1), news)
        feed.happen(delivered(news))
        await window.until(lambda: "here I am" in window.transcript)
        await window.until(lambda: HIKERS in feed.acknowledged)
        assert feed.acknowledged[HIKERS].seq == 2
        assert feed.called("mark_read")[-1] == (HIKERS, 2)
        await window.until(lambda: window.app.state.entries[HIKERS].unread_count == 0)


async def test_a_message_elsewhere_shows_the_servers_unread_and_is_not_marked_read(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        feed.has(entry(COOKS, head=5, unread_count=41))
        feed.happen(delivered(message(5, where=COOKS)))
        await window.until(lambda: window.conversations.splitlines()[0].endswith("41"))
        assert all(where == HIKERS for where, _ in feed.called("mark_read"))


@pytest.mark.parametrize("method", ["conversations", "conversation", "visible", "history", "mark_read", "total_unread"])
async def test_what_happens_while_something_is_read_is_not_lost(feed: FakeFeed, method: str) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        await window.until(lambda: feed.called("total_unread"))
        feed.held[method], count = asyncio.Event(), len(feed.called(method))
        feed.has(entry(head=2, unread_count=1), message(1), message(2))
        if method in ("conversations", "visible", "history"):
            feed.happen(StatesChanged(NOBODY))
        feed.happen(delivered(message(2)))
        await window.until(lambda: len(feed.called(method)) > count)
        gone = entry(head=2, state=MemberState.REMOVED, stay=stay(left_at=3, state=MemberState.REMOVED))
        feed.has(gone, message(1), message(2))
        feed.happen(delivered(membership(3, MembershipOp.REMOVE, ANA, actor=BEN)))
        await window.until(lambda: window.app.state.partings)
        feed.held.pop(method).set()
        await window.until(lambda: "ben removed ana · you see nothing after 2" in window.transcript)


async def test_nothing_is_marked_read_while_nobody_looks(feed: FakeFeed) -> None:
    feed.has(entry(head=0))
    async with chatting(feed) as window:
        window.app.controller.set_present(False)
        feed.has(entry(head=1, unread_count=1), message(1, "psst"))
        feed.happen(delivered(message(1, "psst")))
        await window.until(lambda: "psst" in window.transcript and HIKERS in feed.acknowledged)
        assert feed.called("mark_read") == []
        window.app.controller.set_present(True)
        await window.until(lambda: feed.called("mark_read") == [(HIKERS, 1)])


async def test_another_devices_read_mark_shows_in_the_list(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1))
    feed.has(entry(COOKS, head=5, unread_count=4))
    async with chatting(feed) as window:
        await window.until(lambda: window.conversations.splitlines()[0].endswith("4"))
        feed.entries[COOKS] = entry(COOKS, head=5, unread_count=0, read_seq=5)
        feed.happen(ReadMarked(NOBODY, COOKS, 1, 5))
        await window.until(lambda: window.conversations.splitlines()[0] == "cooks")


async def test_what_is_typed_is_sent_and_stands_in_its_place(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        await window.until(lambda: window.app.state.may_send() and "hello" in window.transcript)
        await window.type("on my way")
        await window.until(lambda: "    2        ana  on my way" in window.transcript)
        (item,) = feed.called("send")
        assert (item.conversation, item.peer, item.body) == (HIKERS, None, b"on my way")
        assert window.prompt.value == ""


async def test_the_first_message_to_a_person_names_the_person(feed: FakeFeed) -> None:
    async with chatting(feed, start=(COOKS, BEN)) as window:
        await window.until(lambda: window.app.state.view and window.app.state.view.loaded)
        await window.type("hello ben")
        await window.until(lambda: feed.called("send"))
        assert (feed.called("send")[0].conversation, feed.called("send")[0].peer) == (None, BEN)


async def test_a_refused_message_comes_back_with_the_reason_and_repeats_with_the_same_id(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        await window.until(lambda: window.app.state.may_send())
        feed.refusals["send"] = GroupFrozen()
        await window.type("on my way")
        await window.until(lambda: window.prompt.value == "on my way")
        assert "GROUP_FROZEN: " in window.status
        await window.pilot.press("enter")
        await window.until(lambda: "ana  on my way" in window.transcript)
        first, second = feed.called("send")
        assert first.client_message_id == second.client_message_id
        assert "GROUP_FROZEN" not in window.status
        await window.type("on my way")
        await window.until(lambda: len(feed.called("send")) == 3)
        assert feed.called("send")[2].client_message_id != first.client_message_id


async def test_being_removed_while_looking_closes_the_input_and_a_rejoin_opens_it(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        gone = stay(left_at=2, state=MemberState.REMOVED)
        feed.has(entry(head=1, state=MemberState.REMOVED, stay=gone), message(1))
        feed.happen(delivered(membership(2, MembershipOp.REMOVE, ANA, actor=BEN)))
        await window.until(lambda: "ben removed ana · you see nothing after 1" in window.transcript)
        assert window.prompt.placeholder == "you were removed by ben, so you cannot write here"
        assert "REMOVED" in window.conversations
        await window.pilot.press(*"let me in", "enter")
        assert window.prompt.value == ""
        assert feed.called("send") == []

        back = membership(7, MembershipOp.JOIN, ANA, actor=BEN)
        feed.has(entry(head=7, stay=stay(6)), back, visible=sees(7, 7, stays=(gone, stay(6))))
        feed.happen(delivered(back))
        await window.until(lambda: "you joined with 7 · you see nothing before it" in window.transcript)
        assert "ben added ana" in window.transcript
        assert window.prompt.placeholder == "a message, or /help"
        assert "REMOVED" not in window.conversations


async def test_leaving_shows_where_reading_ends(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        await window.until(lambda: window.app.state.may_send())
        left = entry(head=1, state=MemberState.LEFT, stay=stay(left_at=2, state=MemberState.LEFT))
        feed.has(left, message(1))
        await window.type("/leave")
        await window.until(lambda: "you left · you see nothing after 1" in window.transcript)
        assert feed.called("leave") == [HIKERS]
        assert "LEFT" in window.conversations


async def test_clearing_empties_what_is_seen(feed: FakeFeed) -> None:
    feed.has(entry(head=2), message(1, "one"), message(2, "two"))
    async with chatting(feed) as window:
        await window.until(lambda: "two" in window.transcript)
        await window.type("/clear")
        await window.until(lambda: "you cleared everything up to 2" in window.transcript)
        assert "two" not in window.transcript
        assert "cleared for you up to 2" in window.status
        feed.happen(withheld(1, 2))
        await window.until(lambda: "1 to 2 withheld" in window.transcript)


async def test_flags_are_set_and_taken_back(feed: FakeFeed) -> None:
    def asked_more(count: int) -> bool:
        return len(feed.called("set_flags")) > count

    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        await window.until(lambda: window.app.state.open_entry)
        for command in ("/mute", "/hide", "/hide", "/mute"):
            count = len(feed.called("set_flags"))
            await window.type(command)
            await window.until(partial(asked_more, count))
            await window.until(lambda: window.app.state.entries[HIKERS] == feed.entries[HIKERS])
        assert feed.called("set_flags") == [(None, True), (True, None), (False, None), (None, False)]
        await window.type("/read")
        await window.until(lambda: "read up to 1" in window.status)


async def test_hidden_conversations_are_listed_on_request(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1))
    feed.has(entry(COOKS, head=5, hidden=True))
    async with chatting(feed) as window:
        await window.until(lambda: "hikers" in window.conversations)
        assert "cooks" not in window.conversations
        await window.type("/hidden")
        await window.until(lambda: "cooks" in window.conversations)


@pytest.mark.parametrize(
    ("typed", "method", "error", "words"),
    [
        ("/leave", "leave", OwnerCannotLeave(), "OWNER_CANNOT_LEAVE: "),
        ("/clear", "clear", PermissionDenied(), "PERMISSION_DENIED: "),
        ("/mute", "set_flags", BackendUnavailable(), "BACKEND_UNAVAILABLE: "),
    ],
)
async def test_a_refused_command_is_one_line_with_its_reason(
    feed: FakeFeed, typed: str, method: str, error: Exception, words: str
) -> None:
    feed.has(entry(head=1), message(1))
    feed.refusals[method] = error  # type: ignore[assignment]
    async with chatting(feed) as window:
        await window.until(lambda: window.app.state.open_entry)
        await window.type(typed)
        await window.until(lambda: words in window.status)
        assert "\n" not in window.status


async def test_an_unknown_command_is_kept_for_mending(feed: FakeFeed) -> None:
    async with chatting(feed) as window:
        await window.type("/dance")
        assert window.prompt.value == "/dance"
        await window.until(lambda: "/dance is no command" in window.status)


async def test_lines_that_are_typed_at_once_are_sent_one_by_one(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        await window.until(lambda: window.app.state.may_send())
        for key in ["o", "n", "e", "enter", "t", "w", "o", "enter"]:
            window.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await window.until(lambda: len(feed.called("send")) == 2)
        assert [item.body for item in feed.called("send")] == [b"one", b"two"]
        assert window.prompt.value == ""


async def test_help_is_a_page_that_any_key_closes_and_quit_ends_the_chat(feed: FakeFeed) -> None:
    async with chatting(feed) as window:
        await window.type("/help")
        await window.until(lambda: isinstance(window.app.screen, HelpPage))
        await window.pilot.press("x")
        await window.until(lambda: not isinstance(window.app.screen, HelpPage))
        await window.type("/quit")
        await window.until(lambda: window.app.return_code == 0)
    assert feed.closed


async def test_a_cut_stream_is_shown_until_it_stands_again(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        feed.happen(Link(RemoteError(code=grpc.StatusCode.UNAVAILABLE, message="nobody answers")))
        await window.until(lambda: "○ reconnecting  UNAVAILABLE: nobody answers" in window.status)
        feed.has(entry(head=2, unread_count=1), message(1), message(2, "missed you"))
        feed.happen(Link(None), *FakeFeed.first_events)
        await window.until(lambda: "● live" in window.status and "missed you" in window.transcript)


async def test_what_could_not_be_read_is_read_again(feed: FakeFeed) -> None:
    feed.refusals["conversations"] = RemoteError(code=grpc.StatusCode.UNAVAILABLE, message="nobody answers")
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        await window.until(lambda: "hikers" in window.conversations)
        await window.until(lambda: "UNAVAILABLE" not in window.status)


async def test_a_conversation_that_must_be_read_anew_is_acknowledged_afterwards(feed: FakeFeed) -> None:
    feed.has(entry(head=1), message(1))
    async with chatting(feed) as window:
        feed.has(entry(head=90, unread_count=3), message(90, "the newest"))
        feed.happen(ResyncRequired(NOBODY, HIKERS, 1, 90))
        await window.until(lambda: HIKERS in feed.acknowledged)
        assert feed.acknowledged[HIKERS].seq == 90
        assert "the newest" in window.transcript


async def test_page_up_at_the_top_reads_older_messages(feed: FakeFeed) -> None:
    feed.has(entry(head=60), *(message(seq) for seq in range(31, 61)))
    feed.histories[HIKERS] = replace(feed.histories[HIKERS], next_from_seq=30)
    feed.older[HIKERS, 30] = page(*(message(seq, f"old {seq}") for seq in range(1, 31)))
    async with chatting(feed) as window:
        await window.until(lambda: "there is more above: Page Up" in window.transcript)
        for _ in range(4):
            await window.pilot.press("pageup")
        await window.until(lambda: "old 1" in window.transcript)
        assert "the beginning" in window.transcript


async def test_a_conversation_that_one_never_was_in_says_so(feed: FakeFeed) -> None:
    async with chatting(feed) as window:
        await window.until(lambda: window.prompt.placeholder == "no such conversation for you")


async def test_a_click_opens_a_conversation(feed: FakeFeed) -> None:
    feed.has(entry(head=9), message(9))
    feed.has(entry(COOKS, head=5), message(5, "soup", where=COOKS))
    async with chatting(feed) as window:
        await window.until(lambda: "cooks" in window.conversations)
        await window.pilot.click(ConversationList, offset=(5, 4))
        await window.until(lambda: "soup" in window.transcript)


@pytest.mark.parametrize("size", [(100, 30), (71, 24), (40, 16), (20, 10), (6, 4)])
async def test_the_window_follows_the_terminal(feed: FakeFeed, size: tuple[int, int]) -> None:
    words = " ".join(["mountain"] * 30)
    feed.has(entry(head=2), message(1, words), membership(2, MembershipOp.JOIN, CARA, actor=ANA))
    async with chatting(feed) as window:
        await window.until(lambda: "ana added cara" in window.transcript)
        await window.pilot.resize_terminal(*size)
        await window.pilot.pause()
        assert window.transcript.count("mountain") == 30 or size[0] < 40
        assert window.app.export_screenshot()


async def test_five_thousand_conversations_are_listed(feed: FakeFeed) -> None:
    for number in range(5000):
        where = HIKERS[:1] + number.to_bytes(15, "big")
        feed.entries[where] = entry(where, head=number)  # type: ignore[index, arg-type]
    async with chatting(feed, start=None) as window:
        await window.until(lambda: len(window.app.query_one(ConversationList).entries) == 5000)
        for _ in range(20):
            await window.pilot.press("down")
        place = [item.conversation for item in window.app.state.listed()]
        assert window.app.state.view is not None
        assert place.index(window.app.state.view.conversation) == 20

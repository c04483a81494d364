"""What the open conversation shows: who said what, who came and went, and where reading ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.chat_feed import (
    ANA,
    BEN,
    CARA,
    HIKERS,
    TestNames,
    acting,
    delivered,
    entry,
    membership,
    message,
    page,
    sees,
    stay,
    withheld,
)

from qim_client import Conversation, LiveEvent, MembershipEvent, MemberState, Message, Outgoing, VisibleRange
from qim_common.ids import MembershipOp
from qim_devkit.chat import model
from qim_devkit.chat.lines import LineKind, closed_words, event_line, lines
from qim_devkit.chat.model import ChatState, Pending

NAMES = TestNames()


def looking(
    item: Conversation,
    visible: VisibleRange | None,
    *messages: Message,
    older_from: int = 0,
    after: LiveEvent | None = None,
) -> ChatState:
    """Ana looks at the hikers, and then this happens."""
    state = model.opened(model.with_entries(ChatState(me=ANA), [item]), HIKERS)
    found = page(*messages, head=item.head_seq, older_from=older_from) if visible else None
    state = model.with_history(state, HIKERS, visible, found)
    return state if after is None else model.with_event(state, after)[0]


def said(state: ChatState) -> list[tuple[str, str]]:
    return [(line.kind.value, line.text) for line in lines(state, NAMES.person)]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (MembershipEvent(MembershipOp.JOIN, ANA, (CARA,)), "ana added cara"),
        (MembershipEvent(MembershipOp.JOIN, None, (BEN, CARA)), "an operator added ben and cara"),
        (MembershipEvent(MembershipOp.LEAVE, ANA, (ANA,)), "ana left"),
        (MembershipEvent(MembershipOp.REMOVE, None, (CARA,)), "an operator removed cara"),
    ],
)
def test_membership_events_are_told_in_a_sentence(event: MembershipEvent, words: str) -> None:
    assert event_line(event, NAMES.person) == words


def test_messages_and_events_in_the_order_of_their_seqs() -> None:
    state = looking(
        entry(head=3),
        sees(1, 3),
        message(2, "hello"),
        membership(3, MembershipOp.JOIN, CARA, actor=ANA),
        message(1, "hi", sender=ANA),
    )
    found = lines(state, NAMES.person)
    assert [(line.seq, line.sender, line.text, line.mine) for line in found[1:]] == [
        (1, "ana", "hi", True),
        (2, "ben", "hello", False),
        (3, "", "ana added cara", False),
    ]


@pytest.mark.parametrize(
    ("visible", "words"),
    [
        (sees(1, 9), "the beginning"),
        (sees(5, 9, stays=(stay(4),)), "you joined with 5 · you see nothing before it"),
        (sees(3, 9, stays=(stay(4, history_from=2),)), "you joined with 5 · you see from 3 on"),
        (sees(5, 9, own_clear_seq=4), "you cleared everything up to 4"),
        (sees(5, 9, group_floor_seq=4, stays=(stay(2),)), "cleared for everybody up to 4"),
        (sees(10, 9, own_clear_seq=9), "you cleared everything up to 9"),
        (sees(5, 9, stays=()), "you see from 5 on"),
    ],
)
def test_the_first_line_says_why_nothing_is_before_it(visible: VisibleRange, words: str) -> None:
    assert said(looking(entry(head=9), visible)) == [("edge", words)]


def test_while_older_messages_are_not_read_the_first_line_says_so() -> None:
    state = looking(entry(head=9), sees(1, 9), message(8), message(9), older_from=7)
    assert said(state)[0] == ("edge", "there is more above: Page Up")


def test_a_stretch_between_two_stays_is_marked() -> None:
    visible = sees(1, 2, (6, 7))
    state = looking(entry(head=7), visible, message(1), message(2), message(6), message(7))
    assert [words for _, words in said(state)] == [
        "the beginning",
        "hello",
        "hello",
        "3 to 5 not visible: you were away",
        "hello",
        "hello",
    ]


def test_withheld_stretches_are_shown_in_their_place() -> None:
    state = looking(entry(head=4), sees(4, 4, own_clear_seq=3), message(4), after=withheld(1, 3))
    assert said(state) == [
        ("withheld", "1 to 3 withheld: delivered, not yours to read now"),
        ("edge", "you cleared everything up to 3"),
        ("message", "hello"),
    ]


def outside(state: MemberState, left_at: int = 3, **fields: bool) -> Conversation:
    return entry(head=left_at - 1, state=state, stay=stay(left_at=left_at, state=state, **fields))


def test_a_leaver_reads_what_happened_and_where_it_ends() -> None:
    left = looking(outside(MemberState.LEFT), sees(1, 2), message(1), message(2))
    assert said(left)[-1] == ("edge", "you left · you see nothing after 2")
    told, _ = model.with_event(left, delivered(membership(3, MembershipOp.LEAVE, ANA)))
    assert said(told)[-1] == ("edge", "ana left · you see nothing after 2")
    assert closed_words(told, NAMES.person) == "you left, so you cannot write here"


def test_a_removed_person_reads_by_whom() -> None:
    removed = looking(
        outside(MemberState.REMOVED), sees(1, 2), after=delivered(membership(3, MembershipOp.REMOVE, ANA, actor=BEN))
    )
    assert said(removed)[-1] == ("edge", "ben removed ana · you see nothing after 2")
    assert closed_words(removed, NAMES.person) == "you were removed by ben, so you cannot write here"
    unknown = looking(outside(MemberState.REMOVED), sees(1, 2))
    assert closed_words(unknown, NAMES.person) == "you were removed, so you cannot write here"


def test_an_event_of_an_earlier_stay_is_not_taken_for_the_newest_end() -> None:
    state = looking(
        outside(MemberState.LEFT, left_at=9), sees(5, 8), after=delivered(membership(3, MembershipOp.REMOVE, ANA))
    )
    assert said(state)[-1] == ("edge", "you left · you see nothing after 8")


def test_whoever_may_read_nothing_any_more_is_told_so() -> None:
    state = looking(outside(MemberState.REMOVED, revoked=True), None)
    assert said(state) == [("edge", "you were removed · you see nothing of it")]


def test_what_was_unread_when_it_was_opened_has_a_line_above_it() -> None:
    item = entry(head=4, read_seq=1, unread_count=2)
    state = looking(item, sees(1, 4), message(1), message(2, sender=ANA), message(3), message(4))
    read = model.with_entries(state, [replace(item, read_seq=4, unread_count=0)])
    assert [words for _, words in said(read)] == ["the beginning", "hello", "hello", "2 unread", "hello", "hello"]


def test_own_messages_on_their_way_come_last() -> None:
    state = looking(entry(head=1), sees(1, 1), message(1))
    state = model.sending(state, Pending(HIKERS, Outgoing(acting(), b"wait for me", conversation=HIKERS)))
    assert said(state)[-1] == (LineKind.PENDING, "wait for me")


def test_text_of_others_cannot_steer_the_terminal() -> None:
    state = looking(entry(head=1), sees(1, 1), message(1, "\x1b[2Jgone\nnext"))
    assert said(state)[-1] == ("message", "·[2Jgone⏎next")


def test_a_conversation_that_is_unknown_cannot_be_written_to() -> None:
    state = model.opened(ChatState(me=ANA), HIKERS)
    assert closed_words(state, NAMES.person) == "reading …"
    refused = model.with_history(state, HIKERS, None, None)
    assert closed_words(refused, NAMES.person) == "no such conversation for you"


def test_without_an_open_conversation_the_input_says_what_to_do() -> None:
    assert closed_words(ChatState(me=ANA), NAMES.person) == "reading …"
    assert closed_words(ChatState(me=ANA, live=True), NAMES.person).startswith("no conversation yet: qim chat @PERSON")
    listed = model.with_entries(ChatState(me=ANA), [entry()])
    assert closed_words(listed, NAMES.person) == "choose a conversation with ↑ and ↓"

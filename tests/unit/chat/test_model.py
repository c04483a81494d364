"""What a chat knows after answers and events; unread, head and state are the server's, whatever happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.chat_feed import (
    ANA,
    BEN,
    CARA,
    COOKS,
    HIKERS,
    NOBODY,
    acting,
    delivered,
    entry,
    membership,
    message,
    page,
    sees,
    withheld,
)

from qim_client import (
    Attached,
    FlagsChanged,
    GroupSettings,
    LiveEvent,
    MemberState,
    Message,
    Outgoing,
    ReadMark,
    ReadMarked,
    Resumed,
    ResyncRequired,
    Sent,
    SeqRange,
    StateChanged,
    StateEntry,
    StatesChanged,
)
from qim_common.ids import MembershipOp
from qim_common.records import StateChange
from qim_devkit.chat import model
from qim_devkit.chat.model import ChatState, Need, Pending

LISTED = model.with_entries(ChatState(me=ANA), [entry(head=2, unread_count=2), entry(COOKS, head=9)])


def opened(*messages: int, visible_from: int = 1, older_from: int = 0) -> ChatState:
    """Ana looks at the hikers with these messages of ben."""
    state = model.opened(LISTED, HIKERS)
    head = max(messages, default=0)
    return model.with_history(
        state,
        HIKERS,
        sees(visible_from, head),
        page(*(message(seq) for seq in messages), head=head, older_from=older_from),
    )


def change(kind: StateChange) -> StateChanged:
    return StateChanged(NOBODY, HIKERS, StateEntry(2, kind, 0, 0, 0, "", GroupSettings(), ANA, False, 0))


def shown(state: ChatState) -> list[int]:
    assert state.view is not None
    return sorted(state.view.messages)


@pytest.mark.parametrize(
    ("event", "need"),
    [
        (delivered(message(3)), Need.ENTRY),
        (delivered(membership(3, MembershipOp.JOIN, CARA, actor=BEN)), Need.ENTRY),
        (delivered(membership(3, MembershipOp.JOIN, ANA, actor=BEN)), Need.ENTRY | Need.VIEW),
        (delivered(membership(3, MembershipOp.LEAVE, ANA)), Need.ENTRY | Need.VIEW),
        (delivered(membership(3, MembershipOp.REMOVE, CARA, ANA, actor=BEN)), Need.ENTRY | Need.VIEW),
        (delivered(message(3, generation=2)), Need.ENTRY | Need.VIEW),
        (withheld(1, 2), Need.ENTRY),
        (change(StateChange.SETTINGS), Need.ENTRY),
        (change(StateChange.FLOOR), Need.ENTRY | Need.VIEW),
        (change(StateChange.OWN_CLEAR), Need.ENTRY | Need.VIEW),
        (ReadMarked(NOBODY, HIKERS, 1, 2), Need.ENTRY),
        (FlagsChanged(NOBODY, HIKERS, hidden=True, muted=True), Need.NOTHING),
        (FlagsChanged(NOBODY, b"unknown", hidden=True, muted=True), Need.ENTRY),  # type: ignore[arg-type]
        (ResyncRequired(NOBODY, HIKERS, 1, 9), Need.ENTRY | Need.VIEW),
        (StatesChanged(NOBODY), Need.LIST | Need.VIEW),
        (Attached(NOBODY, "token"), Need.LIST | Need.VIEW),
        (Resumed(NOBODY, "token"), Need.NOTHING),
    ],
)
def test_each_event_says_what_has_to_be_read_again(event: LiveEvent, need: Need) -> None:
    assert model.with_event(opened(1, 2), event)[1] == need


@pytest.mark.parametrize(
    "event",
    [delivered(message(3)), withheld(1, 2), ReadMarked(NOBODY, HIKERS, 1, 2), change(StateChange.OWN_CLEAR)],
)
def test_no_event_changes_unread_head_state_or_order_by_itself(event: LiveEvent) -> None:
    state = opened(1, 2)
    after, _ = model.with_event(state, event)
    assert after.entries == state.entries
    assert after.total_unread == state.total_unread
    assert [item.conversation for item in after.listed()] == [COOKS, HIKERS]


def test_the_list_is_ordered_by_the_servers_activity_and_a_read_entry_replaces_the_old_one() -> None:
    state = model.with_entries(LISTED, [entry(head=10, unread_count=3)])
    assert [(item.conversation, item.unread_count) for item in state.listed()] == [(HIKERS, 3), (COOKS, 0)]
    assert [item.conversation for item in model.without_entry(state, HIKERS).listed()] == [COOKS]


def test_hidden_conversations_are_listed_when_open_or_asked_for() -> None:
    state, _ = model.with_event(LISTED, FlagsChanged(NOBODY, HIKERS, hidden=True, muted=False))
    assert [item.conversation for item in state.listed()] == [COOKS]
    assert [item.conversation for item in model.opened(state, HIKERS).listed()] == [COOKS, HIKERS]
    assert [item.conversation for item in replace(state, show_hidden=True).listed()] == [COOKS, HIKERS]


def test_the_conversation_beside_the_open_one() -> None:
    assert LISTED.beside(1) == COOKS
    state = model.opened(LISTED, COOKS)
    assert (state.beside(-1), state.beside(1)) == (None, HIKERS)
    assert ChatState(me=ANA).beside(1) is None


def test_messages_of_the_open_conversation_are_kept_once_and_of_no_other() -> None:
    state = opened(1, 2)
    for event in (delivered(message(3)), delivered(message(3)), delivered(message(10, where=COOKS))):
        state, _ = model.with_event(state, event)
    assert shown(state) == [1, 2, 3]


def test_a_page_read_anew_replaces_everything_but_what_came_after_it() -> None:
    state, _ = model.with_event(opened(1, 2, 3), delivered(message(4)))
    cleared = model.with_history(state, HIKERS, sees(3, 3, own_clear_seq=2), page(message(3), head=3))
    assert shown(cleared) == [3, 4]
    emptied = model.with_history(state, HIKERS, sees(4, 0, own_clear_seq=3), page())
    assert shown(emptied) == [4]
    state, _ = model.with_event(state, delivered(message(5)))
    refused = model.with_history(state, HIKERS, None, None)
    assert shown(refused) == []


def test_an_answer_for_a_conversation_that_is_no_longer_open_changes_nothing() -> None:
    state = opened(1, 2)
    assert model.with_history(state, COOKS, sees(1, 1), page(message(1))) is state
    assert model.with_older(state, COOKS, page(message(1))) is state


def test_older_pages_come_before_and_a_late_delivery_below_them_leaves_no_hole() -> None:
    state = opened(5, 6, older_from=4)
    late, _ = model.with_event(state, delivered(message(2)))
    assert shown(late) == [5, 6]
    older = model.with_older(state, HIKERS, page(message(3), message(4), older_from=2))
    assert (shown(older), older.view and older.view.older_from) == ([3, 4, 5, 6], 2)


def test_the_oldest_of_very_many_messages_are_dropped_and_can_be_read_again() -> None:
    state = opened(*range(1, model.MAX_MESSAGES + 1))
    state, _ = model.with_event(state, delivered(message(model.MAX_MESSAGES + 1)))
    kept = shown(state)
    assert len(kept) == model.MAX_MESSAGES // 2
    assert kept[-1] == model.MAX_MESSAGES + 1
    assert state.view is not None
    assert state.view.older_from == kept[0] - 1


def test_withheld_stretches_are_merged() -> None:
    state = opened(1)
    for first, last in ((5, 6), (1, 2), (3, 3), (9, 9), (6, 7)):
        state, _ = model.with_event(state, withheld(first, last))
    assert state.withheld[HIKERS] == (SeqRange(1, 3), SeqRange(5, 7), SeqRange(9, 9))


def test_the_newest_event_that_ended_a_stay_is_remembered_and_is_no_message_of_the_view() -> None:
    left, again = membership(3, MembershipOp.LEAVE, ANA), membership(7, MembershipOp.REMOVE, ANA, actor=BEN)
    state = opened(1, 2)
    for event in (delivered(again), delivered(left)):
        state, _ = model.with_event(state, event)
    assert state.partings[HIKERS] == again
    assert shown(state) == [1, 2]


@pytest.mark.parametrize(
    ("state", "may"),
    [
        (MemberState.MEMBER, True),
        (MemberState.LEFT, False),
        (MemberState.REMOVED, False),
    ],
)
def test_only_members_may_send(state: MemberState, may: bool) -> None:
    assert model.opened(model.with_entries(LISTED, [entry(state=state)]), HIKERS).may_send() is may


def test_a_direct_conversation_may_begin_and_an_unknown_group_may_not() -> None:
    assert model.opened(ChatState(me=ANA), COOKS, peer=BEN).may_send()
    assert not model.opened(ChatState(me=ANA), COOKS).may_send()
    assert not LISTED.may_send()


@pytest.mark.parametrize(
    ("messages", "read_seq", "seq"),
    [
        ((message(1), message(2)), 0, 2),
        ((message(1), message(2)), 2, 0),
        ((message(1), message(2, sender=ANA)), 1, 0),
        ((message(1), membership(2, MembershipOp.JOIN, CARA, actor=BEN)), 1, 0),
        ((), 0, 0),
    ],
)
def test_what_others_wrote_beyond_the_cursor_has_to_be_marked(
    messages: tuple[Message, ...], read_seq: int, seq: int
) -> None:
    state = model.opened(model.with_entries(LISTED, [entry(head=2, read_seq=read_seq)]), HIKERS)
    assert model.with_history(state, HIKERS, sees(1, 2), page(*messages, head=2)).to_mark(None) == seq


@pytest.mark.parametrize(("seen_to", "seq"), [(0, 0), (1, 1), (2, 1), (3, 3), (None, 3)])
def test_only_what_was_in_sight_has_to_be_marked(seen_to: int | None, seq: int) -> None:
    messages = (message(1), message(2, sender=ANA), message(3))
    state = model.opened(model.with_entries(LISTED, [entry(head=3)]), HIKERS)
    assert model.with_history(state, HIKERS, sees(1, 3), page(*messages, head=3)).to_mark(seen_to) == seq


def test_a_read_mark_never_goes_back() -> None:
    state = model.with_read(LISTED, HIKERS, ReadMark(2, 0))
    assert (state.entries[HIKERS].read_seq, state.entries[HIKERS].unread_count) == (2, 0)
    assert model.with_read(state, HIKERS, ReadMark(1, 1)) is state
    assert model.with_read(state, BEN, ReadMark(1, 1)) is state  # type: ignore[arg-type]


def pending() -> Pending:
    return Pending(HIKERS, Outgoing(acting(), b"hi", conversation=HIKERS))


def test_an_own_message_stands_where_it_was_committed_before_it_is_delivered() -> None:
    mine = pending()
    state = model.sending(opened(1, 2), mine)
    assert state.pending == (mine,)
    sent = model.with_sent(state, mine, Sent(HIKERS, 3, 3000, 1, 1))
    assert (sent.pending, shown(sent)) == ((), [1, 2, 3])
    assert sent.to_mark(None) == 2


def test_an_own_message_that_is_delivered_first_is_no_longer_pending() -> None:
    mine = pending()
    state = model.sending(opened(1, 2), mine)
    arrived = message(3, sender=ANA, client_message_id=mine.item.client_message_id)
    state, _ = model.with_event(state, delivered(arrived))
    assert (state.pending, shown(state)) == ((), [1, 2, 3])
    assert model.not_sent(model.sending(state, mine), mine).pending == ()

"""What a chat of one person knows, and how each answer and each live event changes it. Pure.

Unread, state, head and order are the server's: they stand in the entries that it answered, and an event never changes
them here. It only says what has to be read again (`Need`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from typing import Final

from qim_client import (
    Attached,
    Conversation,
    Delivered,
    FlagsChanged,
    HistoryPage,
    LiveEvent,
    MailboxEntry,
    MemberState,
    Message,
    Outgoing,
    ReadMark,
    ReadMarked,
    ResyncRequired,
    Sent,
    SeqRange,
    StateChanged,
    StatesChanged,
    VisibleRange,
)
from qim_common.ids import ConversationId, MembershipOp, UserId
from qim_common.records import Audience, RecordType, StateChange

MAX_MESSAGES: Final = 2000
"""Messages kept of the open conversation; beyond it the oldest are dropped, and can be read again."""


class Need(Flag):
    """What has to be read again."""

    NOTHING = 0
    ENTRY = auto()
    VIEW = auto()
    LIST = auto()


@dataclass(frozen=True, slots=True)
class Pending:
    """An own message that is on its way."""

    conversation: ConversationId
    item: Outgoing


@dataclass(frozen=True, slots=True)
class View:
    """The open conversation.

    Attributes:
        peer: the other person where it was opened as `@PERSON`; it need not exist then.
        messages: by seq.
        visible: None until it was read, and where the person may read nothing of it.
        older_from: where the next older page begins; 0: the oldest visible message is here.
        read_before, unread_before: the read cursor and unread when it was opened, for the line above what is new.
    """

    conversation: ConversationId
    peer: UserId | None = None
    messages: Mapping[int, Message] = field(default_factory=dict)
    visible: VisibleRange | None = None
    loaded: bool = False
    older_from: int = 0
    generation: int = 0
    read_before: int = 0
    unread_before: int = 0


@dataclass(frozen=True, slots=True)
class ChatState:
    """Everything that a chat shows.

    Attributes:
        withheld: stretches that were delivered without bodies, ascending and disjoint.
        partings: the events that ended the person's stays, the newest of each conversation.
        live: whether everything delivered has come, and the stream stands.
        trouble: why the stream does not stand; empty where it does or was not opened yet.
        status: the newest thing to tell, such as a refusal.
    """

    me: UserId
    entries: Mapping[ConversationId, Conversation] = field(default_factory=dict)
    view: View | None = None
    pending: tuple[Pending, ...] = ()
    withheld: Mapping[ConversationId, tuple[SeqRange, ...]] = field(default_factory=dict)
    partings: Mapping[ConversationId, Message] = field(default_factory=dict)
    total_unread: int = 0
    show_hidden: bool = False
    live: bool = False
    trouble: str = ""
    status: str = ""

    @property
    def open_entry(self) -> Conversation | None:
        """The list's entry of the open conversation."""
        return self.entries.get(self.view.conversation) if self.view else None

    def is_open(self, conversation: ConversationId) -> bool:
        """Whether this is the open conversation."""
        return self.view is not None and self.view.conversation == conversation

    def listed(self) -> list[Conversation]:
        """The list, newest activity first; hidden ones only when asked for or open."""
        shown = [
            entry
            for entry in self.entries.values()
            if not entry.hidden or self.show_hidden or self.is_open(entry.conversation)
        ]
        return sorted(shown, key=lambda entry: (-entry.last_activity_ms, entry.conversation))

    def beside(self, step: int) -> ConversationId | None:
        """The conversation `step` places below (or above) the open one in the list; None at its end."""
        order = [entry.conversation for entry in self.listed()]
        if self.view is None or self.view.conversation not in order:
            return order[0] if order else None
        place = order.index(self.view.conversation) + step
        return order[place] if 0 <= place < len(order) else None

    def may_send(self) -> bool:
        """Whether a message can be sent to the open conversation, as far as the list knows."""
        entry = self.open_entry
        if self.view is None:
            return False
        return entry.state is MemberState.MEMBER if entry else self.view.peer is not None

    def to_mark(self, seen_to: int | None) -> int:
        """Up to which seq the open conversation has still to be marked read; 0: nothing of others is beyond the cursor.

        `seen_to`: up to where it was in sight; None: all that is here.
        """
        entry = self.open_entry
        if self.view is None or entry is None:
            return 0
        return max(
            (
                message.seq
                for message in self.view.messages.values()
                if message.type is RecordType.ORDINARY
                and message.sender != self.me
                and message.seq > entry.read_seq
                and (seen_to is None or message.seq <= seen_to)
            ),
            default=0,
        )


def with_entries(state: ChatState, entries: Iterable[Conversation]) -> ChatState:
    """A page of the list, or one entry."""
    found = {entry.conversation: entry for entry in entries}
    view = state.view
    if view is not None and not view.loaded and (entry := found.get(view.conversation)):
        view = replace(view, read_before=entry.read_seq, unread_before=entry.unread_count)
    return replace(state, entries={**state.entries, **found}, view=view)


def without_entry(state: ChatState, conversation: ConversationId) -> ChatState:
    """The server knows no such conversation for this person."""
    return replace(state, entries={key: entry for key, entry in state.entries.items() if key != conversation})


def opened(state: ChatState, conversation: ConversationId, peer: UserId | None = None) -> ChatState:
    """Another conversation is shown; its messages have to be read."""
    entry = state.entries.get(conversation)
    view = View(conversation, peer)
    if entry is not None:
        view = replace(view, read_before=entry.read_seq, unread_before=entry.unread_count)
    return replace(state, view=view, status="")


def with_history(
    state: ChatState, conversation: ConversationId, visible: VisibleRange | None, page: HistoryPage | None
) -> ChatState:
    """The newest page of a conversation, read anew; None for both: the person may read nothing of it.

    What came live beyond that page meanwhile stays; everything else is the page's.
    """
    if not state.is_open(conversation) or state.view is None:
        return state
    if page is None or visible is None:
        return replace(state, view=replace(state.view, messages={}, visible=None, loaded=True, older_from=0))
    newer = {
        seq: message
        for seq, message in state.view.messages.items()
        if seq > page.head_seq and seq >= visible.earliest_available_seq and message.generation == page.generation
    }
    view = replace(
        state.view,
        messages={**_by_seq(page), **newer},
        visible=visible,
        loaded=True,
        older_from=page.next_from_seq,
        generation=page.generation,
    )
    return _settled(replace(state, view=view))


def with_older(state: ChatState, conversation: ConversationId, page: HistoryPage) -> ChatState:
    """The page before what is shown."""
    if not state.is_open(conversation) or state.view is None or page.generation != state.view.generation:
        return state
    messages = {**_by_seq(page), **state.view.messages}
    return replace(state, view=replace(state.view, messages=messages, older_from=page.next_from_seq))


def with_read(state: ChatState, conversation: ConversationId, mark: ReadMark) -> ChatState:
    """The answer of MarkRead."""
    entry = state.entries.get(conversation)
    if entry is None or mark.read_seq < entry.read_seq:
        return state
    return with_entries(state, [replace(entry, read_seq=mark.read_seq, unread_count=mark.unread_count)])


def with_event(state: ChatState, event: LiveEvent) -> tuple[ChatState, Need]:
    """A live event, and what has to be read again because of it."""
    match event:
        case Delivered():
            return _delivered(state, event.entry)
        case StateChanged():
            redraw = event.change.kind in (StateChange.FLOOR, StateChange.OWN_CLEAR)
            return state, Need.ENTRY | (Need.VIEW if redraw else Need.NOTHING)
        case ReadMarked():
            return state, Need.ENTRY
        case FlagsChanged():
            entry = state.entries.get(event.conversation)
            if entry is None:
                return state, Need.ENTRY
            return with_entries(state, [replace(entry, hidden=event.hidden, muted=event.muted)]), Need.NOTHING
        case ResyncRequired():
            return state, Need.ENTRY | Need.VIEW
        case Attached():
            return replace(state, live=True, trouble=""), Need.LIST | Need.VIEW
        case StatesChanged():
            return state, Need.LIST | Need.VIEW
    return state, Need.NOTHING


def sending(state: ChatState, pending: Pending) -> ChatState:
    """An own message leaves."""
    return replace(not_sent(state, pending), pending=(*state.pending, pending), status="")


def not_sent(state: ChatState, pending: Pending) -> ChatState:
    """An own message was refused, or nobody knows what became of it."""
    return replace(state, pending=tuple(item for item in state.pending if item != pending))


def with_sent(state: ChatState, pending: Pending, sent: Sent) -> ChatState:
    """An own message was committed; it is shown where it stands before it is delivered."""
    state, view, item = not_sent(state, pending), state.view, pending.item
    if view is None or not state.is_open(sent.conversation) or sent.generation != view.generation:
        return state
    message = Message(
        conversation=sent.conversation,
        seq=sent.seq,
        generation=sent.generation,
        membership_version=sent.membership_version,
        time_ms=sent.time_ms,
        type=RecordType.ORDINARY,
        sender=item.actor.user,
        device=item.actor.device,
        client_message_id=item.client_message_id,
        custom_type=item.custom_type,
        body=item.body,
        prev_seq=0,
        audience=Audience.BROADCAST,
        event=None,
    )
    return replace(state, view=replace(view, messages={sent.seq: message, **view.messages}))


def _delivered(state: ChatState, entry: MailboxEntry) -> tuple[ChatState, Need]:
    if entry.withheld is not None:
        known = state.withheld.get(entry.conversation, ())
        merged = {**state.withheld, entry.conversation: merge((*known, entry.withheld))}
        return replace(state, withheld=merged), Need.ENTRY
    message = entry.message
    if message is None:
        return state, Need.NOTHING
    own = message.event is not None and state.me in message.event.people
    if own and message.event is not None and message.event.op is not MembershipOp.JOIN:
        known_parting = state.partings.get(message.conversation)
        if known_parting is None or known_parting.seq < message.seq:
            state = replace(state, partings={**state.partings, message.conversation: message})
        return state, Need.ENTRY | Need.VIEW
    if not state.is_open(message.conversation) or state.view is None:
        return state, Need.ENTRY
    if own or message.generation != state.view.generation or state.view.visible is None:
        return state, Need.ENTRY | Need.VIEW
    view = state.view
    if message.seq > view.older_from:
        view = replace(view, messages={**view.messages, message.seq: message})
    return _settled(replace(state, view=_bounded(view))), Need.ENTRY


def _settled(state: ChatState) -> ChatState:
    """Without the pending messages that have arrived."""
    if not state.pending or state.view is None:
        return state
    arrived = {message.client_message_id for message in state.view.messages.values() if message.sender == state.me}
    return replace(state, pending=tuple(one for one in state.pending if one.item.client_message_id not in arrived))


def _bounded(view: View) -> View:
    if len(view.messages) <= MAX_MESSAGES:
        return view
    kept = sorted(view.messages)[-MAX_MESSAGES // 2 :]
    return replace(view, messages={seq: view.messages[seq] for seq in kept}, older_from=kept[0] - 1)


def _by_seq(page: HistoryPage) -> dict[int, Message]:
    return {message.seq: message for message in page.messages}


def merge(ranges: Iterable[SeqRange]) -> tuple[SeqRange, ...]:
    """The same seqs as ascending stretches that do not touch."""
    merged: list[SeqRange] = []
    for item in sorted(ranges, key=lambda item: item.first):
        if merged and item.first <= merged[-1].last + 1:
            merged[-1] = SeqRange(merged[-1].first, max(merged[-1].last, item.last))
        else:
            merged.append(item)
    return tuple(merged)

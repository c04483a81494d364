"""What the open conversation shows, line by line: messages, membership events, the edges of what is visible. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from qim_client import Conversation, MembershipEvent, MemberState, Message, SeqRange, VisibleRange
from qim_client.presentation import body_text, listed, shown
from qim_client.words import NameOf, seqs
from qim_common.ids import MembershipOp
from qim_common.records import RecordType
from qim_devkit.chat.model import ChatState, View


class LineKind(StrEnum):
    """How a line looks."""

    MESSAGE = "message"
    PENDING = "pending"
    EVENT = "event"
    EDGE = "edge"
    WITHHELD = "withheld"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Line:
    """One line. `seq` 0: it stands for no single seq; `sender` is empty except for messages."""

    kind: LineKind
    text: str
    seq: int = 0
    sender: str = ""
    mine: bool = False
    time_ms: int = 0


def event_line(event: MembershipEvent, name_of: NameOf) -> str:
    """A membership event as it is told in a conversation: "ana added cara", "dana left"."""
    people = listed(shown(event.people, name_of))
    if event.op is MembershipOp.LEAVE:
        return f"{people} left"
    actor = "an operator" if event.actor is None else listed(shown([event.actor], name_of))
    return f"{actor} {'added' if event.op is MembershipOp.JOIN else 'removed'} {people}"


def lines(state: ChatState, name_of: NameOf) -> list[Line]:
    """The open conversation from the oldest line to the newest."""
    view = state.view
    if view is None or not view.loaded:
        return []
    entry = state.open_entry
    drawn: list[tuple[float, Line]] = [
        *_of_messages(state, view, name_of),
        *_of_withheld(view, state.withheld.get(view.conversation, ())),
        *_of_edges(view),
    ]
    if (new := _of_new(state, view)) is not None:
        drawn.append(new)
    drawn.sort(key=lambda pair: pair[0])
    found = [line for _, line in drawn]
    if view.older_from:
        found.insert(0, Line(LineKind.EDGE, "there is more above: Page Up"))
    if (end := _end(state, entry, name_of)) is not None:
        found.append(end)
    pending = [one.item for one in state.pending if one.conversation == view.conversation]
    return [
        *found,
        *(Line(LineKind.PENDING, body_text(item.body), sender=name_of(state.me), mine=True) for item in pending),
    ]


def closed_words(state: ChatState, name_of: NameOf) -> str:
    """Why no message can be sent to the open conversation; empty where one can."""
    if state.view is None:
        if not state.entries:
            return "no conversation yet: qim chat @PERSON begins one" if state.live else "reading …"
        return "choose a conversation with ↑ and ↓"
    if state.may_send():
        return ""
    entry = state.open_entry
    if entry is None:
        return "no such conversation for you" if state.view.loaded else "reading …"
    if entry.state is MemberState.LEFT:
        return "you left, so you cannot write here"
    parting = state.partings.get(entry.conversation)
    by = ""
    if parting is not None and parting.event is not None and parting.seq == entry.stay.left_at:
        by = " by an operator" if parting.event.actor is None else f" by {name_of(parting.event.actor)}"
    return f"you were removed{by}, so you cannot write here"


def _of_messages(state: ChatState, view: View, name_of: NameOf) -> Iterator[tuple[float, Line]]:
    for seq, message in view.messages.items():
        if message.type is RecordType.CONTROL:
            text = event_line(message.event, name_of) if message.event else "an event that this version does not know"
            yield seq, Line(LineKind.EVENT, text, seq, time_ms=message.time_ms)
        else:
            mine = message.sender == state.me
            text = body_text(message.body)
            yield seq, Line(LineKind.MESSAGE, text, seq, name_of(message.sender), mine, message.time_ms)


def _of_withheld(view: View, stretches: tuple[SeqRange, ...]) -> Iterator[tuple[float, Line]]:
    for item in stretches:
        if item.last <= view.older_from:
            continue
        yield item.last, Line(LineKind.WITHHELD, f"{seqs(item)} withheld: delivered, not yours to read now")


def _of_edges(view: View) -> Iterator[tuple[float, Line]]:
    visible = view.visible
    if visible is None:
        return
    if not view.older_from:
        yield visible.earliest_available_seq - 0.5, Line(LineKind.EDGE, _earliest_words(visible))
    for before, after in pairwise(visible.ranges):
        if before.last >= view.older_from:
            away = seqs(SeqRange(before.last + 1, after.first - 1))
            yield after.first - 0.5, Line(LineKind.EDGE, f"{away} not visible: you were away")


def _earliest_words(visible: VisibleRange) -> str:
    earliest, stay = visible.earliest_available_seq, visible.stays[-1] if visible.stays else None
    if earliest == 1:
        return "the beginning"
    if visible.own_clear_seq == earliest - 1:
        return f"you cleared everything up to {earliest - 1}"
    if visible.group_floor_seq == earliest - 1:
        return f"cleared for everybody up to {earliest - 1}"
    if stay is not None and stay.history_from == earliest - 1:
        if stay.history_from == stay.joined_at:
            return f"you joined with {earliest} · you see nothing before it"
        return f"you joined with {stay.joined_at + 1} · you see from {earliest} on"
    return f"you see from {earliest} on"


def _of_new(state: ChatState, view: View) -> tuple[float, Line] | None:
    if not view.unread_before:
        return None
    new = [message for message in view.messages.values() if _is_new(message, state, view)]
    if not new:
        return None
    return min(message.seq for message in new) - 0.25, Line(LineKind.NEW, f"{view.unread_before} unread")


def _is_new(message: Message, state: ChatState, view: View) -> bool:
    return message.type is RecordType.ORDINARY and message.sender != state.me and message.seq > view.read_before


def _end(state: ChatState, entry: Conversation | None, name_of: NameOf) -> Line | None:
    if entry is None or entry.state is MemberState.MEMBER:
        return None
    left_at = entry.stay.left_at
    parting = state.partings.get(entry.conversation)
    if parting is not None and parting.event is not None and parting.seq == left_at:
        what = event_line(parting.event, name_of)
    else:
        what = "you left" if entry.state is MemberState.LEFT else "you were removed"
    if entry.stay.revoked:
        return Line(LineKind.EDGE, f"{what} · you see nothing of it", left_at)
    return Line(LineKind.EDGE, f"{what} · you see nothing after {left_at - 1}", left_at)

"""How `qim` draws answers: messages and lists as tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.table import Table
from rich.text import Text

from qim_client import (
    Conversation,
    HistoryPage,
    MailboxEntry,
    Member,
    MemberState,
    Message,
    Stay,
    VisibleRange,
)
from qim_client.presentation import body_text, listed
from qim_client.words import NameOf, clock, counted, event_words, seqs, stay_began, stay_ended, stay_history


def message_text(message: Message, name_of: NameOf) -> Text:
    """What a message says, on one line: an event in words (in italics), else its body."""
    if message.event is not None:
        return Text(event_words(message.event, name_of), style="italic")
    return Text(body_text(message.body))


def oldest_first(page: HistoryPage) -> HistoryPage:
    """The same page with its messages in the order of their seqs, whatever direction it was read in."""
    return replace(page, messages=tuple(sorted(page.messages, key=lambda message: message.seq)))


def messages_table(messages: Iterable[Message], name_of: NameOf) -> Table:
    """Messages in the order given."""
    table = _table("seq", "time", "from", "message")
    for message in messages:
        sender = Text("·" if message.event is not None else name_of(message.sender))
        table.add_row(str(message.seq), clock(message.time_ms), sender, message_text(message, name_of))
    return table


def members_table(members: Iterable[Member], name_of: NameOf) -> Table:
    """A member list; everybody is in the group since the first seq of their stay."""
    table = _table("member", "role", "since seq")
    for member in members:
        table.add_row(_plain(name_of(member.user)), member.role.name.lower(), str(member.joined_at + 1))
    return table


def conversations_table(conversations: Iterable[Conversation], name_of: NameOf, name_of_conversation: NameOf) -> Table:
    """A conversation list, in the order given."""
    table = _table("conversation", "unread", "head", "last activity", "newest message")
    for entry in conversations:
        name = name_of_conversation(entry.conversation)
        if entry.state is not MemberState.MEMBER:
            name += f" ({entry.state.name.lower()})"
        preview = message_text(entry.preview, name_of) if entry.preview else Text("")
        table.add_row(
            _plain(name), str(entry.unread_count), str(entry.head_seq), clock(entry.last_activity_ms), preview
        )
    return table


def mailbox_table(entries: Iterable[MailboxEntry], name_of: NameOf, name_of_conversation: NameOf) -> Table:
    """What was delivered; stretches without bodies as "withheld"."""
    table = _table("conversation", "seq", "from", "message")
    for entry in entries:
        name = _plain(name_of_conversation(entry.conversation))
        if entry.message is not None:
            sender = Text("·" if entry.message.event is not None else name_of(entry.message.sender))
            table.add_row(name, str(entry.message.seq), sender, message_text(entry.message, name_of))
        elif entry.withheld is not None:
            table.add_row(name, seqs(entry.withheld), Text(""), Text("withheld", style="dim"))
    return table


def visible_lines(visible: VisibleRange) -> list[Text | Table]:
    """What somebody may read, in words, then their stays."""
    if visible.ranges:
        count = sum(item.last - item.first + 1 for item in visible.ranges)
        stretches = listed(seqs(item) for item in visible.ranges)
        words = f"visible: {stretches} ({counted(count, 'seq', 'seqs')})"
    else:
        words = "visible: nothing"
    lines: list[Text | Table] = [Text(words)]
    if visible.own_clear_seq:
        lines.append(Text(f"cleared by the person up to {visible.own_clear_seq}"))
    if visible.group_floor_seq:
        lines.append(Text(f"cleared for all up to {visible.group_floor_seq}"))
    return [*lines, _stays_table(visible.stays)]


def _stays_table(stays: Sequence[Stay]) -> Table:
    table = _table("stay", "began", "history", "ended", "keeps earlier", "revoked")
    for number, stay in enumerate(stays, 1):
        flags = ("yes" if flag else "no" for flag in (stay.keeps_earlier, stay.revoked))
        table.add_row(str(number), stay_began(stay), stay_history(stay), stay_ended(stay), *flags)
    return table


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="dim")


def _plain(text: str) -> Text:
    return Text(text, no_wrap=True)

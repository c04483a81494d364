"""A feed for `qim chat` without services: a test says what the services answer and what happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from qim_client import (
    Attached,
    Attachment,
    Conversation,
    ConversationPage,
    Delivered,
    DeviceCursor,
    HistoryPage,
    MailboxEntry,
    MembershipEvent,
    MemberState,
    Message,
    Outgoing,
    ReadMark,
    Sent,
    SeqRange,
    Stay,
    VisibleRange,
)
from qim_client.names import group_id, user_id
from qim_common.errors import PermissionDenied, QimError
from qim_common.identity import Actor
from qim_common.ids import ConversationId, ConversationKind, DeviceId, MembershipOp, TenantId, UserId, uuid7
from qim_common.records import Audience, RecordType
from qim_devkit.chat.feed import FeedEvent

ANA, BEN, CARA, DANA = (user_id(name) for name in ("ana", "ben", "cara", "dana"))
HIKERS, COOKS = group_id("hikers"), group_id("cooks")
NAMES = {ANA: "ana", BEN: "ben", CARA: "cara", DANA: "dana", HIKERS: "hikers", COOKS: "cooks"}
Answer = TypeVar("Answer")
NOBODY = cast(Attachment, None)
"""Of events: what a chat does with them does not depend on the attachment."""


class TestNames:
    """The names of this module."""

    __test__ = False

    def person(self, user: bytes) -> str:
        """See `Names`."""
        return NAMES.get(user, user.hex()[:8])

    def conversation(self, conversation: ConversationId) -> str:
        """See `Names`."""
        return NAMES.get(conversation, conversation.hex()[:8])


def acting(user: UserId = ANA) -> Actor:
    """A person on a device with the person's own id."""
    return Actor(TenantId(1), user, DeviceId(user))


def stay(joined_at: int = 0, *, left_at: int = 0, state: MemberState = MemberState.MEMBER, **fields: Any) -> Stay:
    """One stay; it shows what came after the join unless `history_from` says otherwise."""
    values = {"history_from": joined_at, "keeps_earlier": False, "revoked": False, **fields}
    return Stay(joined_at=joined_at, left_at=left_at, state=state, began_version=1, ended_version=0, **values)


def message(
    seq: int, text: str = "hello", *, sender: UserId = BEN, where: ConversationId = HIKERS, **fields: Any
) -> Message:
    """An ordinary message."""
    values: dict[str, Any] = {
        "generation": 1,
        "membership_version": 1,
        "time_ms": seq * 1000,
        "type": RecordType.ORDINARY,
        "device": DeviceId(sender),
        "client_message_id": uuid7(),
        "custom_type": "",
        "prev_seq": seq - 1,
        "audience": Audience.BROADCAST,
        "event": None,
    }
    return Message(conversation=where, seq=seq, sender=sender, body=text.encode(), **{**values, **fields})


def membership(
    seq: int, op: MembershipOp, *people: UserId, actor: UserId | None = None, where: ConversationId = HIKERS
) -> Message:
    """A membership event."""
    event = MembershipEvent(op, actor, people)
    return message(seq, "", where=where, type=RecordType.CONTROL, event=event, sender=actor or people[0])


def entry(where: ConversationId = HIKERS, *, head: int = 0, **fields: Any) -> Conversation:
    """A list's entry."""
    values: dict[str, Any] = {
        "kind": ConversationKind.GROUP,
        "state": MemberState.MEMBER,
        "unread_count": 0,
        "read_seq": 0,
        "stay": stay(),
        "earliest_available_seq": 1,
        "preview": None,
        "last_activity_ms": head * 1000,
        "hidden": False,
        "muted": False,
        "revision": 1,
        "generation": 1,
    }
    return Conversation(conversation=where, head_seq=head, **{**values, **fields})


def sees(first: int, last: int, *more: tuple[int, int], **fields: Any) -> VisibleRange:
    """What somebody may read."""
    ranges = tuple(SeqRange(*pair) for pair in ((first, last), *more) if pair[0] <= pair[1])
    values: dict[str, Any] = {
        "earliest_available_seq": first,
        "head_seq": ranges[-1].last if ranges else 0,
        "state": MemberState.MEMBER,
        "stays": (stay(),),
        "own_clear_seq": 0,
        "group_floor_seq": 0,
        "membership_version": 1,
        "generation": 1,
    }
    return VisibleRange(ranges=ranges, **{**values, **fields})


def page(*messages: Message, head: int = 0, older_from: int = 0) -> HistoryPage:
    """A page of history, newest first as it is read backwards."""
    newest_first = tuple(sorted(messages, key=lambda item: -item.seq))
    newest = head or (newest_first[0].seq if newest_first else 0)
    return HistoryPage(newest_first, older_from, 1, newest, 1)


def delivered(item: Message) -> Delivered:
    """The event that brings a message."""
    return Delivered(NOBODY, MailboxEntry(item.conversation, item, None, item.generation))


def withheld(first: int, last: int, where: ConversationId = HIKERS) -> Delivered:
    """The event that brings a stretch without bodies."""
    return Delivered(NOBODY, MailboxEntry(where, None, SeqRange(first, last), 1))


class FakeFeed:
    """Answers what its attributes hold, and records what it was asked.

    Attributes:
        entries, histories, ranges: by conversation; what is missing is PERMISSION_DENIED.
        refusals: raised by the methods of these names, once each.
        held: methods of these names wait for these events.
        calls: (method, argument), in their order.
        acknowledged: the newest cursor of each conversation.
    """

    first_events: tuple[FeedEvent, ...] = (Attached(NOBODY, "token"),)

    def __init__(self, user: UserId = ANA) -> None:
        self.actor = acting(user)
        self.entries: dict[ConversationId, Conversation] = {}
        self.histories: dict[ConversationId, HistoryPage] = {}
        self.older: dict[tuple[ConversationId, int], HistoryPage] = {}
        self.ranges: dict[ConversationId, VisibleRange] = {}
        self.refusals: dict[str, QimError] = {}
        self.held: dict[str, asyncio.Event] = {}
        self.calls: list[tuple[str, Any]] = []
        self.acknowledged: dict[ConversationId, DeviceCursor] = {}
        self.closed = False
        self._events: asyncio.Queue[FeedEvent] = asyncio.Queue()
        self.happen(*self.first_events)

    def has(self, item: Conversation, *messages: Message, visible: VisibleRange | None = None) -> None:
        """Give the person a conversation."""
        self.entries[item.conversation] = item
        self.histories[item.conversation] = page(*messages, head=item.head_seq)
        self.ranges[item.conversation] = visible or sees(1, item.head_seq)

    def happen(self, *events: FeedEvent) -> None:
        """Let events come."""
        for event in events:
            self._events.put_nowait(event)

    def called(self, method: str) -> list[Any]:
        """The arguments of all calls of a method."""
        return [argument for name, argument in self.calls if name == method]

    async def events(self) -> AsyncGenerator[FeedEvent, None]:
        """See `Feed`."""
        try:
            while True:
                yield await self._events.get()
        finally:
            self.closed = True

    async def acknowledge(self, cursors: Sequence[DeviceCursor]) -> None:
        """See `Feed`."""
        self.acknowledged |= {cursor.conversation: cursor for cursor in cursors}

    async def conversations(self, page_token: str) -> ConversationPage:
        """See `Feed`."""
        await self._asked("conversations", page_token)
        return ConversationPage(tuple(self.entries.values()), "")

    async def conversation(self, conversation: ConversationId) -> Conversation:
        """See `Feed`."""
        return await self._of("conversation", self.entries, conversation)

    async def total_unread(self) -> int:
        """See `Feed`."""
        await self._asked("total_unread", None)
        inside = (item for item in self.entries.values() if item.state is MemberState.MEMBER)
        return sum(item.unread_count for item in inside)

    async def visible(self, conversation: ConversationId) -> VisibleRange:
        """See `Feed`."""
        return await self._of("visible", self.ranges, conversation)

    async def history(self, conversation: ConversationId, from_seq: int = 0) -> HistoryPage:
        """See `Feed`."""
        if from_seq:
            await self._asked("older", from_seq)
            return self.older[conversation, from_seq]
        return await self._of("history", self.histories, conversation)

    async def send(self, item: Outgoing) -> Sent:
        """See `Feed`."""
        await self._asked("send", item)
        where = item.conversation or HIKERS
        seq = self.entries[where].head_seq + 1 if where in self.entries else 1
        return Sent(where, seq, seq * 1000, 1, 1)

    async def leave(self, group: ConversationId) -> None:
        """See `Feed`."""
        await self._asked("leave", group)

    async def clear(self, conversation: ConversationId) -> int:
        """See `Feed`."""
        await self._asked("clear", conversation)
        head = self.entries[conversation].head_seq
        self.histories[conversation] = page()
        self.ranges[conversation] = sees(head + 1, 0, own_clear_seq=head)
        return head

    async def mark_read(self, conversation: ConversationId, seq: int | None) -> ReadMark:
        """See `Feed`."""
        await self._asked("mark_read", (conversation, seq))
        item = self.entries[conversation]
        mark = ReadMark(item.head_seq if seq is None else seq, 0)
        self.entries[conversation] = replace(item, read_seq=mark.read_seq, unread_count=mark.unread_count)
        return mark

    async def set_flags(
        self, conversation: ConversationId, *, hidden: bool | None = None, muted: bool | None = None
    ) -> Conversation:
        """See `Feed`."""
        await self._asked("set_flags", (hidden, muted))
        item = self.entries[conversation]
        self.entries[conversation] = replace(
            item, hidden=item.hidden if hidden is None else hidden, muted=item.muted if muted is None else muted
        )
        return self.entries[conversation]

    async def _asked(self, method: str, argument: Any) -> None:
        self.calls.append((method, argument))
        if method in self.held:
            await self.held[method].wait()
        if (refusal := self.refusals.pop(method, None)) is not None:
            raise refusal

    async def _of(self, method: str, answers: dict[ConversationId, Answer], conversation: ConversationId) -> Answer:
        await self._asked(method, conversation)
        if conversation not in answers:
            raise PermissionDenied
        return answers[conversation]

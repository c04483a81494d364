"""What the session service asks about one person: the states of conversations, and what was delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from qim_common.errors import InvalidArgument, TooManyItems
from qim_common.ids import ConversationId, parse_conversation, parse_tenant, parse_user
from qim_common.records import Record, RecordType
from qim_writer.commands.history import ANSWER_BYTES, answer_bytes, records_in_parts
from qim_writer.domain.stays import Person
from qim_writer.domain.visible import (
    UnreadSpan,
    Visible,
    delivered_spans,
    may_read,
    unread_span,
    upper_bound,
    visible_range,
)
from qim_writer.storage import Conversation, Facts, MembershipStore, MessageStore

CONVERSATIONS_MAX: Final = 500
ENTRIES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class ConversationState:
    """One conversation as one person's list shows it."""

    conversation: Conversation
    facts: Facts
    person: Person
    visible: Visible
    head: int
    unread: int
    preview: Record | None
    newest_delivered: int
    last_activity_ms: int
    upper: int


@dataclass(frozen=True, slots=True)
class Withheld:
    """Delivered seqs without their bodies: not visible now, or no longer there. Both ends included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A page of what was delivered. `next_after` is where the next page begins."""

    conversation: Conversation
    entries: tuple[Record | Withheld, ...]
    next_after: int
    more: bool
    generation: int


def newest_delivered(person: Person, facts: Facts) -> int:
    """The newest seq delivered to a person, 0 for none: the leaver's own event, else the newest BROADCAST or ordinary
    seq of the stay, else the own join."""
    newest = person.newest
    if newest.left_at:
        return newest.left_at
    if facts.newest_broadcast > newest.joined_at:
        return facts.newest_broadcast
    return newest.joined_at + 1 if newest.began_version > 1 else 0


class PersonStates:
    """The reads of `qim.writer.v1.Internal`."""

    def __init__(self, membership: MembershipStore, messages: MessageStore) -> None:
        self._membership = membership
        self._messages = messages

    async def conversations(
        self, tenant_id: int, user_id: bytes, queries: Sequence[tuple[bytes, int]], *, with_preview: bool
    ) -> list[tuple[ConversationId, ConversationState | None]]:
        """ConversationStates; `queries` are (conversation, read cursor). None for whom the person never was in.

        Raises InvalidArgument, TooManyItems."""
        tenant, user = parse_tenant(tenant_id), parse_user(user_id, "user_id")
        if not queries:
            raise InvalidArgument("conversations", "must name at least one")
        if len(queries) > CONVERSATIONS_MAX:
            raise TooManyItems(metadata={"field": "conversations", "most": str(CONVERSATIONS_MAX)})
        ids = [parse_conversation(raw, f"conversations[{index}]") for index, (raw, _) in enumerate(queries)]
        facts = await self._membership.facts_of_many(tenant, user, ids)
        known = [
            (index, fact, fact.person)
            for index, fact in enumerate(facts)
            if fact is not None and fact.person is not None
        ]
        spans: list[tuple[ConversationId, UnreadSpan, bytes]] = [
            (ids[index], unread_span(person, fact.line, queries[index][1]), person.ordinal)
            for index, fact, person in known
        ]
        views = [_View(fact, person, with_preview=with_preview) for _, fact, person in known]
        wanted = [(ids[index], view.seqs) for (index, _, _), view in zip(known, views, strict=True)]
        unread, records = await asyncio.gather(
            self._messages.unread(tenant, spans), self._messages.records_of_many(tenant, wanted)
        )
        found: list[ConversationState | None] = [None] * len(ids)
        room = ANSWER_BYTES
        for (index, _, _), view, count, read in zip(known, views, unread, records, strict=True):
            state = view.state(Conversation(tenant, ids[index]), count, read, room)
            room -= 0 if state.preview is None else len(state.preview.tail.body)
            found[index] = state
        return list(zip(ids, found, strict=True))

    async def delivered(
        self, tenant_id: int, user_id: bytes, conversation_id: bytes, after: int, limit: int
    ) -> Delivered:
        """DeliveredPage (design.md invariants 4 and 12). Raises InvalidArgument."""
        tenant, user = parse_tenant(tenant_id), parse_user(user_id, "user_id")
        conversation = Conversation(tenant, parse_conversation(conversation_id))
        if not 1 <= limit <= ENTRIES_MAX:
            raise InvalidArgument("limit", f"must be from 1 to {ENTRIES_MAX}")
        facts = await self._membership.facts(conversation, user)
        if facts is None or facts.person is None:
            return Delivered(conversation, (), after, more=False, generation=0 if facts is None else facts.generation)
        person = facts.person
        seqs, more = await self._delivered_seqs(conversation, person, facts, after, limit)
        visible = visible_range(person, facts.line) if may_read(person) else Visible((), 0)
        entries: list[Record | Withheld] = []
        size, taken = 0, after
        async with aclosing(records_in_parts(self._messages, conversation, seqs)) as records:
            async for seq, record in records:
                if record is not None and (seq in visible or _own_event(record, person)):
                    size += answer_bytes(record)
                    if size > ANSWER_BYTES and entries:
                        more = True
                        break
                    entries.append(record)
                elif entries and isinstance(last := entries[-1], Withheld) and last.last == seq - 1:
                    entries[-1] = Withheld(last.first, seq)
                else:
                    entries.append(Withheld(seq, seq))
                taken = seq
        return Delivered(conversation, tuple(entries), taken, more, facts.generation)

    async def _delivered_seqs(
        self, conversation: Conversation, person: Person, facts: Facts, after: int, limit: int
    ) -> tuple[list[int], bool]:
        """At most `limit` delivered seqs above `after`, and whether there are more."""
        seqs: list[int] = []
        for first, last in _windows(person, facts, after, limit):
            foreign = set(await self._messages.foreign_events(conversation, first, last, person.versions))
            seqs += [seq for seq in range(first, last + 1) if seq not in foreign]
            if len(seqs) > limit:
                return seqs[:limit], True
        return seqs, False


class _View:
    """What one person sees of one conversation, before its records are read."""

    def __init__(self, facts: Facts, person: Person, *, with_preview: bool) -> None:
        self._facts = facts
        self._person = person
        self._visible = visible_range(person, facts.line) if may_read(person) else Visible((), 0)
        self._newest = newest_delivered(person, facts)
        self._preview = self._visible.head if with_preview else 0
        self.seqs = sorted({seq for seq in (self._newest, self._preview) if seq})

    def state(self, conversation: Conversation, unread: int, read: Sequence[Record], room: int) -> ConversationState:
        """The state; a preview with more than `room` bytes goes without its body."""
        records = {record.seq: record for record in read}
        newest = records.get(self._newest)
        preview = records.get(self._preview)
        if preview is not None and len(preview.tail.body) > room:
            preview = replace(preview, tail=replace(preview.tail, body=b""))
        return ConversationState(
            conversation=conversation,
            facts=self._facts,
            person=self._person,
            visible=self._visible,
            head=self._visible.head,
            unread=unread,
            preview=preview,
            newest_delivered=self._newest,
            last_activity_ms=self._facts.created_ms if newest is None else newest.time_ms,
            upper=upper_bound(self._person, self._facts.line),
        )


def _windows(person: Person, facts: Facts, after: int, size: int) -> Iterator[tuple[int, int]]:
    """The delivered stretches above `after`, in windows of at most `size` seqs."""
    for first, last in delivered_spans(person, facts.line):
        start = max(first, after + 1)
        while start <= last:
            yield start, min(start + size - 1, last)
            start += size


def _own_event(record: Record, person: Person) -> bool:
    return record.tail.type is RecordType.CONTROL and record.membership_version in person.versions

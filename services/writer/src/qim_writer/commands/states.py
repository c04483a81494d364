"""What the session service asks about one person: the states of conversations, and what was delivered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from qim_common.errors import BackendUnavailable, InvalidArgument, TooManyItems
from qim_common.ids import ConversationId, TenantId, UserId, parse_conversation, parse_tenant, parse_user
from qim_common.records import Record
from qim_writer.commands.history import ANSWER_BYTES, answer_bytes, records_in_parts
from qim_writer.domain.delivery import PageOutline, delivered_stretches, within
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

EVENTS_AT_ONCE: Final = 2_048
"""Control messages of one read: well below a millisecond of the store's time."""

READS_MAX: Final = 8
"""How often a conversation is looked at again because its floor passed a segment of the sender column meanwhile."""

EVENT_READS: Final = 8
"""Of one page. A page that meets more control messages than these hold ends early, and the next one goes on there."""


class _Stale(Enum):
    FLOOR_MOVED = "floor_moved"


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
    readable: bool


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
        found: list[ConversationState | None] = [None] * len(ids)
        room = ANSWER_BYTES
        asked = list(range(len(ids)))
        for _ in range(READS_MAX):
            stale: list[int] = []
            states = await self._read(tenant, user, [(ids[i], queries[i][1]) for i in asked], with_preview, room)
            for index, state in zip(asked, states, strict=True):
                if isinstance(state, ConversationState):
                    room -= 0 if state.preview is None else len(state.preview.tail.body)
                    found[index] = state
                elif state is _Stale.FLOOR_MOVED:
                    stale.append(index)
            if not stale:
                return list(zip(ids, found, strict=True))
            asked = stale
        raise BackendUnavailable

    async def _read(
        self,
        tenant: TenantId,
        user: UserId,
        queries: Sequence[tuple[ConversationId, int]],
        with_preview: bool,
        room: int,
    ) -> list[ConversationState | _Stale | None]:
        """The states as of one look at each conversation; stale where its floor moved while unread was counted."""
        ids = [conversation for conversation, _ in queries]
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
        found: list[ConversationState | _Stale | None] = [None] * len(ids)
        for (index, _, _), view, count, read in zip(known, views, unread, records, strict=True):
            if count is None:
                found[index] = _Stale.FLOOR_MOVED
                continue
            conversation = Conversation(tenant, ids[index])
            last_ms = await self._last_activity(conversation, user, view, read)
            state = view.state(conversation, count, read, room, last_ms)
            room -= 0 if state.preview is None else len(state.preview.tail.body)
            found[index] = state
        return found

    async def _last_activity(
        self, conversation: Conversation, user: UserId, view: _View, read: Sequence[Record]
    ) -> int:
        """The commit time of the newest message delivered to the person, also where its record was removed; else that
        of the creation."""
        facts, newest = view.facts, view.newest
        if not newest:
            return facts.created_ms
        for record in read:
            if record.seq == newest:
                return record.time_ms
        event = await self._messages.event(conversation, newest)
        if event is not None:
            return event.time_ms
        # Its record may have been removed after the facts were read.
        again = facts if facts.newest_broadcast_ms else await self._membership.facts(conversation, user)
        return (again and again.newest_broadcast_ms) or facts.created_ms

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
        visible = visible_range(person, facts.line)
        outline = await self._outline(conversation, person, facts, visible, PageOutline(room=limit, upto=after))
        page = _Page()
        seqs = [seq for part in outline.stretches if part.readable for seq in range(part.first, part.last + 1)]
        async with aclosing(records_in_parts(self._messages, conversation, seqs)) as records:
            for part in outline.stretches:
                if not part.readable:
                    page.withhold(part.first, part.last)
                    continue
                for seq in range(part.first, part.last + 1):
                    if not page.take(seq, (await anext(records))[1]):
                        return Delivered(conversation, tuple(page.entries), seq - 1, True, facts.generation)
        return Delivered(conversation, tuple(page.entries), outline.upto, outline.more, facts.generation)

    async def _outline(
        self, conversation: Conversation, person: Person, facts: Facts, visible: Visible, outline: PageOutline
    ) -> PageOutline:
        """Fills the outline with what was delivered after its `upto`, reading a bounded number of control messages."""
        after = outline.upto
        spans = deque(
            (max(first, after + 1), last) for first, last in delivered_spans(person, facts.line) if last > after
        )
        for _ in range(EVENT_READS):
            if not spans:
                break
            low, high = spans[0][0], spans[-1][1]
            events = await self._messages.control_events(conversation, low, high, EVENTS_AT_ONCE)
            known = events[-1].seq if len(events) == EVENTS_AT_ONCE else high
            while spans and spans[0][0] <= known:
                first, last = spans.popleft()
                if last > known:
                    spans.appendleft((known + 1, last))
                    last = known
                found = within(events, first, last)
                for stretch in delivered_stretches(first, last, found, person.versions, visible):
                    if not outline.add(stretch):
                        return outline
                outline.upto = last
        outline.more = bool(spans)
        return outline


class _Page:
    """The entries of one page of what was delivered, as they are read."""

    def __init__(self) -> None:
        self.entries: list[Record | Withheld] = []
        self._size = 0

    def take(self, seq: int, record: Record | None) -> bool:
        """The next seq with its record, None where that is gone; False when the page has no room for it."""
        if record is None:
            self.withhold(seq, seq)
            return True
        self._size += answer_bytes(record)
        if self._size > ANSWER_BYTES and self.entries:
            return False
        self.entries.append(record)
        return True

    def withhold(self, first: int, last: int) -> None:
        """The next seqs without their bodies; one range with what comes right before."""
        if self.entries and isinstance(before := self.entries[-1], Withheld) and before.last == first - 1:
            self.entries[-1] = Withheld(before.first, last)
        else:
            self.entries.append(Withheld(first, last))


class _View:
    """What one person sees of one conversation, before its records are read."""

    def __init__(self, facts: Facts, person: Person, *, with_preview: bool) -> None:
        self.facts = facts
        self._person = person
        self._visible = visible_range(person, facts.line)
        self.newest = newest_delivered(person, facts)
        self._preview = self._visible.head if with_preview else 0
        self.seqs = sorted({seq for seq in (self.newest, self._preview) if seq})

    def state(
        self, conversation: Conversation, unread: int, read: Sequence[Record], room: int, last_activity_ms: int
    ) -> ConversationState:
        """The state; a preview with more than `room` bytes goes without its body."""
        records = {record.seq: record for record in read}
        preview = records.get(self._preview)
        if preview is not None and len(preview.tail.body) > room:
            preview = replace(preview, tail=replace(preview.tail, body=b""))
        return ConversationState(
            conversation=conversation,
            facts=self.facts,
            person=self._person,
            visible=self._visible,
            head=self._visible.head,
            unread=unread,
            preview=preview,
            newest_delivered=self.newest,
            last_activity_ms=last_activity_ms,
            upper=upper_bound(self._person, self.facts.line),
            readable=may_read(self._person),
        )

"""What was delivered to one person in one conversation, page by page (design.md invariants 4 and 12)."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from qim_common.errors import InvalidArgument
from qim_common.ids import parse_conversation, parse_tenant, parse_user
from qim_common.records import Record
from qim_writer.commands.history import ANSWER_BYTES, answer_bytes, records_in_parts
from qim_writer.domain.delivery import PageOutline, delivered_stretches, within
from qim_writer.domain.stays import Person
from qim_writer.domain.visible import Visible, delivered_spans, newest_delivered, ordinary_spans, visible_range
from qim_writer.storage import Conversation, Facts, MembershipStore, MessageStore

ENTRIES_MAX: Final = 1_000

EVENTS_AT_ONCE: Final = 2_048
"""Control messages of one read: well below a millisecond of the store's time."""

EVENT_READS: Final = 8
"""Of one page. A page that meets more control messages than these hold ends early, and the next one goes on there."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """Delivered seqs without their bodies: not visible now, or no longer there. Both ends included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A page of what was delivered.

    Attributes:
        next_after: where the next page begins.
        waiting: how many ordinary messages were delivered after the asked seq, also withheld ones; membership events
            do not count, so that those of others, which are not delivered, leave it as it is.
        newest: the newest seq delivered to the person, 0 for none.
    """

    conversation: Conversation
    entries: tuple[Record | Withheld, ...]
    next_after: int
    more: bool
    generation: int
    waiting: int
    newest: int


class DeliveredPages:
    """The read `DeliveredPage` of `qim.writer.v1.Internal`."""

    def __init__(self, membership: MembershipStore, messages: MessageStore) -> None:
        self._membership = membership
        self._messages = messages

    async def page(self, tenant_id: int, user_id: bytes, conversation_id: bytes, after: int, limit: int) -> Delivered:
        """DeliveredPage (design.md invariants 4 and 12). Raises InvalidArgument."""
        tenant, user = parse_tenant(tenant_id), parse_user(user_id, "user_id")
        conversation = Conversation(tenant, parse_conversation(conversation_id))
        if not 1 <= limit <= ENTRIES_MAX:
            raise InvalidArgument("limit", f"must be from 1 to {ENTRIES_MAX}")
        facts = await self._membership.facts(conversation, user, told=False)
        if facts is None or facts.person is None:
            generation = 0 if facts is None else facts.generation
            return Delivered(conversation, (), after, more=False, generation=generation, waiting=0, newest=0)
        person = facts.person
        answer = Delivered(
            conversation,
            entries=(),
            next_after=after,
            more=False,
            generation=facts.generation,
            waiting=await self._waiting(conversation, person, facts, after),
            newest=newest_delivered(person, facts.line, facts.newest_broadcast),
        )
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
                        return replace(answer, entries=tuple(page.entries), next_after=seq - 1, more=True)
        return replace(answer, entries=tuple(page.entries), next_after=outline.upto, more=outline.more)

    async def _waiting(self, conversation: Conversation, person: Person, facts: Facts, after: int) -> int:
        spans = [(conversation.id, first, last) for first, last in ordinary_spans(person, facts.line, after)]
        controls = await self._messages.controls(conversation.tenant, spans)
        return sum(last - first + 1 for _, first, last in spans) - sum(controls)

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

"""What the session service asks about one person: the states of conversations."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from qim_common.errors import BackendUnavailable, InvalidArgument, TooManyItems
from qim_common.ids import ConversationId, TenantId, UserId, parse_conversation, parse_tenant, parse_user
from qim_common.records import Record
from qim_writer.commands.history import ANSWER_BYTES
from qim_writer.domain.stays import Person
from qim_writer.domain.visible import (
    Visible,
    may_read,
    newest_delivered,
    ordinary_spans,
    unread_span,
    upper_bound,
    visible_range,
)
from qim_writer.storage import Conversation, Facts, MembershipStore, MessageStore

CONVERSATIONS_MAX: Final = 500
READS_MAX: Final = 8
"""How often a conversation is looked at again because its floor passed a segment of the sender column meanwhile."""


class _Stale(Enum):
    FLOOR_MOVED = "floor_moved"


class ConversationQuery(NamedTuple):
    """One conversation of a question, as it came.

    Attributes:
        conversation: its id.
        read: the person's read cursor, 0 where nothing was read.
        hidden: where the person hid it, the newest delivered seq at that moment; None where it is not hidden.
    """

    conversation: bytes
    read: int = 0
    hidden: int | None = None


class ConversationState(NamedTuple):
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
    hidden: bool


class PersonStates:
    """The reads of `qim.writer.v1.Internal`."""

    def __init__(self, membership: MembershipStore, messages: MessageStore) -> None:
        self._membership = membership
        self._messages = messages

    async def conversations(
        self, tenant_id: int, user_id: bytes, queries: Sequence[ConversationQuery], *, with_preview: bool
    ) -> list[tuple[ConversationId, ConversationState | None]]:
        """ConversationStates. None for those that the person never was in.

        Raises InvalidArgument, TooManyItems."""
        tenant, user = parse_tenant(tenant_id), parse_user(user_id, "user_id")
        if not queries:
            raise InvalidArgument("conversations", "must name at least one")
        if len(queries) > CONVERSATIONS_MAX:
            raise TooManyItems(metadata={"field": "conversations", "most": str(CONVERSATIONS_MAX)})
        ids = [parse_conversation(raw, f"conversations[{index}]") for index, (raw, _, _) in enumerate(queries)]
        found: list[ConversationState | None] = [None] * len(ids)
        room = ANSWER_BYTES
        asked = list(range(len(ids)))
        for _ in range(READS_MAX):
            stale: list[int] = []
            states = await self._read(tenant, user, [(ids[i], queries[i]) for i in asked], with_preview, room)
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
        queries: Sequence[tuple[ConversationId, ConversationQuery]],
        with_preview: bool,
        room: int,
    ) -> list[ConversationState | _Stale | None]:
        """The states as of one look at each conversation; stale where its floor moved while unread was counted.

        The look brings the record at the head, which is mostly all that is shown; what is missing is read after it.
        """
        looks = await self._membership.looks(tenant, user, [conversation for conversation, _ in queries])
        views = [
            _View(
                Conversation(tenant, id_), query, look.facts, look.facts.person, look.newest, with_preview=with_preview
            )
            if look is not None and look.facts.person is not None
            else None
            for (id_, query), look in zip(queries, looks, strict=True)
        ]
        known = [view for view in views if view is not None]
        # One after another: the second and the third are rare, and with nothing to ask there is nothing to wait for.
        await self._count_unread(tenant, [view for view in known if view.span.lower < view.span.upper])
        await self._read_records(tenant, [view for view in known if view.missing])
        await self._count_controls(tenant, [view for view in known if view.hidden])
        found: list[ConversationState | _Stale | None] = []
        for view in views:
            if view is None:
                found.append(None)
            elif view.unread is None:
                found.append(_Stale.FLOOR_MOVED)
            else:
                last_ms = view.last_activity_ms()
                state = view.state(room, await self._late_activity(user, view) if last_ms is None else last_ms)
                room -= 0 if state.preview is None else len(state.preview.tail.body)
                found.append(state)
        return found

    async def _count_unread(self, tenant: TenantId, views: Sequence[_View]) -> None:
        spans = [(view.conversation.id, view.span, view.person.ordinal) for view in views]
        for view, count in zip(views, await self._messages.unread(tenant, spans), strict=True):
            view.unread = count

    async def _read_records(self, tenant: TenantId, views: Sequence[_View]) -> None:
        wanted = [(view.conversation.id, view.missing) for view in views]
        for view, records in zip(views, await self._messages.records_of_many(tenant, wanted), strict=True):
            view.records.update((record.seq, record) for record in records)

    async def _count_controls(self, tenant: TenantId, views: Sequence[_View]) -> None:
        """Whether nothing but control messages was delivered after where the person hid the conversation."""
        spans = [
            (view, (view.conversation.id, first, last))
            for view in views
            for first, last in ordinary_spans(view.person, view.facts.line, view.hidden_after)
        ]
        counts = await self._messages.controls(tenant, [span for _, span in spans])
        for (view, (_, first, last)), count in zip(spans, counts, strict=True):
            view.hidden &= count > last - first

    async def _late_activity(self, user: UserId, view: _View) -> int:
        """The commit time of the newest message delivered to the person, whose record was removed."""
        facts = view.facts
        event = await self._messages.event(view.conversation, view.newest)
        if event is not None:
            return event.time_ms
        # Its record may have been removed after the facts were read.
        again = (
            facts if facts.newest_broadcast_ms else await self._membership.facts(view.conversation, user, told=False)
        )
        return (again and again.newest_broadcast_ms) or facts.created_ms


class _View:
    """What one person sees of one conversation, as it is being read.

    Attributes:
        newest: the newest seq delivered to the person, 0 for none.
        span: where unread is counted.
        records: by seq, those of `newest` and the preview that were read.
        missing: the seqs of those that the first look did not bring.
        unread: None where the floor has moved since.
        hidden: the person hid it, after `hidden_after`; in the end, whether that holds.
    """

    __slots__ = (
        "_preview",
        "_visible",
        "conversation",
        "facts",
        "hidden",
        "hidden_after",
        "missing",
        "newest",
        "person",
        "records",
        "span",
        "unread",
    )

    def __init__(
        self,
        conversation: Conversation,
        query: ConversationQuery,
        facts: Facts,
        person: Person,
        at_head: Record | None,
        *,
        with_preview: bool,
    ) -> None:
        line = facts.line
        self.conversation = conversation
        self.facts = facts
        self.person = person
        self._visible = visible_range(person, line)
        self.newest = newest_delivered(person, line, facts.newest_broadcast)
        self._preview = self._visible.head if with_preview else 0
        self.records = {} if at_head is None else {at_head.seq: at_head}
        self.missing = [seq for seq in {self.newest, self._preview} if seq and seq not in self.records]
        self.span = unread_span(person, line, query.read)
        self.unread: int | None = 0
        self.hidden = query.hidden is not None
        self.hidden_after = query.hidden or 0

    def last_activity_ms(self) -> int | None:
        """The commit time of the newest message delivered to the person, else that of the creation; None where its
        record is gone."""
        if not self.newest:
            return self.facts.created_ms
        record = self.records.get(self.newest)
        return None if record is None else record.time_ms

    def state(self, room: int, last_activity_ms: int) -> ConversationState:
        """The state; a preview with more than `room` bytes goes without its body."""
        preview = self.records.get(self._preview)
        if preview is not None and len(preview.tail.body) > room:
            preview = preview._replace(tail=preview.tail._replace(body=b""))
        return ConversationState(
            self.conversation,
            self.facts,
            self.person,
            self._visible,
            self._visible.head,
            self.unread or 0,
            preview,
            self.newest,
            last_activity_ms,
            upper_bound(self.person, self.facts.line),
            may_read(self.person),
            self.hidden,
        )

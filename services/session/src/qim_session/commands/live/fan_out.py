"""From a block of the dispatch log to the connected people whom it reached (design.md invariants 4 and 12).

A block is handed over in one step. Where something is not known yet (the members at its version, the people of a large
membership event, a body that is not in the log), it says what, nothing has been handed over, and the same block is
tried again when that has been found out. Ordinary messages and membership events are visible to everybody whom they
reach at their place in the log, so that the log alone says what to send.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.records import Audience, Block, DispatchItem, MessageBlock, RecordType, StateBlock, StateChange
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.commands.live.attachment import Attachment
from qim_session.commands.live.connected import Connected
from qim_session.commands.live.events import EventEncoder, WireEvent
from qim_session.domain.cursors import Cursor
from qim_session.domain.delivery_order import LiveMessage
from qim_session.domain.membership import MembersCache, MembershipChange, read_control_body
from qim_session.domain.state_entries import read_state

if TYPE_CHECKING:
    from qim_session.commands.live.stream import LiveStream


@dataclass(frozen=True, slots=True)
class MembersNeeded:
    """Who was in the conversation at the version."""

    tenant: TenantId
    conversation: ConversationId
    version: int


@dataclass(frozen=True, slots=True)
class ChangeNeeded:
    """Whom the membership event changed that made the version."""

    tenant: TenantId
    conversation: ConversationId
    version: int


@dataclass(frozen=True, slots=True)
class BodyNeeded:
    """A message that is not in the log, as these people may see it."""

    tenant: TenantId
    conversation: ConversationId
    generation: int
    seq: int
    people: tuple[UserId, ...]


Need = MembersNeeded | ChangeNeeded | BodyNeeded


@dataclass(slots=True)
class Found:
    """What was found out for the block at hand. `bodies`: seq to person to event."""

    changes: dict[int, MembershipChange] = field(default_factory=dict)
    bodies: dict[int, dict[UserId, WireEvent]] = field(default_factory=dict)


class FanOut:
    """Hands blocks over to the attachments. A conversation's blocks come in order, from one caller."""

    def __init__(
        self, connected: Connected, members: MembersCache, encoder: EventEncoder, metrics: SessionMetrics
    ) -> None:
        self._connected = connected
        self._members = members
        self._encoder = encoder
        self._metrics = metrics

    def hand_over(self, block: Block, time_ms: int, found: Found) -> list[Need]:
        """Send what the block brings; or say what is needed for that, and nothing has been sent."""
        if not self._connected.of_tenant(block.tenant):
            self._follow(block)
            return []
        if isinstance(block, StateBlock):
            return self._state(block, time_ms)
        reached: list[list[Attachment]] = []
        needs: list[Need] = []
        ordinary: list[Attachment] | None = None
        for item in block.items:
            if item.type is RecordType.ORDINARY:
                if ordinary is None:
                    members = self._members_at(block)
                    if members is None:
                        return [MembersNeeded(block.tenant, block.conversation, block.version)]
                    ordinary = self._connected.among(block.tenant, members)
                reached.append(ordinary)
                continue
            who = self._of_event(block, item, found)
            if not isinstance(who, list):
                return [who]
            reached.append(who)
        for item, attachments in zip(block.items, reached, strict=True):
            if item.tail is None and attachments:
                people = {attachment.actor.user for attachment in attachments}
                missing = people - found.bodies.get(item.seq, {}).keys()
                if missing:
                    needs.append(
                        BodyNeeded(block.tenant, block.conversation, block.generation, item.seq, tuple(sorted(missing)))
                    )
        if needs:
            return needs
        for item, attachments in zip(block.items, reached, strict=True):
            if attachments:
                self._send(block, item, time_ms, attachments, found)
        return []

    def _of_event(self, block: MessageBlock, item: DispatchItem, found: Found) -> list[Attachment] | Need:
        """Whom a membership event reached: the people concerned, and with BROADCAST the members after it."""
        change = found.changes.get(item.seq)
        if change is None:
            if item.tail is None:
                return ChangeNeeded(block.tenant, block.conversation, block.version)
            change = read_control_body(block.version, item.seq, item.tail.body)
        self._apply(block, change)
        people: set[UserId] = set(change.people)
        if item.audience is Audience.BROADCAST:
            members = self._members_at(block)
            if members is None:
                return MembersNeeded(block.tenant, block.conversation, block.version)
            people |= members
        return self._connected.among(block.tenant, people)

    def _send(
        self, block: MessageBlock, item: DispatchItem, time_ms: int, attachments: Sequence[Attachment], found: Found
    ) -> None:
        cursor = Cursor(block.generation, item.seq)
        if item.tail is not None:
            event = self._encoder.message(block, item, time_ms)
            self._offer(LiveMessage(block.conversation, cursor, time_ms, event), attachments)
            return
        by_event: dict[WireEvent, list[Attachment]] = {}
        for attachment in attachments:
            by_event.setdefault(found.bodies[item.seq][attachment.actor.user], []).append(attachment)
        for event, some in by_event.items():
            self._offer(LiveMessage(block.conversation, cursor, time_ms, event), some)

    def _offer(self, message: LiveMessage, attachments: Sequence[Attachment]) -> None:
        by_stream: dict[LiveStream, list[Attachment]] = {}
        for attachment in attachments:
            if attachment.order.offer(message):
                by_stream.setdefault(attachment.stream, []).append(attachment)
        for stream, some in by_stream.items():
            stream.deliver(message, some)

    def _state(self, block: StateBlock, time_ms: int) -> list[Need]:
        state = read_state(block, time_ms)
        people: Iterable[Attachment]
        if block.change is StateChange.OWN_CLEAR and state.person is not None:
            people = self._connected.of_person(block.tenant, state.person)
            if not people:
                return []
        members = self._members_at(block)
        if members is None:
            return [MembersNeeded(block.tenant, block.conversation, block.version)]
        if state.person is None:
            people = self._connected.among(block.tenant, members)
        inside = state.person is None or state.person in members
        by_stream: dict[LiveStream, list[Attachment]] = {}
        for attachment in people:
            by_stream.setdefault(attachment.stream, []).append(attachment)
        if by_stream:
            event = self._encoder.state(state, with_revision=inside)
            for stream, some in by_stream.items():
                stream.tell(event, some)
        return []

    def _members_at(self, block: Block) -> set[UserId] | None:
        members = self._members.get(block.tenant, block.conversation)
        return None if members is None or members.version != block.version else members.people

    def _follow(self, block: Block) -> None:
        """Nobody of the tenant is connected: only members that are in memory are kept up to date."""
        if not isinstance(block, MessageBlock) or self._members.get(block.tenant, block.conversation) is None:
            return
        for item in block.items:
            if item.type is RecordType.CONTROL and item.tail is not None:
                self._apply(block, read_control_body(block.version, item.seq, item.tail.body))

    def _apply(self, block: MessageBlock, change: MembershipChange) -> None:
        members = self._members.get(block.tenant, block.conversation)
        if members is not None and members.version == change.version - 1:
            members.apply(change)
            self._members.put(block.tenant, block.conversation, members)

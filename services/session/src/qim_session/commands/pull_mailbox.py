"""PullMailbox: acknowledge, then get what was delivered and is not acknowledged (design.md invariant 12).

The mailbox is derived: the conversations come from the person's list, what was delivered in each from its owner,
and only the device's cursors are stored (storage.md, "Session"). Conversations come in the order of their last
activity, the longest inactive first, and each one's seqs ascending, so that a pull that is not acknowledged repeats
itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from qim_common.errors import InvalidArgument, ResyncRequired, TooManyItems
from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.domain.cursors import Cursor
from qim_session.storage import (
    STATES_PER_CALL,
    ConversationLists,
    Conversations,
    ConversationState,
    Cursors,
    MemberState,
    WireMessage,
    Withheld,
)

LIMIT_MAX: Final = 1000
ACKNOWLEDGEMENTS_MAX: Final = 1000
ANSWER_BYTES: Final = 2 * 1024 * 1024
"""Entries that would pass this are left for the next pull; one entry always fits."""

_ENTRY_BYTES: Final = 64
_ALL_READ: Final = 2**53 - 1
"""A read cursor behind every message, where the number of unread messages is not asked for."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Everything up to the cursor has arrived on the device."""

    conversation: ConversationId
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class MailboxEntry:
    """A delivered message, or a stretch of delivered seqs without their bodies."""

    conversation: ConversationId
    generation: int
    content: WireMessage | Withheld


@dataclass(slots=True)
class Mailbox:
    """The answer as it grows; `more` says that something is left."""

    limit: int
    entries: list[MailboxEntry] = field(default_factory=list)
    more: bool = False
    size: int = 0

    @property
    def room(self) -> int:
        """How many entries still fit."""
        return self.limit - len(self.entries)

    def add(self, entry: MailboxEntry) -> bool:
        """Put in one entry; False when it would make the answer too large, and something is left then."""
        self.size += _ENTRY_BYTES + (0 if isinstance(entry.content, Withheld) else len(entry.content))
        if self.size > ANSWER_BYTES and self.entries:
            self.more = True
            return False
        self.entries.append(entry)
        return True


class PullMailbox:
    """The command behind the method of the same name."""

    def __init__(
        self, lists: ConversationLists, cursors: Cursors, conversations: Conversations, metrics: SessionMetrics
    ) -> None:
        self._lists = lists
        self._cursors = cursors
        self._conversations = conversations
        self._metrics = metrics

    async def __call__(self, actor: Actor, *, acknowledged: Sequence[Acknowledgement], limit: int) -> Mailbox:
        """Acknowledge first, then collect up to `limit` entries.

        Raises:
            InvalidArgument: `limit` outside of 1 to 1,000.
            TooManyItems: more than 1,000 acknowledgements.
            ResyncRequired: an acknowledgement of another generation than the conversation's; nothing was acknowledged.
            BackendUnavailable: a store or the writer does not answer; acknowledgements may have been taken.
        """
        if not 1 <= limit <= LIMIT_MAX:
            raise InvalidArgument("limit", f"must be from 1 to {LIMIT_MAX}")
        if len(acknowledged) > ACKNOWLEDGEMENTS_MAX:
            raise TooManyItems(message=f"at most {ACKNOWLEDGEMENTS_MAX} acknowledgements in one call")
        if acknowledged:
            await self._acknowledge(actor, acknowledged)
        return await self._collect(actor, limit)

    async def _acknowledge(self, actor: Actor, acknowledged: Sequence[Acknowledgement]) -> None:
        furthest: dict[ConversationId, Cursor] = {}
        for item in acknowledged:
            furthest[item.conversation] = max(item.cursor, furthest.get(item.conversation, item.cursor))
        moves: dict[ConversationId, Cursor] = {}
        for part in _parts(list(furthest)):
            for state in await self._states(actor, part):
                if state.state is MemberState.UNKNOWN:
                    # Unknown and foreign conversations are ignored alike, so that nobody learns which exist.
                    self._metrics.foreign_acknowledgements.inc()
                    continue
                cursor = furthest[state.conversation]
                if cursor.generation != state.generation:
                    raise ResyncRequired
                moves[state.conversation] = cursor.clamped(state.newest_delivered_seq)
        if moves:
            await self._cursors.advance_device(actor.tenant, actor.user, actor.device, moves)

    async def _collect(self, actor: Actor, limit: int) -> Mailbox:
        mailbox = Mailbox(limit)
        for part in _parts(await self._lists.oldest_first(actor.tenant, actor.user)):
            cursors = await self._cursors.device(actor.tenant, actor.user, actor.device, part)
            for state in await self._states(actor, part):
                cursor = cursors.get(state.conversation)
                after = 0 if cursor is None else cursor.seq
                if state.newest_delivered_seq <= after:
                    continue
                if mailbox.room == 0:
                    mailbox.more = True
                else:
                    await self._fill(actor, mailbox, state.conversation, after)
                if mailbox.more:
                    return mailbox
        return mailbox

    async def _fill(self, actor: Actor, mailbox: Mailbox, conversation: ConversationId, after: int) -> None:
        while True:
            page = await self._conversations.delivered(
                actor.tenant, actor.user, conversation, after_seq=after, limit=mailbox.room
            )
            for content in page.entries:
                if not mailbox.add(MailboxEntry(conversation, page.generation, content)):
                    return
            if not page.more:
                return
            if mailbox.room == 0 or page.next_after_seq <= after:
                mailbox.more = True
                return
            after = page.next_after_seq

    async def _states(self, actor: Actor, conversations: Sequence[ConversationId]) -> list[ConversationState]:
        asked = dict.fromkeys(conversations, _ALL_READ)
        return await self._conversations.states(actor.tenant, actor.user, asked, with_preview=False)


def _parts(conversations: Sequence[ConversationId]) -> Iterator[Sequence[ConversationId]]:
    for start in range(0, len(conversations), STATES_PER_CALL):
        yield conversations[start : start + STATES_PER_CALL]

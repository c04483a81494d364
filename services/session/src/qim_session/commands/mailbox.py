"""The mailbox of one device: what was delivered to the person and is not acknowledged (design.md invariant 12).

It is derived: what was delivered in a conversation comes from its owner, and only the device's cursors are stored
(storage.md, "Session"). PullMailbox and Subscribe read it through this one class, so that they agree on what a mailbox
keeps: where more entries wait than that, or older ones, nothing is given and nothing is left out silently, the device
is told to resynchronise the conversation. An acknowledgement of its newest delivered seq heals it. So is a device that
acknowledged something of an older generation, whose seqs may be others' by now (design.md invariant 11).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from qim_common.enums import MemberState
from qim_common.errors import ResyncRequired, TooManyItems
from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.domain.cursors import Cursor
from qim_session.storage.conversations import STATES_PER_CALL, Conversations, ConversationState, DeliveredPage
from qim_session.storage.cursors import Cursors

ACKNOWLEDGEMENTS_MAX: Final = 1000
DAY_MS: Final = 86_400_000

_ALL_READ: Final = 2**53 - 1
"""A read cursor behind every message, where the number of unread messages is not asked for."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Everything up to the cursor has arrived on the device."""

    conversation: ConversationId
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Outstanding:
    """A conversation in which something was delivered after the device's cursor (`after_seq`, 0: it has none).

    `older`: the device's cursor is of an older generation, of which the device may hold what is gone.
    """

    conversation: ConversationId
    after_seq: int
    newest_delivered_seq: int
    generation: int
    older: bool = False


class Mailbox:
    """The rule of mailboxes in one place.

    Args:
        max_entries: how many entries a mailbox keeps of one conversation, from 1.
        max_age_days: how old what it keeps may be.
        now_ms: the clock, in ms since the epoch; where it differs from the stores', the age does by as much.
    """

    def __init__(
        self,
        cursors: Cursors,
        conversations: Conversations,
        metrics: SessionMetrics,
        *,
        max_entries: int,
        max_age_days: float,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._cursors = cursors
        self._conversations = conversations
        self._metrics = metrics
        self._max_entries = max_entries
        self._max_age_ms = int(max_age_days * DAY_MS)
        self._now_ms = now_ms

    async def acknowledge(self, actor: Actor, acknowledged: Sequence[Acknowledgement]) -> None:
        """Move the device's cursors forward, each at most to what was delivered.

        Raises:
            TooManyItems: more than 1,000; nothing was acknowledged.
            ResyncRequired: one is of another generation than its conversation; nothing was acknowledged.
            BackendUnavailable: a store or the writer does not answer; acknowledgements may have been taken.
        """
        moves, stale = await self._judge(actor, acknowledged)
        if stale:
            raise _resync(stale[0].conversation, stale[0].cursor.generation, stale[0].cursor.seq)
        await self._move(actor, moves)

    async def acknowledge_current(self, actor: Actor, acknowledged: Sequence[Acknowledgement]) -> list[Acknowledgement]:
        """As `acknowledge`, but those of another generation hold up no other one.

        Returns where the conversations of those stand: their generation and newest delivered seq.

        Raises:
            TooManyItems: more than 1,000; nothing was acknowledged.
            BackendUnavailable: a store or the writer does not answer; acknowledgements may have been taken.
        """
        moves, stale = await self._judge(actor, acknowledged)
        await self._move(actor, moves)
        return stale

    async def _judge(
        self, actor: Actor, acknowledged: Sequence[Acknowledgement]
    ) -> tuple[dict[ConversationId, Cursor], list[Acknowledgement]]:
        """How far the cursors go, and where the conversations of those stand that are of another generation."""
        if len(acknowledged) > ACKNOWLEDGEMENTS_MAX:
            raise TooManyItems(message=f"at most {ACKNOWLEDGEMENTS_MAX} acknowledgements in one call")
        furthest: dict[ConversationId, Cursor] = {}
        for item in acknowledged:
            furthest[item.conversation] = max(item.cursor, furthest.get(item.conversation, item.cursor))
        moves: dict[ConversationId, Cursor] = {}
        stale: list[Acknowledgement] = []
        for part in _parts(list(furthest)):
            for state in await self._states(actor, part):
                if state.state is MemberState.UNKNOWN:
                    # Unknown and foreign conversations are ignored alike, so that nobody learns which exist.
                    self._metrics.foreign_acknowledgements.inc()
                    continue
                cursor = furthest[state.conversation]
                if cursor.generation != state.generation:
                    newest = Cursor(state.generation, state.newest_delivered_seq)
                    stale.append(Acknowledgement(state.conversation, newest))
                else:
                    moves[state.conversation] = cursor.clamped(state.newest_delivered_seq)
        return moves, stale

    async def _move(self, actor: Actor, moves: Mapping[ConversationId, Cursor]) -> None:
        if moves:
            await self._cursors.advance_device(actor.tenant, actor.user, actor.device, moves)

    async def outstanding(self, actor: Actor, conversations: Sequence[ConversationId]) -> list[Outstanding]:
        """Those of `conversations` in which something waits for the device, or which it has to read anew, in their
        order.

        Raises BackendUnavailable.
        """
        waiting: list[Outstanding] = []
        for part in _parts(conversations):
            cursors = await self._cursors.device(actor.tenant, actor.user, actor.device, part)
            for state in await self._states(actor, part):
                cursor = cursors.get(state.conversation)
                after = 0 if cursor is None else cursor.seq
                older = cursor is not None and cursor.generation < state.generation
                newest = state.newest_delivered_seq
                if newest > after or (older and newest > 0):
                    waiting.append(Outstanding(state.conversation, after, newest, state.generation, older))
        return waiting

    def check_generation(self, outstanding: Outstanding) -> None:
        """Raises ResyncRequired, as `page`, where the device's cursor is of an older generation than the conversation.

        An acknowledgement of the present one heals it (design.md invariant 11).
        """
        if outstanding.older:
            raise _resync(outstanding.conversation, outstanding.generation, outstanding.newest_delivered_seq)

    async def page(self, actor: Actor, conversation: ConversationId, *, after_seq: int, limit: int) -> DeliveredPage:
        """Up to `limit` (1 to 1,000) entries after `after_seq`, which is exclusive.

        Raises:
            ResyncRequired: more ordinary messages wait after `after_seq` than a mailbox keeps, or the first message is
                older than that. Membership events do not count.
                Metadata: `conversation_id` in hex, `generation`, `newest_seq`.
            BackendUnavailable: the writer does not answer.
        """
        page = await self._conversations.delivered(
            actor.tenant, actor.user, conversation, after_seq=after_seq, limit=limit
        )
        too_old = 0 < page.first_time_ms < self._now_ms() - self._max_age_ms
        if page.entries and (too_old or page.waiting > self._max_entries):
            raise _resync(conversation, page.generation, page.newest_delivered_seq)
        return page

    async def _states(self, actor: Actor, conversations: Sequence[ConversationId]) -> list[ConversationState]:
        asked = dict.fromkeys(conversations, _ALL_READ)
        return await self._conversations.states(actor.tenant, actor.user, asked, with_preview=False)


def _resync(conversation: ConversationId, generation: int, newest_seq: int) -> ResyncRequired:
    return ResyncRequired(
        metadata={
            "conversation_id": conversation.hex(),
            "generation": str(generation),
            "newest_seq": str(newest_seq),
        }
    )


def _parts(conversations: Sequence[ConversationId]) -> Iterator[Sequence[ConversationId]]:
    for start in range(0, len(conversations), STATES_PER_CALL):
        yield conversations[start : start + STATES_PER_CALL]

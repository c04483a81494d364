"""MarkRead: how far a person has read, on all of their devices (design.md invariant 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from qim_common.errors import InvalidArgument, PermissionDenied
from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_session.commands.rebuild import Rebuild
from qim_session.domain.cursors import Cursor, carried
from qim_session.storage.conversations import Conversations, ConversationState
from qim_session.storage.cursors import Cursors

SEQ_MAX: Final = 2**53 - 1


@dataclass(frozen=True, slots=True)
class ReadMark:
    """Where the read cursor stands, and how many messages of others are unread behind it."""

    read_seq: int
    unread_count: int


class MarkRead:
    """The command behind the method of the same name."""

    def __init__(self, rebuild: Rebuild, cursors: Cursors, conversations: Conversations) -> None:
        self._rebuild = rebuild
        self._cursors = cursors
        self._conversations = conversations

    async def __call__(self, actor: Actor, *, conversation: ConversationId, seq: int) -> ReadMark:
        """Move the cursor forward to `seq`, at most to the person's upper bound.

        Repeating it changes nothing, so it needs no id. Where another device moves the cursor at the same moment, the
        answer is the one that was right just before.

        Raises:
            InvalidArgument: `seq` is no seq.
            PermissionDenied: the person never was in the conversation, or no stay that counts is unrevoked.
            BackendUnavailable: a store or the writer does not answer; the cursor may have moved.
        """
        if not 1 <= seq <= SEQ_MAX:
            raise InvalidArgument("seq", "must be a seq, from 1")
        await self._rebuild.ensure(actor.tenant, actor.user)
        before = (await self._cursors.read(actor.tenant, actor.user, [conversation]))[conversation]
        wanted = max(seq, before.seq)
        state = await self._state(actor, conversation, wanted)
        if not state.readable:
            raise PermissionDenied
        # What was read of an older generation counts up to what was recovered of it (design.md invariant 11).
        current = max(seq, carried(before, state.generation, state.raised).seq)
        if current < wanted:
            wanted, state = current, await self._state(actor, conversation, current)
        cursor = Cursor(state.generation, wanted).clamped(state.upper_seq)
        await self._cursors.advance_read(actor, conversation, cursor)
        return ReadMark(cursor.seq, state.unread_count)

    async def _state(self, actor: Actor, conversation: ConversationId, read_seq: int) -> ConversationState:
        # The writer clamps in the same way, so that one question gives the bound and what is unread behind the cursor.
        (state,) = await self._conversations.states(
            actor.tenant, actor.user, {conversation: read_seq}, with_preview=False
        )
        return state

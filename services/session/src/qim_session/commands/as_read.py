"""The states of conversations as a person has read them, also where a generation has risen since.

What a person has read of an older generation counts up to what was recovered of it (design.md invariant 11). Only the
writer knows that, so it is asked again for the few cursors that its first answer cuts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_session.domain.cursors import Cursor, carried
from qim_session.storage.conversations import NONE_HIDDEN, Conversations, ConversationState
from qim_session.storage.cursors import Cursors


class AsRead(NamedTuple):
    """A state, and the read cursor that its unread count is for."""

    state: ConversationState
    read: Cursor


def carried_over(
    read: Mapping[ConversationId, Cursor], states: Iterable[ConversationState]
) -> dict[ConversationId, Cursor]:
    """Those cursors that are of an older generation than their conversation, as they count now."""
    return {
        state.conversation: carried(read[state.conversation], state.generation, state.raised)
        for state in states
        if state.raised and read[state.conversation].seq > 0 and read[state.conversation].generation < state.generation
    }


class StatesAsRead:
    """Asks for states with read cursors, and carries cursors of older generations over for good."""

    def __init__(self, cursors: Cursors, conversations: Conversations) -> None:
        self._cursors = cursors
        self._conversations = conversations

    async def of(
        self,
        actor: Actor,
        read: Mapping[ConversationId, Cursor],
        *,
        with_preview: bool,
        hidden: Mapping[ConversationId, int] = NONE_HIDDEN,
    ) -> list[AsRead]:
        """As `Conversations.states`, in the order of `read`. Raises BackendUnavailable."""

        async def ask(cursors: Mapping[ConversationId, Cursor]) -> list[ConversationState]:
            return await self._conversations.states(
                actor.tenant,
                actor.user,
                {conversation: cursor.seq for conversation, cursor in cursors.items()},
                with_preview=with_preview,
                hidden={conversation: seq for conversation, seq in hidden.items() if conversation in cursors},
            )

        states = {state.conversation: state for state in await ask(read)}
        over = carried_over(read, states.values())
        for conversation, cursor in over.items():
            await self._cursors.advance_read(actor, conversation, cursor)
        cut = {conversation: cursor for conversation, cursor in over.items() if cursor.seq < read[conversation].seq}
        if cut:
            states |= {state.conversation: state for state in await ask(cut)}
        return [AsRead(states[conversation], over.get(conversation, cursor)) for conversation, cursor in read.items()]

"""Conversations as a person's list shows them: the owner's state, how far the person has read, what the person set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_session.commands.as_read import StatesAsRead
from qim_session.domain.cursors import Cursor
from qim_session.domain.flags import Flags, still_hidden
from qim_session.storage.conversations import STATES_PER_CALL, Conversations, ConversationState
from qim_session.storage.cursors import Cursors


class ListedConversation(NamedTuple):
    """One entry: the state as the writer gives it, how far the person has read, and which of the flags hold now."""

    state: ConversationState
    read_seq: int
    hidden: bool
    muted: bool


class Entries:
    """Reads entries in batches of 500, each with one question to the store and one to the writer."""

    def __init__(self, cursors: Cursors, conversations: Conversations) -> None:
        self._cursors = cursors
        self._states = StatesAsRead(cursors, conversations)

    async def read(
        self, actor: Actor, conversations: Iterable[ConversationId], *, with_preview: bool = True
    ) -> dict[ConversationId, ListedConversation]:
        """The entries in the order of `conversations`, each once; `state.state` is UNKNOWN for foreign ones.

        Raises BackendUnavailable.
        """
        asked = list(dict.fromkeys(conversations))
        entries: dict[ConversationId, ListedConversation] = {}
        for start in range(0, len(asked), STATES_PER_CALL):
            marks = await self._cursors.marks(actor.tenant, actor.user, asked[start : start + STATES_PER_CALL])
            read = {conversation: mark.read for conversation, mark in marks.items()}
            hidden = {conversation: mark.flags.hidden_seq for conversation, mark in marks.items() if mark.flags.hidden}
            for state, cursor in await self._states.of(actor, read, with_preview=with_preview, hidden=hidden):
                entries[state.conversation] = _listed(state, cursor, marks[state.conversation].flags)
        return entries


def _listed(state: ConversationState, read: Cursor, flags: Flags) -> ListedConversation:
    hidden = still_hidden(flags, quiet=state.hidden, generation=state.generation, joined_at=state.joined_at)
    return ListedConversation(state, read.seq, hidden, flags.muted)

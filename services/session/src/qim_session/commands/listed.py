"""Conversations as a person's list shows them: the owner's state, how far the person has read, what the person set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_session.domain.flags import still_hidden
from qim_session.storage.conversations import STATES_PER_CALL, Conversations, ConversationState
from qim_session.storage.cursors import Cursors, Marks


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
        self._conversations = conversations

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
            read = {conversation: mark.read_seq for conversation, mark in marks.items()}
            hidden = {conversation: mark.flags.hidden_seq for conversation, mark in marks.items() if mark.flags.hidden}
            states = await self._conversations.states(
                actor.tenant, actor.user, read, with_preview=with_preview, hidden=hidden
            )
            for state in states:
                entries[state.conversation] = _listed(state, marks[state.conversation])
        return entries


def _listed(state: ConversationState, marks: Marks) -> ListedConversation:
    hidden = still_hidden(marks.flags, quiet=state.hidden, generation=state.generation, joined_at=state.joined_at)
    return ListedConversation(state, marks.read_seq, hidden, marks.flags.muted)

"""GetConversation and GetTotalUnread: one entry of a person's list, and the sum over all of them."""

from __future__ import annotations

from qim_common.errors import PermissionDenied
from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_session.commands.list_conversations import ListedConversation
from qim_session.storage import STATES_PER_CALL, ConversationLists, Conversations, Cursors, MemberState


class PersonConversations:
    """What a person asks about the own conversations beside the list itself."""

    def __init__(self, lists: ConversationLists, cursors: Cursors, conversations: Conversations) -> None:
        self._lists = lists
        self._cursors = cursors
        self._conversations = conversations

    async def one(self, actor: Actor, conversation: ConversationId) -> ListedConversation:
        """The entry as the list shows it; a revoked leaver keeps one.

        Raises:
            PermissionDenied: the person never was in the conversation.
            BackendUnavailable: a store or the writer does not answer.
        """
        read = await self._cursors.read_seqs(actor.tenant, actor.user, [conversation])
        (state,) = await self._conversations.states(actor.tenant, actor.user, read, with_preview=True)
        if state.state is MemberState.UNKNOWN:
            raise PermissionDenied
        return ListedConversation(state, read[conversation])

    async def total_unread(self, actor: Actor) -> int:
        """Over the conversations that the person is still in (design.md invariant 7). Raises BackendUnavailable."""
        ids = await self._lists.oldest_first(actor.tenant, actor.user)
        total = 0
        for start in range(0, len(ids), STATES_PER_CALL):
            read = await self._cursors.read_seqs(actor.tenant, actor.user, ids[start : start + STATES_PER_CALL])
            states = await self._conversations.states(actor.tenant, actor.user, read, with_preview=False)
            total += sum(state.unread_count for state in states if state.state is MemberState.MEMBER)
        return total

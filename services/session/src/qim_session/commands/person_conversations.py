"""GetConversation and GetTotalUnread: one entry of a person's list, and the sum over all of them."""

from __future__ import annotations

from qim_common.enums import MemberState
from qim_common.errors import PermissionDenied
from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.commands.listed import Entries, ListedConversation
from qim_session.commands.rebuild import Rebuild
from qim_session.storage.lists import ConversationLists


class PersonConversations:
    """What a person asks about the own conversations beside the list itself."""

    def __init__(self, rebuild: Rebuild, lists: ConversationLists, entries: Entries, metrics: SessionMetrics) -> None:
        self._rebuild = rebuild
        self._lists = lists
        self._entries = entries
        self._metrics = metrics

    async def one(self, actor: Actor, conversation: ConversationId) -> ListedConversation:
        """The entry as the list shows it, hidden or not; a revoked leaver keeps one.

        Raises:
            PermissionDenied: the person never was in the conversation.
            BackendUnavailable: a store or the writer does not answer.
        """
        await self._rebuild.ensure(actor.tenant, actor.user)
        entry = (await self._entries.read(actor, [conversation]))[conversation]
        if entry.state.state is MemberState.UNKNOWN:
            raise PermissionDenied
        return entry

    async def total_unread(self, actor: Actor) -> int:
        """Over the conversations that the person is still in (design.md invariant 7), also hidden and muted ones.

        Raises BackendUnavailable.
        """
        await self._rebuild.ensure(actor.tenant, actor.user)
        listed = await self._lists.oldest_first(actor.tenant, actor.user)
        total = 0
        for entry in (await self._entries.read(actor, listed, with_preview=False)).values():
            if entry.state.state is MemberState.UNKNOWN:
                # Projected, so the person was in it; a state that denies it breaks an invariant.
                self._metrics.group_interval_missing.inc()
            elif entry.state.state is MemberState.MEMBER:
                total += entry.state.unread_count
        return total

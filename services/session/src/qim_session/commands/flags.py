"""SetConversationFlags: hides or mutes a conversation for one person, on all of their devices."""

from __future__ import annotations

from qim_common.enums import MemberState
from qim_common.errors import InvalidArgument, PermissionDenied
from qim_common.idempotency import IdempotencyKey, RequestClass, content_digest, entry_field, id_time
from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_session.commands.listed import Entries, ListedConversation
from qim_session.commands.rebuild import Rebuild
from qim_session.domain.flags import FlagsChange
from qim_session.storage.lists import FlagStore

_OPERATION = b"SetConversationFlags"


class SetConversationFlags:
    """The command behind the method of the same name."""

    def __init__(self, rebuild: Rebuild, entries: Entries, flags: FlagStore) -> None:
        self._rebuild = rebuild
        self._entries = entries
        self._flags = flags

    async def __call__(
        self,
        actor: Actor,
        *,
        request_id: bytes,
        conversation: ConversationId,
        hidden: bool | None,
        muted: bool | None,
    ) -> ListedConversation:
        """Set what is not None and answer the entry; a repeat sets nothing and shows the flags as answered first.

        Raises:
            InvalidArgument: neither is set.
            PermissionDenied: the person never was in the conversation.
            IdempotencyKeyReused: the id had other content.
            RequestTooOld: the id can no longer be judged.
            BackendUnavailable: a store or the writer does not answer; the flags may have been set.
        """
        if hidden is None and muted is None:
            raise InvalidArgument("hidden", "set at least one of hidden and muted")
        await self._rebuild.ensure(actor.tenant, actor.user)
        entry = (await self._entries.read(actor, [conversation]))[conversation]
        state = entry.state
        if state.state is MemberState.UNKNOWN:
            raise PermissionDenied
        change = FlagsChange(
            hidden=hidden,
            muted=muted,
            generation=state.generation,
            newest_seq=state.newest_delivered_seq,
            still_hidden=entry.hidden,
        )
        key = IdempotencyKey(
            entry_field(actor.tenant, RequestClass.MEMBER, actor.user, conversation, request_id),
            content_digest(_OPERATION, _content(hidden), _content(muted)),
            id_time(request_id),
        )
        answer = await self._flags.change(actor, conversation, change, key)
        return entry._replace(hidden=answer.hidden, muted=answer.muted)


def _content(value: bool | None) -> bytes:
    return b"" if value is None else bytes([value])

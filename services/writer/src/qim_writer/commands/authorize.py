"""May this actor send, read, and at which version would they send now (contract: authorize_send, authorize_history,
freeze_delivery). Asked of the store on every call."""

from __future__ import annotations

from qim_common.errors import GroupFrozen, PermissionDenied
from qim_common.identity import Actor
from qim_common.ids import parse_conversation
from qim_writer.commands.history import readable
from qim_writer.storage import Conversation, Facts, MembershipStore


class Authorization:
    """The checks of the trait."""

    def __init__(self, store: MembershipStore) -> None:
        self._store = store

    async def send(self, actor: Actor, conversation_id: bytes) -> tuple[Conversation, Facts]:
        """AuthorizeSend and FreezeDelivery: the facts at this moment. Raises InvalidArgument, PermissionDenied,
        GroupFrozen."""
        conversation = Conversation(actor.tenant, parse_conversation(conversation_id))
        facts = await self._store.facts(conversation, actor.user)
        if facts is None or facts.person is None or not facts.person.present:
            raise PermissionDenied
        if facts.frozen:
            raise GroupFrozen
        return conversation, facts

    async def history(self, actor: Actor, conversation_id: bytes) -> None:
        """AuthorizeHistory. Raises InvalidArgument, PermissionDenied."""
        await readable(self._store, actor, Conversation(actor.tenant, parse_conversation(conversation_id)))

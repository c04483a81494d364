"""Under which name a caller's requests are remembered, and who is noted as the maker of a change."""

from __future__ import annotations

from dataclasses import dataclass

from qim_common.idempotency import IdempotencyKey, RequestClass, content_digest, entry_field, id_time
from qim_common.identity import Actor, Principal
from qim_common.ids import ConversationId, TenantId
from qim_writer.storage import maker_of_user


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks for a change: an end user or a principal (contracts.md, "Idempotency": never the device)."""

    tenant: TenantId
    request_class: RequestClass
    name: bytes
    maker: str
    """For the record of the change: `user:<uuid>`, `operator:<name>` or `backend:<name>`."""

    def key(self, conversation: ConversationId, request_id: bytes, operation: bytes, *content: bytes) -> IdempotencyKey:
        """The key of this caller's request on a conversation."""
        return IdempotencyKey(
            entry_field(self.tenant, self.request_class, self.name, conversation, request_id),
            content_digest(operation, *content),
            id_time(request_id),
        )


def caller_of_actor(actor: Actor) -> Caller:
    """The end user as a caller."""
    return Caller(actor.tenant, RequestClass.MEMBER, actor.user, maker_of_user(actor.user))


def caller_of_principal(principal: Principal) -> Caller:
    """The operator or back end as a caller."""
    name = f"{principal.kind}:{principal.name}"
    return Caller(principal.tenant, RequestClass.OPERATOR, name.encode(), name)

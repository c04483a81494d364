"""Sending: from what a caller wrote to a checked message in the commit queue.

This is the hot path: one call per message, no task, no future, and nothing is looked up in a store; the commit script
judges membership.
"""

from __future__ import annotations

from functools import lru_cache

from qim_common.errors import InvalidArgument, MessageTooLarge
from qim_common.identity import Actor
from qim_common.ids import (
    CUSTOM_TYPE_RESERVED,
    TenantId,
    UserId,
    direct_conversation_id,
    parse_conversation,
    parse_id,
    parse_user,
)
from qim_common.records import CUSTOM_TYPE_MAX_BYTES, RecordType, pack_tail
from qim_writer.domain.send_identity import send_key
from qim_writer.domain.stays import VERSION_MAX
from qim_writer.storage import Conversation, Send, SendSink


def prepare_send(
    actor: Actor,
    *,
    conversation_id: bytes,
    peer: bytes,
    message_id: bytes,
    custom_type: str,
    record_type: int,
    body: bytes,
    expected_version: int,
    max_bytes: int,
    sink: SendSink,
    index: int,
) -> Send:
    """A message as it goes to the commit. `record_type` is 0 or ORDINARY; `expected_version` 0 stands for any.

    Raises:
        InvalidArgument: an id, a forged control message, a reserved or oversized custom_type, both or neither of
            conversation and peer.
        MessageTooLarge: a body above `max_bytes`.
    """
    people: tuple[UserId, ...] = ()
    if peer:
        if conversation_id:
            raise InvalidArgument("peer_user_id", "goes without conversation_id")
        other = parse_user(peer, "peer_user_id")
        conversation = Conversation(actor.tenant, direct_conversation_id(actor.tenant, actor.user, other))
        people = (actor.user,) if other == actor.user else (min(actor.user, other), max(actor.user, other))
    else:
        conversation = _conversation(actor.tenant, conversation_id)
    parse_id(message_id, "client_message_id")
    if record_type not in (0, RecordType.ORDINARY):
        raise InvalidArgument("type", "must be ORDINARY; control messages are made by the service only")
    kind = custom_type.encode()
    if custom_type:
        if custom_type.startswith(CUSTOM_TYPE_RESERVED):
            raise InvalidArgument("custom_type", 'must not start with "qim.", which is the service\'s own')
        if len(kind) > CUSTOM_TYPE_MAX_BYTES:
            raise InvalidArgument("custom_type", f"must have at most {CUSTOM_TYPE_MAX_BYTES} bytes")
    if len(body) > max_bytes:
        raise MessageTooLarge(metadata={"max_bytes": str(max_bytes)})
    if expected_version > VERSION_MAX:
        raise InvalidArgument("expected_membership_version", "is no version of any group")
    tail = pack_tail(RecordType.ORDINARY, actor.user, actor.device, message_id, kind, body)
    key = send_key(actor.tenant, actor.user, conversation.id, message_id, tail)
    return Send(conversation, actor.user, key, tail, expected_version, people, sink, index)


@lru_cache(maxsize=65_536)
def _conversation(tenant: TenantId, conversation_id: bytes) -> Conversation:
    """The conversation that a caller names; kept, because many messages go to the same one."""
    return Conversation(tenant, parse_conversation(conversation_id))

"""Dispatch entries packed by hand, as the writer's scripts write them (qim_common.records says how they look)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId, control_body, group_conversation_id
from qim_common.records import (
    EVENT_NOT_INLINED,
    NOT_INLINED,
    Audience,
    BlockFlags,
    BlockKind,
    RecordType,
    StateChange,
    pack_tail,
)

TENANT = TenantId(7)
_DEVICE = bytes([9]) * 16
_MESSAGE_ID = bytes([8]) * 16


def user(number: int) -> UserId:
    """The person of a number from 1."""
    return UserId(number.to_bytes(16, "big"))


def group(number: int) -> ConversationId:
    """The group of a number from 1."""
    return group_conversation_id(number.to_bytes(16, "big"))


def ordinary(sender: UserId, body: bytes = b"hello") -> tuple[Audience, bytes]:
    """An ordinary message: its audience and its tail."""
    return Audience.BROADCAST, pack_tail(RecordType.ORDINARY, sender, _DEVICE, _MESSAGE_ID, b"", body)


def control(
    op: MembershipOp, people: Iterable[UserId], audience: Audience = Audience.BROADCAST
) -> tuple[Audience, bytes]:
    """A membership event: its audience and its tail."""
    body = control_body(op, bytes(16), people)
    return audience, pack_tail(RecordType.CONTROL, user(1), _DEVICE, _MESSAGE_ID, b"qim.membership.v1", body)


def messages(
    conversation: ConversationId,
    version: int,
    first_seq: int,
    items: Sequence[tuple[Audience, bytes | RecordType]],
    *,
    tenant: TenantId = TENANT,
    flags: BlockFlags = BlockFlags.NONE,
    generation: int = 0,
) -> bytes:
    """A block of messages at one version; a type in place of a tail is one that was too large to be inlined."""
    packed = b"".join(
        struct.pack(">BI", audience, len(tail)) + tail
        if isinstance(tail, bytes)
        else struct.pack(">BI", audience, NOT_INLINED if tail is RecordType.ORDINARY else EVENT_NOT_INLINED)
        for audience, tail in items
    )
    head = _head(BlockKind.MESSAGES, tenant, conversation, flags, version, first_seq, len(items), generation)
    return head + packed


def state(
    conversation: ConversationId,
    change: StateChange,
    *,
    version: int = 1,
    tenant: TenantId = TENANT,
    flags: BlockFlags = BlockFlags.NONE,
) -> bytes:
    """A state block without a payload."""
    return _head(BlockKind.STATE, tenant, conversation, flags, version, 0, 1) + struct.pack(">BI", change, 0)


def _head(
    kind: BlockKind,
    tenant: TenantId,
    conversation: ConversationId,
    flags: BlockFlags,
    version: int,
    first_seq: int,
    count: int,
    generation: int = 0,
) -> bytes:
    nothing = bytes(6)
    head = struct.pack(">BQ16sBI", kind, tenant, conversation, flags, generation)
    return (
        head + version.to_bytes(6, "big") + nothing + nothing + first_seq.to_bytes(6, "big") + struct.pack(">H", count)
    )

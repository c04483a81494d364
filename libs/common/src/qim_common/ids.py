"""Ids: 16 bytes on the wire, shown and typed as UUIDs (contracts.md, "Ids").

Everything here is pure. Ids are plain `bytes` under distinct names, so that the commit path copies nothing.
"""

from __future__ import annotations

import os
import struct
import time
import uuid
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import NewType

from blake3 import blake3

from qim_common.errors import InvalidArgument

TenantId = NewType("TenantId", int)
UserId = NewType("UserId", bytes)
DeviceId = NewType("DeviceId", bytes)
ConversationId = NewType("ConversationId", bytes)
"""A canonical conversation id: the first byte is its kind. Keys and authorization use nothing else."""

ID_BYTES = 16
MAX_TENANT = 2**64 - 1
ZERO_ID = bytes(ID_BYTES)
CUSTOM_TYPE_RESERVED = "qim."

_CONTROL_HEAD = struct.Struct(">B16sH")


class ConversationKind(IntEnum):
    """The first byte of a conversation id."""

    DIRECT = 1
    GROUP = 2


# By its number: lists need kinds by the hundred, and asking their class takes several times as long.
_KINDS = {kind.value: kind for kind in ConversationKind}
_NO_NUMBER = bytes(ID_BYTES - 1)


class MembershipOp(IntEnum):
    """The kinds of membership events, as in the first byte of a control body (contracts.md, "Ids")."""

    JOIN = 1
    LEAVE = 2
    REMOVE = 3


def parse_id(value: bytes, field: str) -> bytes:
    """`value` when it is 16 bytes and not all zero; raises InvalidArgument naming `field` otherwise."""
    if len(value) != ID_BYTES:
        raise InvalidArgument(field, f"must be 16 bytes, has {len(value)}")
    if value == ZERO_ID:
        raise InvalidArgument(field, "must not be all zero")
    return value


def parse_user(value: bytes, field: str) -> UserId:
    """A user id; raises InvalidArgument naming `field`."""
    return UserId(parse_id(value, field))


def parse_tenant(value: int, field: str = "tenant_id") -> TenantId:
    """A tenant id, 1 to 2^64-1; raises InvalidArgument naming `field`."""
    if not 0 < value <= MAX_TENANT:
        raise InvalidArgument(field, "must be from 1 to 2^64-1")
    return TenantId(value)


def strip_kind(value: bytes, field: str = "group_id") -> bytes:
    """The id of a group without its kind: accepts a first byte of 0 or GROUP and clears it.

    Raises InvalidArgument for any other kind, a wrong length, and an id that is all zero but for the kind.
    """
    if len(value) != ID_BYTES:
        raise InvalidArgument(field, f"must be 16 bytes, has {len(value)}")
    if value[0] not in (0, ConversationKind.GROUP):
        raise InvalidArgument(field, "is not a group id: its first byte must be 0 or 2 (GROUP)")
    if not any(value[1:]):
        raise InvalidArgument(field, "must not be all zero")
    return b"\0" + value[1:]


def group_conversation_id(value: bytes) -> ConversationId:
    """The canonical conversation id of a group: `value` with its first byte set to GROUP."""
    return ConversationId(b"\x02" + value[1:])


def parse_group(value: bytes, field: str = "group_id") -> ConversationId:
    """The canonical id of the group that a caller names; raises InvalidArgument as `strip_kind` does."""
    return group_conversation_id(strip_kind(value, field))


def parse_conversation(value: bytes, field: str = "conversation_id") -> ConversationId:
    """The canonical id of any conversation that a caller names: DIRECT as it is, else as a group."""
    if len(value) == ID_BYTES and value[0] in _KINDS and value[1:] != _NO_NUMBER:
        return ConversationId(value)
    return parse_group(value, field)


def kind_of(conversation: ConversationId) -> ConversationKind:
    """The kind of a canonical conversation id."""
    return _KINDS[conversation[0]]


def derived_group_id(tenant: TenantId, actor: UserId, request_id: bytes) -> ConversationId:
    """The group id of a CreateGroup that leaves it empty (contracts.md, "Ids")."""
    digest = blake3(b"qim.group-id.v1\0" + struct.pack(">Q", tenant) + actor + request_id).digest(ID_BYTES)
    return group_conversation_id(digest)


def direct_conversation_id(tenant: TenantId, one: UserId, other: UserId) -> ConversationId:
    """The id of the direct conversation of two people, in either order; of one person: notes to oneself."""
    low, high = sorted((one, other))
    digest = blake3(b"qim.direct.v1\0" + struct.pack(">Q", tenant) + low + high).digest(ID_BYTES)
    return ConversationId(b"\x01" + digest[1:])


def _bucket(tenant: int, value: bytes, buckets: int) -> int:
    digest = blake3(struct.pack(">Q", tenant) + value).digest(8)
    return int.from_bytes(digest, "big") % buckets


@lru_cache(maxsize=65_536)
def commit_bucket(tenant: TenantId, conversation: ConversationId, buckets: int) -> int:
    """Where a conversation lives, 0 up to `buckets` - 1: the one routing function (contracts.md, "Ids")."""
    return _bucket(tenant, conversation, buckets)


@lru_cache(maxsize=65_536)
def person_bucket(tenant: TenantId, user: UserId, buckets: int) -> int:
    """A person's bucket and mailbox shard: the same function over (tenant, user)."""
    return _bucket(tenant, user, buckets)


def membership_event_message_id(
    tenant: TenantId, group: ConversationId, op: MembershipOp, actor: bytes, version: int, people: Iterable[bytes]
) -> bytes:
    """The `client_message_id` of a membership event's record, 16 bytes (contracts.md, "Ids"; ADR decision 2).

    `actor` is the person, or the initiator if one is named, else 16 zero bytes; `version` the planned V.
    """
    head = struct.pack(">Q16sB16sQ", tenant, group, op, actor, version)
    return blake3(b"qim.membership-event.v1\0" + head + b"".join(sorted(set(people)))).digest(ID_BYTES)


def control_body(op: MembershipOp, actor: bytes, people: Iterable[bytes]) -> bytes:
    """The body of a membership event: op u8, actor u128be, n u16be, n times user u128be, ascending."""
    ordered = sorted(set(people))
    return _CONTROL_HEAD.pack(op, actor, len(ordered)) + b"".join(ordered)


def parse_control_body(body: bytes) -> tuple[MembershipOp, bytes, tuple[UserId, ...]]:
    """Operation, actor (16 bytes, all zero: an operator) and people of a membership event.

    Raises ValueError for other bytes: the service never makes such a body."""
    start = _CONTROL_HEAD.size
    if len(body) < start:
        raise ValueError(f"a membership event has at least {start} bytes, not {len(body)}")
    op, actor, count = _CONTROL_HEAD.unpack_from(body)
    if len(body) != start + count * ID_BYTES:
        raise ValueError(f"a membership event of {count} people has another length than {len(body)} bytes")
    people = tuple(UserId(body[at : at + ID_BYTES]) for at in range(start, len(body), ID_BYTES))
    return MembershipOp(op), actor, people


def uuid7() -> bytes:
    """A new UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then random bits."""
    raw = bytearray(os.urandom(ID_BYTES))
    raw[:6] = int(time.time() * 1000).to_bytes(6, "big")
    raw[6] = 0x70 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    return bytes(raw)


def uuid7_millis(value: bytes) -> int:
    """The Unix milliseconds of a UUIDv7; 0 when `value` is another kind of id."""
    if value[6] & 0xF0 == 0x70 and value[8] & 0xC0 == 0x80:
        return int.from_bytes(value[:6], "big")
    return 0


def show(value: bytes) -> str:
    """An id as people read it: a UUID."""
    return str(uuid.UUID(bytes=value))


def parse_shown(text: str, field: str) -> bytes:
    """The id that a person typed as a UUID; raises InvalidArgument naming `field`."""
    try:
        return parse_id(uuid.UUID(text).bytes, field)
    except ValueError:
        raise InvalidArgument(field, "is not a UUID") from None

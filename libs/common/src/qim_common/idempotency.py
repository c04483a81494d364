"""Idempotency keys: which entry a request has, and the digest of its content. Pure.

The rule stands in contracts.md, "Idempotency"; `lua/include/idempotency.lua` beside this module keeps the entries.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from blake3 import blake3

from qim_common.ids import TenantId, uuid7_millis


class RequestClass(IntEnum):
    """The class of a request, so that ids of different kinds of calls never meet."""

    SEND = 1
    MEMBER = 2
    OPERATOR = 3


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """An entry's field (16 bytes) and the digest of the content (8 bytes)."""

    field: bytes
    digest: bytes
    time_ms: int
    """Of a UUIDv7; 0 for other ids, which are never too old."""


_SCOPE = struct.Struct(">QB")


def entry_field(
    tenant: TenantId, request_class: RequestClass, caller: bytes, conversation: bytes, request: bytes
) -> bytes:
    """The field of an entry, 16 bytes. `caller` is the user or principal, never the device."""
    return blake3(_SCOPE.pack(tenant, request_class) + caller + conversation + request).digest(16)


def content_digest(*parts: bytes) -> bytes:
    """The digest of a request's content, 8 bytes; each part counts with its length."""
    return blake3(b"".join(struct.pack(">I", len(part)) + part for part in parts)).digest(8)


def id_time(request: bytes) -> int:
    """The milliseconds of a UUIDv7, 0 for other ids."""
    return uuid7_millis(request)

"""The idempotency entry of a send: its key, and its answer as the commit script stores it (contracts.md,
"Idempotency"). Pure. A recovery makes the same entries from records, so the rule stands in one place."""

from __future__ import annotations

import struct
from typing import Final

from blake3 import blake3

from qim_common.idempotency import IdempotencyKey, RequestClass, entry_field
from qim_common.ids import TenantId, UserId, uuid7_millis

_DIGEST_OFFSET: Final = 1 + 3 * 16
"""Where the content of a record's tail begins: after type, sender, device and message id, which the key holds."""

_ANSWER: Final = struct.Struct(">HIHIHII")


def send_key(tenant: TenantId, sender: UserId, conversation: bytes, message_id: bytes, tail: bytes) -> IdempotencyKey:
    """The key of a send, from the record's tail that it makes."""
    return IdempotencyKey(
        entry_field(tenant, RequestClass.SEND, sender, conversation, message_id),
        blake3(tail[_DIGEST_OFFSET:]).digest(8),
        uuid7_millis(message_id),
    )


def send_answer(seq: int, time_ms: int, version: int, generation: int) -> bytes:
    """The stored answer: seq u48, time u48, version u48, generation u32."""
    return _ANSWER.pack(
        seq >> 32,
        seq & 0xFFFFFFFF,
        time_ms >> 32,
        time_ms & 0xFFFFFFFF,
        version >> 32,
        version & 0xFFFFFFFF,
        generation,
    )

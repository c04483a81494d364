"""Entries of the membership log as bytes (storage.md, "Keys per conversation": `memlog`). Pure; big-endian.

The field `e`: tenant u64 | conversation 16 | count u16 | count users, 16 each, who were put into the conversation.
"""

from __future__ import annotations

import struct
from typing import Final

from qim_common.ids import ID_BYTES, ConversationId, TenantId, UserId
from qim_session.domain.entries import ProjectionEntry

_HEAD: Final = struct.Struct(">Q16sH")


def joined(data: bytes, time_ms: int) -> list[ProjectionEntry]:
    """One entry for each of the people. Raises ValueError for bytes of another form."""
    if len(data) < _HEAD.size:
        raise ValueError(f"a membership log entry of {len(data)} bytes is cut short")
    tenant, conversation, count = _HEAD.unpack_from(data)
    if len(data) != _HEAD.size + count * ID_BYTES:
        raise ValueError(f"a membership log entry of {count} people has {len(data)} bytes")
    return [
        ProjectionEntry(TenantId(tenant), UserId(data[at : at + ID_BYTES]), ConversationId(conversation), time_ms)
        for at in range(_HEAD.size, len(data), ID_BYTES)
    ]

"""Entries of conversation lists on their way into the store (storage.md, "Session"). Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from qim_common.ids import ConversationId, TenantId, UserId

_PACKED: Final = struct.Struct(">Q16s16sQ")


@dataclass(frozen=True, slots=True)
class ProjectionEntry:
    """A conversation of one person had its newest delivered message, or began, at `time_ms`.

    `big`: it is above `projection_fanout_max_members`, so that its place in the list is asked for from now on.
    """

    tenant: TenantId
    user: UserId
    conversation: ConversationId
    time_ms: int
    big: bool = field(default=False, compare=False)

    def pack(self) -> bytes:
        """48 bytes: tenant u64, user, conversation, time u64, big-endian; an element of `ucs_pending`."""
        return _PACKED.pack(self.tenant, self.user, self.conversation, self.time_ms)

    @classmethod
    def unpack(cls, data: bytes) -> ProjectionEntry:
        """Read what `pack` wrote. Raises struct.error for another length."""
        tenant, user, conversation, time_ms = _PACKED.unpack(data)
        return cls(TenantId(tenant), UserId(user), ConversationId(conversation), time_ms)

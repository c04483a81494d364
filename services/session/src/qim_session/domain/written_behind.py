"""What is written behind: cursors and flags, from the session store to Cassandra (storage.md, "Session"). Pure.

Each carries what orders it against others of its kind: a cursor its generation and seq, flags how often they were set.
So writing one late, twice or after a newer one changes nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from qim_common.ids import ConversationId, DeviceId, TenantId, UserId
from qim_session.domain.cursors import Cursor
from qim_session.domain.flags import Flags

NO_DEVICE: Final = DeviceId(bytes(16))
"""Of what belongs to the person and not to one device."""

_PERSON: Final = struct.Struct(">BQ16s16s")
_FIELD: Final = struct.Struct(">BQ16s16s16s")


class MarkKind(IntEnum):
    """What a mark is."""

    READ = 1
    DEVICE = 2
    FLAGS = 3


@dataclass(frozen=True, slots=True)
class Mark:
    """One cursor, or the flags, of a person in a conversation; `device` is that of a device's cursor."""

    tenant: TenantId
    user: UserId
    device: DeviceId
    conversation: ConversationId
    value: Cursor | Flags

    @property
    def kind(self) -> MarkKind:
        """What it is."""
        if isinstance(self.value, Flags):
            return MarkKind.FLAGS
        return MarkKind.READ if self.device == NO_DEVICE else MarkKind.DEVICE

    @property
    def field(self) -> bytes:
        """Which it is: 57 bytes, `person_part` and the conversation."""
        return _FIELD.pack(self.kind, self.tenant, self.user, self.device, self.conversation)

    @classmethod
    def unpack(cls, field: bytes, value: bytes) -> Mark:
        """Read a field and its value. Raises struct.error for other lengths, ValueError for another kind."""
        kind, tenant, user, device, conversation = _FIELD.unpack(field)
        known = Flags.unpack(value) if MarkKind(kind) is MarkKind.FLAGS else Cursor.unpack(value)
        return cls(TenantId(tenant), UserId(user), DeviceId(device), ConversationId(conversation), known)


def person_part(kind: MarkKind, tenant: TenantId, user: UserId, device: DeviceId = NO_DEVICE) -> bytes:
    """41 bytes: kind u8, tenant u64, user, device; big-endian. With a conversation behind it a mark's `field`."""
    return _PERSON.pack(kind, tenant, user, device)

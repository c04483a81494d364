"""What a person's other devices are told live: read marks and flags, on the stream `usig`. Pure.

storage.md, "Session": one stream for each session instance, which every replica tails.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from qim_common.ids import ConversationId, DeviceId, TenantId, UserId

SIGNAL_FIELD: Final = b"e"
"""The field of a stream entry that holds the signal."""

_PACKED: Final = struct.Struct(">BQ16s16s16sIQB")
_HIDDEN: Final = 1
_MUTED: Final = 2


class SignalKind(IntEnum):
    """What has changed."""

    READ_MARK = 1
    FLAGS = 2


@dataclass(frozen=True, slots=True)
class Signal:
    """One change of a person's own marks, made on one of their devices.

    Attributes:
        device: where it was made; that device is not told.
        generation: the conversation's, of the read cursor or where it was hidden.
        seq: of READ_MARK the read cursor, of FLAGS 0.
        hidden, muted: of FLAGS what holds from now on; of READ_MARK both false.
    """

    kind: SignalKind
    tenant: TenantId
    user: UserId
    device: DeviceId
    conversation: ConversationId
    generation: int
    seq: int = 0
    hidden: bool = False
    muted: bool = False

    def pack(self) -> bytes:
        """70 bytes: kind u8, tenant u64, user, device, conversation, generation u32, seq u64, flags u8; big-endian.

        Flags: 1 hidden, 2 muted.
        """
        flags = _HIDDEN * self.hidden | _MUTED * self.muted
        return _PACKED.pack(
            *(self.kind, self.tenant, self.user, self.device, self.conversation, self.generation, self.seq, flags)
        )

    @classmethod
    def unpack(cls, data: bytes) -> Signal:
        """Read what `pack` or a script wrote. Raises struct.error for another length, ValueError for another kind."""
        kind, tenant, user, device, conversation, generation, seq, flags = _PACKED.unpack(data)
        return cls(
            kind=SignalKind(kind),
            tenant=TenantId(tenant),
            user=UserId(user),
            device=DeviceId(device),
            conversation=ConversationId(conversation),
            generation=generation,
            seq=seq,
            hidden=bool(flags & _HIDDEN),
            muted=bool(flags & _MUTED),
        )

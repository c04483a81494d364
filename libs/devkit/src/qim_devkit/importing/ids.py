"""The request ids of an import: the same for the same line, however often it is interrupted. Pure.

They are UUIDv7, whose time is the import's and not the line's. So a line that was interrupted so long ago that the
service has forgotten its answer is refused (REQUEST_TOO_OLD) instead of being carried out twice.
"""

from __future__ import annotations

import struct

from blake3 import blake3


def line_id(import_id: bytes, number: int, time_ms: int) -> bytes:
    """The id of line `number` (from 1; 0 is the creation of the group), 16 bytes. `time_ms` since the epoch."""
    raw = bytearray(time_ms.to_bytes(6, "big"))
    raw += blake3(b"qim.import.v1\0" + import_id + struct.pack(">Q", number)).digest(10)
    raw[6] = 0x70 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    return bytes(raw)

"""Layouts of values in Redis that several parts of the writer read or make (storage.md, "Keys per conversation"). Pure.

The committing scripts write them too, each in its header's words. A seq, version or time is six bytes, big-endian. For
stays see `qim_writer.domain.stays`, for records `qim_common.records`.
"""

from __future__ import annotations

import struct
from typing import Final

CHANGE: Final = struct.Struct(">B6s6s16s")
"""`grpchg`: operation, seq, time (ms), actor; then the people, 16 bytes each."""

LOGGED: Final = struct.Struct(">B6s6s6sB")
"""`grplog`: change, time (ms), version, head, length of the maker; then the maker and the payload."""

CONTROL: Final = struct.Struct(">6s6sB6s")
"""A member of `msgctl`: seq, version, audience, time (ms)."""

RAISED: Final = struct.Struct(">I6s")
"""One of `gens`: a raised generation, and the head where it began."""

"""From where a live stream goes on after it ended (storage.md, "Session": resume tokens). Pure.

A token is a moment in commit time. Everything delivered to the device before it was sent and acknowledged, so that
only conversations with later activity have to be looked at again; what is acknowledged in them the device's cursors
say. A token that is too old repeats nothing and only costs more looks. Logs that a recovery has begun anew have other
moments, so that a token of the former ones looks at everything.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from qim_common.ids import ConversationId, DeviceId
from qim_session.domain.cursors import Cursor

CONVERSATIONS_MAX: Final = 1_000
"""Conversations with something unacknowledged that an attachment keeps apart. With more of them its tokens stand still
until the next attach: they stay right, and repeat more."""

_PACKED: Final = struct.Struct(">B16sQQ")
_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The content of a resume token: of which device, from when (ms), and of which logs (u64)."""

    device: DeviceId
    time_ms: int
    logs: int

    def pack(self) -> bytes:
        """33 bytes: version u8, device, time u64, logs u64, big-endian."""
        return _PACKED.pack(_VERSION, self.device, self.time_ms, self.logs)

    @classmethod
    def unpack(cls, data: bytes) -> ResumePoint:
        """Read what `pack` wrote. Raises struct.error for another length, ValueError for another version."""
        version, device, time_ms, logs = _PACKED.unpack(data)
        if version != _VERSION:
            raise ValueError(f"resume token version {version} is not known")
        return cls(DeviceId(device), time_ms, logs)


@dataclass(slots=True)
class _Sent:
    oldest_ms: int
    newest: Cursor


@dataclass(slots=True)
class Unacknowledged:
    """What was sent to a device and is not acknowledged: of each conversation the oldest time and the newest seq."""

    conversations_max: int = CONVERSATIONS_MAX
    _sent: dict[ConversationId, _Sent] = field(default_factory=dict)
    _frozen_ms: int | None = None

    def sent(self, conversation: ConversationId, newest: Cursor, time_ms: int) -> None:
        """Something up to `newest` was sent; the oldest of it was delivered at `time_ms`, or later."""
        known = self._sent.get(conversation)
        if known is not None:
            if newest > known.newest:
                known.newest = newest
            if time_ms < known.oldest_ms:
                known.oldest_ms = time_ms
        elif len(self._sent) < self.conversations_max:
            self._sent[conversation] = _Sent(time_ms, newest)
        else:
            self._frozen_ms = time_ms if self._frozen_ms is None else min(self._frozen_ms, time_ms)

    def acknowledged(self, conversation: ConversationId, upto: Cursor) -> None:
        """The device's cursor of the conversation stands at `upto`, or further."""
        known = self._sent.get(conversation)
        if known is not None and upto >= known.newest:
            del self._sent[conversation]

    def covers(self, conversation: ConversationId, cursor: Cursor) -> bool:
        """Whether everything up to `cursor` is known to have been delivered, so that nothing clamps it."""
        known = self._sent.get(conversation)
        return known is not None and known.newest.generation == cursor.generation and known.newest >= cursor

    def newest(self, conversation: ConversationId) -> Cursor | None:
        """The newest that was sent and not acknowledged."""
        known = self._sent.get(conversation)
        return None if known is None else known.newest

    def resume_ms(self, settled_ms: int) -> int:
        """The moment for a token, where everything delivered before `settled_ms` has been sent."""
        oldest = min((sent.oldest_ms for sent in self._sent.values()), default=None)
        bounds = [settled_ms]
        bounds += [time_ms - 1 for time_ms in (oldest, self._frozen_ms) if time_ms is not None]
        return max(min(bounds), 0)

    def __len__(self) -> int:
        return len(self._sent)

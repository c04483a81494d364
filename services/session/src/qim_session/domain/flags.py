"""What a person sets for a conversation: hidden and muted (contracts.md, "Services": SetConversationFlags). Pure.

Hidden holds until the next ordinary message is delivered to the person, so it is stored as a place on the
conversation's line, and whether it still holds follows from what was delivered since. Nothing has to be written when a
message arrives.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

_PACKED: Final = struct.Struct(">BIQI")
_HIDDEN: Final = 1
_MUTED: Final = 2


@dataclass(frozen=True, slots=True)
class Flags:
    """What is stored.

    Attributes:
        hidden: the person has hidden it, at `hidden_seq`.
        generation, hidden_seq: the newest seq that had been delivered then, 0 for none; both 0 where it is not hidden.
        changes: how often they were set, which orders what is written behind.
    """

    hidden: bool = False
    muted: bool = False
    generation: int = 0
    hidden_seq: int = 0
    changes: int = 0

    def pack(self) -> bytes:
        """17 bytes: flags u8 (1 hidden, 2 muted), generation u32, seq u64, changes u32, big-endian."""
        return _PACKED.pack(self.bits, self.generation, self.hidden_seq, self.changes)

    @property
    def bits(self) -> int:
        """1 hidden, 2 muted."""
        return _HIDDEN * self.hidden | _MUTED * self.muted

    @classmethod
    def unpack(cls, data: bytes) -> Flags:
        """Read what `pack` or set_flags.lua wrote. Raises struct.error for another length."""
        bits, generation, hidden_seq, changes = _PACKED.unpack(data)
        return cls.of(bits, generation, hidden_seq, changes)

    @classmethod
    def of(cls, bits: int, generation: int, hidden_seq: int, changes: int) -> Flags:
        """The flags whose `bits` these are."""
        return cls(bool(bits & _HIDDEN), bool(bits & _MUTED), generation, hidden_seq, changes)


NO_FLAGS: Final = Flags()


@dataclass(frozen=True, slots=True)
class FlagsChange:
    """What a person asks for; None leaves it as it is.

    Attributes:
        generation, newest_seq: where the conversation stands for the person, the place of a new `hidden`.
        still_hidden: whether it is hidden now, which holds on where `hidden` is None.
    """

    hidden: bool | None
    muted: bool | None
    generation: int
    newest_seq: int
    still_hidden: bool


@dataclass(frozen=True, slots=True)
class FlagsAnswer:
    """The first answer of a change, which its repeats get as well."""

    hidden: bool
    muted: bool


def still_hidden(flags: Flags, *, quiet: bool, generation: int, joined_at: int) -> bool:
    """Whether a conversation is left out of the person's list now.

    Args:
        flags: as stored.
        quiet: no ordinary message was delivered to the person after `hidden_seq`.
        generation: the conversation's now; seqs of an older one say nothing about it.
        joined_at: the newest stay's; a person who has come back since sees the conversation again.
    """
    returned = joined_at > 0 and flags.hidden_seq <= joined_at
    return flags.hidden and quiet and flags.generation == generation and not returned

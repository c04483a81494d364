"""Stays: one period of one person in one conversation, and the packed values in which they are stored.

`grpcur` holds the newest stay with the person's own clear point and sender ordinal, `grpstays` the older ones, oldest
first (storage.md, "Keys per conversation").
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag

_STAY = struct.Struct(">B6s6s6s6s6s")
_CURRENT = struct.Struct(">BB3s6s6s6s6s6s6s")
_CURRENT_VERSION = 1

VERSION_MAX = 2**48 - 1
"""The largest membership version that the packed values hold."""


class StayState(IntEnum):
    """Whether a stay is open, and how it ended; the numbers are those of the wire's MemberState."""

    MEMBER = 1
    LEFT = 2
    REMOVED = 3


class _Flag(IntFlag):
    PRESENT = 1
    KEEPS_EARLIER = 2
    REVOKED = 4
    REMOVED = 8


@dataclass(frozen=True, slots=True)
class Stay:
    """One stay. Seqs: `joined_at` is J-1, `history_from` the exclusive lower bound of what it shows, `left_at` is L,
    the exclusive upper bound, 0 while open. Versions: `ended_version` is 0 while open (design.md, "Words")."""

    joined_at: int
    history_from: int
    left_at: int
    began_version: int
    ended_version: int
    state: StayState
    keeps_earlier: bool = False
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class Person:
    """Everything stored about one person in one conversation: at least one stay, oldest first."""

    stays: tuple[Stay, ...]
    own_clear: int
    ordinal: bytes
    """3 bytes: the person's entries in the sender column."""

    @property
    def newest(self) -> Stay:
        """The newest stay."""
        return self.stays[-1]

    @property
    def present(self) -> bool:
        """Whether the person is a member now."""
        return self.newest.state is StayState.MEMBER

    @property
    def versions(self) -> frozenset[int]:
        """The versions in which one of the stays began or ended: the membership events that concern this person."""
        return frozenset(v for stay in self.stays for v in (stay.began_version, stay.ended_version) if v)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _stay(flags: int, joined: bytes, history: bytes, left: bytes, began: bytes, ended: bytes) -> Stay:
    if flags & _Flag.PRESENT:
        state = StayState.MEMBER
    else:
        state = StayState.REMOVED if flags & _Flag.REMOVED else StayState.LEFT
    return Stay(
        joined_at=_number(joined),
        history_from=_number(history),
        left_at=_number(left),
        began_version=_number(began),
        ended_version=_number(ended),
        state=state,
        keeps_earlier=bool(flags & _Flag.KEEPS_EARLIER),
        revoked=bool(flags & _Flag.REVOKED),
    )


def unpack_person(current: bytes, older: bytes | None) -> Person:
    """A person from the values of `grpcur` and `grpstays`; raises ValueError for a version that is not known."""
    version, flags, ordinal, joined, history, left, began, ended, clear = _CURRENT.unpack(current)
    if version != _CURRENT_VERSION:
        raise ValueError(f"version {version} of a stay is not known")
    earlier = tuple(_stay(*fields) for fields in _STAY.iter_unpack(older or b""))
    newest = _stay(flags, joined, history, left, began, ended)
    return Person(stays=(*earlier, newest), own_clear=_number(clear), ordinal=ordinal)

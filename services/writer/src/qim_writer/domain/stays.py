"""Stays: one period of one person in one conversation, and the packed values in which they are stored.

`grpcur` holds the newest stay with the person's own clear point and sender ordinal, `grpstays` the older ones, oldest
first (storage.md, "Keys per conversation").
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from qim_common.enums import MemberState

# A seq or version is six bytes, read as its upper two and its lower four: a list needs these values by the hundred, and
# two numbers are made faster than a string and a number of it.
_STAY = struct.Struct(">BHIHIHIHIHI")
_CURRENT = struct.Struct(">BB3sHIHIHIHIHIHI")
_CURRENT_VERSION = 1

VERSION_MAX = 2**48 - 1
"""The largest membership version that the packed values hold."""


PRESENT = 1
KEEPS_EARLIER = 2
REVOKED = 4
REMOVED = 8


class Stay(NamedTuple):
    """One stay. Seqs: `joined_at` is J-1, `history_from` the exclusive lower bound of what it shows, `left_at` is L,
    the exclusive upper bound, 0 while open. Versions: `ended_version` is 0 while open (design.md, "Words")."""

    joined_at: int
    history_from: int
    left_at: int
    began_version: int
    ended_version: int
    state: MemberState
    keeps_earlier: bool = False
    revoked: bool = False

    def at_version(self, version: int) -> Stay:
        """The stay as of a version at or after its beginning: an end that came later is not there."""
        if self.ended_version <= version:
            return self
        return self._replace(left_at=0, ended_version=0, state=MemberState.MEMBER, revoked=False)


class Person(NamedTuple):
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
        return self.newest.state is MemberState.MEMBER

    @property
    def versions(self) -> frozenset[int]:
        """The versions in which one of the stays began or ended: the membership events that concern this person."""
        return frozenset(v for stay in self.stays for v in (stay.began_version, stay.ended_version) if v)


def _stay(
    flags: int,
    joined_hi: int,
    joined: int,
    history_hi: int,
    history: int,
    left_hi: int,
    left: int,
    began_hi: int,
    began: int,
    ended_hi: int,
    ended: int,
) -> Stay:
    if flags & PRESENT:
        state = MemberState.MEMBER
    elif flags & REMOVED:
        state = MemberState.REMOVED
    else:
        state = MemberState.LEFT
    return Stay(
        joined_hi << 32 | joined,
        history_hi << 32 | history,
        left_hi << 32 | left,
        began_hi << 32 | began,
        ended_hi << 32 | ended,
        state,
        flags & KEEPS_EARLIER != 0,
        flags & REVOKED != 0,
    )


def unpack_person(current: bytes, older: bytes | None) -> Person:
    """A person from the values of `grpcur` and `grpstays`; raises ValueError for a version that is not known."""
    version, flags, ordinal, *numbers, clear_hi, clear = _CURRENT.unpack(current)
    if version != _CURRENT_VERSION:
        raise ValueError(f"version {version} of a stay is not known")
    newest = _stay(flags, *numbers)
    stays = (*(_stay(*fields) for fields in _STAY.iter_unpack(older)), newest) if older else (newest,)
    return Person(stays, clear_hi << 32 | clear, ordinal)

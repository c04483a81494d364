"""The wire's enums for members and settings (design.md, "Words"), for those who know no protobuf.

Unset (0) stands for a default, which each call resolves where it arrives, so it has no name here but in MemberState.
"""

from __future__ import annotations

from enum import IntEnum


class MemberState(IntEnum):
    """How somebody stands to a conversation; of a stay, whether it is open, and how it ended."""

    UNKNOWN = 0
    """The person never was in it; no stay has this."""

    MEMBER = 1
    LEFT = 2
    REMOVED = 3


class NewcomerPolicy(IntEnum):
    """How far back somebody who joins may read (design.md, "Decisions between the sources")."""

    SINCE_JOIN = 1
    LAST_N = 2
    ALL = 3


class RejoinHistory(IntEnum):
    """What somebody who comes back may read of earlier stays."""

    LATEST_STAY = 1
    ALL_STAYS = 2


class LeaverHistory(IntEnum):
    """What somebody who left or was removed may read."""

    UNTIL_LEFT = 1
    NONE = 2

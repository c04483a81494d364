"""A group's settings and owner, and the one packed value `policy` in which they are stored and compared."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from qim_common.enums import LeaverHistory, NewcomerPolicy, RejoinHistory
from qim_common.errors import InvalidArgument
from qim_common.ids import ZERO_ID, UserId
from qim_common.records import StateChange

LAST_N_MAX = 1_000_000_000
RETENTION_DAYS_MAX = 36_500
EVERYTHING = -1
"""`history_back` of somebody who may read from the first message on."""

NOBODY = UserId(ZERO_ID)
"""The owner of an empty group, and of a direct conversation."""


# By the stored number, which is faster than asking the class; 0 in the policy of a direct conversation.
_NEWCOMER = {0: NewcomerPolicy.SINCE_JOIN, **{value.value: value for value in NewcomerPolicy}}
_REJOIN = {0: RejoinHistory.LATEST_STAY, **{value.value: value for value in RejoinHistory}}
_LEAVER = {0: LeaverHistory.UNTIL_LEFT, **{value.value: value for value in LeaverHistory}}


@dataclass(frozen=True, slots=True)
class Limits:
    """What the deployment allows and assumes where a group says nothing."""

    member_limit: int = 100_000
    member_limit_max: int = 100_000
    broadcast_max_members: int = 500
    fanout_max_members: int = 1_000


_AS_WRITTEN = struct.Struct(">QBQBBQQ")


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A group's own settings. `last_n` counts seqs; `broadcast_max_members` 0 stands for the deployment's value;
    `retention_days` 0 for never; `member_limit` 0 for the deployment's default, which `validated` puts in its place."""

    member_limit: int
    newcomer: NewcomerPolicy = NewcomerPolicy.SINCE_JOIN
    last_n: int = 0
    rejoin: RejoinHistory = RejoinHistory.LATEST_STAY
    leaver: LeaverHistory = LeaverHistory.UNTIL_LEFT
    broadcast_max_members: int = 0
    retention_days: int = 0

    @property
    def history_back(self) -> int:
        """How many seqs before the join a newcomer sees; EVERYTHING for all."""
        return EVERYTHING if self.newcomer is NewcomerPolicy.ALL else self.last_n

    def content(self) -> bytes:
        """The settings as they were written, whatever their range: part of a request's content."""
        return _AS_WRITTEN.pack(
            self.member_limit,
            self.newcomer,
            self.last_n,
            self.rejoin,
            self.leaver,
            self.broadcast_max_members,
            self.retention_days,
        )

    def validated(self, limits: Limits) -> GroupSettings:
        """These settings with the default limit where they name none; raises InvalidArgument naming the field that is
        out of its range."""
        if not self.member_limit:
            return replace(self, member_limit=limits.member_limit).validated(limits)
        if self.newcomer is NewcomerPolicy.LAST_N:
            if not 1 <= self.last_n <= LAST_N_MAX:
                raise InvalidArgument("settings.newcomer_history.last_n", f"must be from 1 to {LAST_N_MAX} with LAST_N")
        elif self.last_n:
            raise InvalidArgument("settings.newcomer_history.last_n", "goes with the policy LAST_N only")
        if not 1 <= self.member_limit <= limits.member_limit_max:
            raise InvalidArgument("settings.member_limit", f"must be from 1 to {limits.member_limit_max}")
        if not 0 <= self.broadcast_max_members <= limits.broadcast_max_members:
            raise InvalidArgument(
                "settings.broadcast_max_members", f"must be from 0 to {limits.broadcast_max_members}: it only lowers"
            )
        if not 0 <= self.retention_days <= RETENTION_DAYS_MAX:
            raise InvalidArgument("settings.retention_days", f"must be from 0 to {RETENTION_DAYS_MAX}")
        return self


_POLICY = struct.Struct(">B16sIBIBBIHxxx")


@dataclass(frozen=True, slots=True)
class Policy:
    """What a plan depends on besides the version: settings, owner, frozen. Stored packed, so that a script can compare
    the whole of it with what a plan was made from."""

    settings: GroupSettings
    owner: UserId
    frozen: bool = False

    def with_owner(self, owner: UserId) -> Policy:
        """The same policy with another owner."""
        return replace(self, owner=owner)

    def pack(self) -> bytes:
        """37 bytes; the first says whether the group is frozen, which the send script reads."""
        s = self.settings
        return _POLICY.pack(
            self.frozen,
            self.owner,
            s.member_limit,
            s.newcomer,
            s.last_n,
            s.rejoin,
            s.leaver,
            s.broadcast_max_members,
            s.retention_days,
        )

    @classmethod
    def unpack(cls, data: bytes) -> Policy:
        """The inverse of `pack`; 37 zero bytes are the policy of a direct conversation."""
        frozen, owner, limit, newcomer, last_n, rejoin, leaver, broadcast, retention = _POLICY.unpack(data)
        settings = GroupSettings(
            member_limit=limit,
            newcomer=_NEWCOMER[newcomer],
            last_n=last_n,
            rejoin=_REJOIN[rejoin],
            leaver=_LEAVER[leaver],
            broadcast_max_members=broadcast,
            retention_days=retention,
        )
        return cls(settings, UserId(owner), bool(frozen))


def says_frozen(packed: bytes) -> bool:
    """Whether the group is frozen, of what `Policy.pack` wrote."""
    return packed[0] != 0


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A policy that is to replace another. `member` must be in the group when it does (a new owner)."""

    what: StateChange
    before: Policy
    after: Policy
    member: UserId | None = None

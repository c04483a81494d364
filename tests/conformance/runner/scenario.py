"""A scenario as values. seqs count from 1; people are names; the keys are told in tests/conformance/README.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from qim_client import GroupSettings, LeaverHistory, NewcomerPolicy, RejoinHistory

DENIED: Final = "DENIED"
"""What is expected where PERMISSION_DENIED is the right answer."""

ABSENT: Final = "ABSENT"
"""The state of somebody who never was in the conversation."""

SeqSet = tuple[tuple[int, int], ...]
"""seqs as ascending ranges that do not touch, both ends included."""

Value = SeqSet | int | str | bool | tuple[str, ...] | None
"""What an `expect` compares: seqs, a number, a word, yes or no, names in their order, or nobody."""


def as_ranges(seqs: list[tuple[int, int]]) -> SeqSet:
    """Ranges in any order as a SeqSet."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(seqs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """Settings that a scenario names; None: not named, so it stays as it is."""

    newcomer: tuple[NewcomerPolicy, int] | None = None
    rejoin: RejoinHistory | None = None
    leaver: LeaverHistory | None = None
    broadcast_max: int | None = None
    limit: int | None = None

    def applied_to(self, before: GroupSettings) -> GroupSettings:
        """All settings of the group afterwards."""
        newcomer, last_n = self.newcomer or (before.newcomer, before.last_n)
        return GroupSettings(
            newcomer=newcomer,
            last_n=last_n,
            rejoin=self.rejoin or before.rejoin,
            leaver=self.leaver or before.leaver,
            broadcast_max_members=before.broadcast_max_members if self.broadcast_max is None else self.broadcast_max,
            member_limit=before.member_limit if self.limit is None else self.limit,
            retention_days=before.retention_days,
        )


@dataclass(frozen=True, slots=True)
class Group:
    """The group at the start; the owner is not among `members`."""

    owner: str
    members: tuple[str, ...] = ()
    settings: SettingsChange = SettingsChange()


@dataclass(frozen=True, slots=True)
class Direct:
    """A direct conversation; it exists from the first message on."""

    people: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Send:
    """`n` messages."""

    by: str
    n: int = 1


@dataclass(frozen=True, slots=True)
class Add:
    """One operator call for all."""

    users: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """One operator call for all; `leaver_history` None: the group's setting."""

    users: tuple[str, ...]
    leaver_history: LeaverHistory | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Of one's own accord."""

    by: str


@dataclass(frozen=True, slots=True)
class Clear:
    """One's own history; `up_to` 0: everything."""

    by: str
    up_to: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """Moves the read cursor."""

    by: str
    seq: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """The present owner makes `to` the owner."""

    to: str


@dataclass(frozen=True, slots=True)
class Set:
    """An operator changes settings."""

    change: SettingsChange


@dataclass(frozen=True, slots=True)
class ClearGroup:
    """The floor moves up; `up_to` 0: to the head."""

    up_to: int = 0


@dataclass(frozen=True, slots=True)
class Retry:
    """The operation with this number again, with the same request."""

    step: int


Action = Send | Add | Remove | Leave | Clear | Read | Transfer | Set | ClearGroup | Retry


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that is done, and what must come of it.

    Attributes:
        number: among the operations of the scenario, from 0.
        seq: that it, or its first message, takes; None: not said.
        no_event: it succeeds and takes no seq.
        error: the reason with which it is refused; empty: it is not.
    """

    number: int
    action: Action
    seq: int | None = None
    no_event: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Expect:
    """What people see at this point: person to key to value."""

    people: Mapping[str, Mapping[str, Value]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario of a file; `steps` in their order."""

    file: str
    name: str
    why: str
    start: Group | Direct
    steps: tuple[Operation | Expect, ...] = field(default=())

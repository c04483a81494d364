"""What happened in a group, and why somebody may or may not read a seq. Enums with the numbers of the wire."""

from __future__ import annotations

from dataclasses import dataclass

from qim_admin.domain.groups import Group, GroupSettings
from qim_common.ids import UserId


@dataclass(frozen=True, slots=True)
class Stay:
    """One stay (design.md, "Words"): `left_at` and `ended_version` are 0 while inside."""

    joined_at: int
    history_from: int
    left_at: int
    state: int
    began_version: int
    ended_version: int
    keeps_earlier: bool
    revoked: bool


@dataclass(frozen=True, slots=True)
class MembershipEvent:
    """One membership event; `op` is 0, and nobody is named, where its record was removed. `actor` may be empty."""

    version: int
    op: int
    seq: int
    time_ms: int
    people: tuple[UserId, ...]
    actor: bytes


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One change without a seq; `settings` is None where it says only where the floor is."""

    revision: int
    kind: int
    time_ms: int
    version: int
    head_seq: int
    made_by: str
    settings: GroupSettings | None
    owner: bytes
    frozen: bool
    floor_seq: int


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """A page of a group's line; `stays`, `visible` (first and last seq, both included) and `own_clear_seq` only of a
    person who was named, `entries` only without one."""

    group: Group
    events: tuple[MembershipEvent, ...]
    entries: tuple[StateEntry, ...]
    stays: tuple[Stay, ...]
    visible: tuple[tuple[int, int], ...]
    own_clear_seq: int
    next_token: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether a person may read a seq and whether they received it; `stay` is the one that decides, if there is one."""

    visible: bool
    delivered: bool
    sentence: str
    cause: str
    stay: Stay | None
    own_clear_seq: int
    floor_seq: int
    settings: GroupSettings

"""A group as operators see it and set it."""

from __future__ import annotations

from dataclasses import dataclass

from qim_common.errors import InvalidArgument
from qim_common.ids import ConversationId, UserId

MAX_PAGE = 1000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A group's settings with the numbers of the wire; 0 stands for the default. The writer checks them."""

    newcomer: int
    last_n: int
    rejoin: int
    leaver: int
    broadcast_max_members: int
    member_limit: int
    retention_days: int

    def words(self) -> str:
        """The numbers by name, for the journal."""
        return ", ".join(f"{name} {getattr(self, name)}" for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class Group:
    """A group as operators see it; `owner` is empty while the group is."""

    group: ConversationId
    owner: bytes
    version: int
    revision: int
    generation: int
    member_count: int
    settings: GroupSettings
    head_seq: int
    floor_seq: int
    frozen: bool
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One row of a member list, role and state with the numbers of the wire."""

    user: UserId
    role: int
    joined_at: int
    state: int
    left_at: int


@dataclass(frozen=True, slots=True)
class MemberPage:
    """A page of present members; `next_token` is empty on the last one."""

    members: tuple[MemberRow, ...]
    next_token: str
    version: int
    member_count: int


def parse_page_size(page_size: int) -> int:
    """`page_size`; raises InvalidArgument unless it is 1 to 1000."""
    if not 1 <= page_size <= MAX_PAGE:
        raise InvalidArgument("page_size", f"must be from 1 to {MAX_PAGE}")
    return page_size

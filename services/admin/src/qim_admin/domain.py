"""What operators ask for and what they get, as values. Pure; ids are checked where a command takes them.

Field names are those of admin.proto, so that a refusal names the field as the caller wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from qim_common.bindings import OperatorRole
from qim_common.errors import InvalidArgument, RoleNotAllowed, TooManyItems
from qim_common.identity import Peer, Principal, PrincipalKind, Role
from qim_common.ids import ConversationId, TenantId, UserId, parse_id, parse_user

MAX_PEOPLE = 1000
"""Of one AddMembers or RemoveMembers (contracts.md, "Services")."""

MAX_PAGE = 1000
CHANGING_ROLES = frozenset({OperatorRole.MODERATOR, OperatorRole.ADMIN})


class ChangeKind(IntEnum):
    """What a membership change does, as on the wire."""

    ADD = 1
    REMOVE = 2


class LeaverHistory(IntEnum):
    """What those who are removed may read from now on; GROUP_SETTING leaves it to the group, as on the wire."""

    GROUP_SETTING = 0
    UNTIL_LEFT = 1
    NONE = 2


@dataclass(frozen=True, slots=True)
class ChangeAsked:
    """AddMembers or RemoveMembers as it arrived, nothing checked yet."""

    kind: ChangeKind
    tenant_id: int
    request_id: bytes
    group_id: bytes
    user_ids: Sequence[bytes]
    initiator_user_id: bytes = b""
    owner_user_id: bytes = b""
    leaver_history: int = LeaverHistory.GROUP_SETTING


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """A checked change: 1 to 1,000 people in call order; `owner` only with ADD, `leaver_history` only with REMOVE."""

    kind: ChangeKind
    request_id: bytes
    group: ConversationId
    people: tuple[UserId, ...]
    owner: UserId | None
    leaver_history: LeaverHistory


@dataclass(frozen=True, slots=True)
class MembershipVersion:
    """The version after a change; `seq` is 0 when there was nothing to change."""

    group: ConversationId
    version: int
    seq: int
    member_count: int
    changed_count: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A group's settings with the numbers of the wire; 0 stands for the default."""

    newcomer_policy: int
    last_n: int
    rejoin_history: int
    leaver_history: int
    broadcast_max_members: int
    member_limit: int
    retention_days: int


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


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One call of an operator or a back end, for the journal. `outcome` is "OK" or the reason of the refusal."""

    method: str
    caller: Peer
    tenant_id: int
    group_id: bytes
    initiator: bytes
    people: int
    outcome: str
    version: int = 0
    seq: int = 0
    changed: int = 0


def principal_of(caller: Peer, tenant: TenantId, initiator: bytes) -> Principal:
    """For whom the admin service acts towards the writer (contracts.md, "Identity").

    Raises:
        InvalidArgument: an initiator that is no id, or that an operator names: only a back end speaks for end users.
        RoleNotAllowed: the caller is neither an operator nor a back end.
    """
    if caller.role is Role.OPERATOR:
        if initiator:
            raise InvalidArgument("initiator_user_id", "may be named by a back end only")
        return Principal(PrincipalKind.OPERATOR, caller.name, tenant, None)
    if caller.role is Role.BACKEND:
        named = parse_user(initiator, "initiator_user_id") if initiator else None
        return Principal(PrincipalKind.BACKEND, caller.name, tenant, named)
    raise RoleNotAllowed


def require_changing_role(caller: Peer, roles: frozenset[OperatorRole]) -> None:
    """Raises RoleNotAllowed unless the caller is a back end, or an operator who may change something."""
    if caller.role is Role.OPERATOR and not roles & CHANGING_ROLES:
        raise RoleNotAllowed(
            message=f"operator {caller.name} may only look: the bindings file has to give one of the roles "
            f"{', '.join(sorted(CHANGING_ROLES))}"
        )


def parse_change(asked: ChangeAsked, group: ConversationId) -> MembershipChange:
    """The change that was asked for. Raises InvalidArgument naming the field, and TooManyItems."""
    request_id = parse_id(asked.request_id, "request_id")
    if not asked.user_ids:
        raise InvalidArgument("user_ids", "must name at least one person")
    if len(asked.user_ids) > MAX_PEOPLE:
        raise TooManyItems(message=f"a call changes at most {MAX_PEOPLE} people; split them over several calls")
    people = tuple(parse_user(user, f"user_ids[{at}]") for at, user in enumerate(asked.user_ids))
    owner = parse_user(asked.owner_user_id, "owner_user_id") if asked.owner_user_id else None
    if owner is not None and owner not in people:
        raise InvalidArgument("owner_user_id", "must be one of user_ids")
    try:
        leaver_history = LeaverHistory(asked.leaver_history)
    except ValueError:
        raise InvalidArgument("leaver_history", "must be unset, UNTIL_LEFT or NONE") from None
    return MembershipChange(asked.kind, request_id, group, people, owner, leaver_history)


def parse_page_size(page_size: int) -> int:
    """`page_size`; raises InvalidArgument unless it is 1 to 1000."""
    if not 1 <= page_size <= MAX_PAGE:
        raise InvalidArgument("page_size", f"must be from 1 to {MAX_PAGE}")
    return page_size

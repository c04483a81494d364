"""Who may ask for what, and for whom the admin service then acts towards the writer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qim_common.bindings import OperatorRole
from qim_common.errors import InvalidArgument, RoleNotAllowed
from qim_common.identity import Peer, Principal, PrincipalKind, Role
from qim_common.ids import TenantId, parse_user

_RANK: Final = tuple(OperatorRole)

LEAST_ROLE: Final[Mapping[str, OperatorRole]] = {
    "GetGroup": OperatorRole.VIEWER,
    "ListMembers": OperatorRole.VIEWER,
    "GroupTimeline": OperatorRole.VIEWER,
    "ExplainVisibility": OperatorRole.VIEWER,
    "AddMembers": OperatorRole.MODERATOR,
    "RemoveMembers": OperatorRole.MODERATOR,
    "ClearGroupHistory": OperatorRole.MODERATOR,
    "FreezeGroup": OperatorRole.MODERATOR,
    "RunRetention": OperatorRole.MODERATOR,
    "UpdateGroupSettings": OperatorRole.ADMIN,
    "TransferOwnership": OperatorRole.ADMIN,
}
"""The least role with which an operator may call a method of GroupAdmin; a higher one includes it. A back end, which
acts for its end users, needs none: the tenants that it is bound to are its bound."""


def require_role(method: str, caller: Peer, roles: frozenset[OperatorRole], *, dry_run: bool = False) -> None:
    """Raises RoleNotAllowed unless the caller is a back end, or an operator with a role that includes `method`; a dry
    run, which only tells, is for everybody with a role."""
    if caller.role is not Role.OPERATOR:
        return
    least = OperatorRole.VIEWER if dry_run else LEAST_ROLE[method]
    enough = _RANK[_RANK.index(least) :]
    if roles.isdisjoint(enough):
        raise RoleNotAllowed(
            message=f"{method} is not for operator {caller.name}: the bindings file has to give one of the roles "
            f"{', '.join(enough)}"
        )


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

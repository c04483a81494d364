"""Who may call what: the one table (contracts.md, "Services" and "Identity"). What is not listed is refused.

A row maps each role that may call a method to the identity that a call of this role carries. An identity that the row
does not take from that role is refused too (ROLE_NOT_ALLOWED), never silently ignored.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from qim_common.errors import InternalIdentityRequired, RoleNotAllowed
from qim_common.identity import Peer, Role


class CallerKind(StrEnum):
    """What a call carries beside its peer."""

    ACTOR = "actor"
    """`qim-actor-bin` is required."""
    FRAME_ACTOR = "frame_actor"
    """A stream: actors stand in its frames (`check_frame_actor`), none in the metadata."""
    PRINCIPAL = "principal"
    """`qim-principal-bin` is required."""
    NONE = "none"
    """The peer only."""


_GATEWAY_ACTOR: Final = {Role.GATEWAY: CallerKind.ACTOR}
_GATEWAY_STREAM: Final = {Role.GATEWAY: CallerKind.FRAME_ACTOR}
_ADMIN_PRINCIPAL: Final = {Role.ADMIN: CallerKind.PRINCIPAL}
_SESSION_ONLY: Final = {Role.SESSION: CallerKind.NONE}
_WRITER_ONLY: Final = {Role.WRITER: CallerKind.NONE}
_OPERATOR_OR_BACKEND: Final = {Role.OPERATOR: CallerKind.NONE, Role.BACKEND: CallerKind.NONE}

ADMIN_CHANGE_MEMBERS: Final = "/qim.membership.v1.GroupMembership/AdminChangeMembers"

CALLERS: Final[Mapping[str, Mapping[Role, CallerKind]]] = {
    "/qim.membership.v1.GroupMembership/CreateGroup": _GATEWAY_ACTOR,
    ADMIN_CHANGE_MEMBERS: _ADMIN_PRINCIPAL,
    "/qim.membership.v1.GroupMembership/AuthorizeSend": _GATEWAY_ACTOR,
    "/qim.membership.v1.GroupMembership/AuthorizeHistory": _GATEWAY_ACTOR,
    "/qim.membership.v1.GroupMembership/MembersPage": _GATEWAY_ACTOR,
    "/qim.membership.v1.GroupMembership/FreezeDelivery": _GATEWAY_ACTOR,
    "/qim.membership.v1.GroupMembership/RecipientsForVersion": _SESSION_ONLY,
    "/qim.writer.v1.Writer/SendMessage": _GATEWAY_ACTOR,
    "/qim.writer.v1.Writer/SendMessages": _GATEWAY_STREAM,
    "/qim.writer.v1.Writer/LeaveGroup": _GATEWAY_ACTOR,
    "/qim.writer.v1.Writer/PullHistory": _GATEWAY_ACTOR,
    "/qim.writer.v1.Writer/GetMessages": _GATEWAY_ACTOR,
    "/qim.writer.v1.Writer/GetVisibleRange": _GATEWAY_ACTOR,
    "/qim.writer.v1.Writer/MembersSince": {Role.GATEWAY: CallerKind.ACTOR, Role.SESSION: CallerKind.NONE},
    "/qim.writer.v1.Writer/ClearHistory": _GATEWAY_ACTOR,
    "/qim.writer.v1.Writer/ClearGroupHistory": _GATEWAY_ACTOR,
    "/qim.writer.v1.Writer/TransferOwnership": _GATEWAY_ACTOR,
    "/qim.writer.v1.GroupControl/GetGroup": _ADMIN_PRINCIPAL,
    "/qim.writer.v1.GroupControl/FindGroups": _ADMIN_PRINCIPAL,
    "/qim.writer.v1.GroupControl/ListMembers": _ADMIN_PRINCIPAL,
    "/qim.writer.v1.GroupControl/UpdateGroupSettings": _ADMIN_PRINCIPAL,
    "/qim.writer.v1.GroupControl/TransferOwnership": _ADMIN_PRINCIPAL,
    "/qim.writer.v1.GroupControl/ClearGroupHistory": _ADMIN_PRINCIPAL,
    "/qim.writer.v1.GroupControl/GroupTimeline": _ADMIN_PRINCIPAL,
    "/qim.writer.v1.GroupControl/ExplainVisibility": _ADMIN_PRINCIPAL,
    "/qim.writer.v1.GroupControl/FreezeGroup": _ADMIN_PRINCIPAL,
    "/qim.writer.v1.GroupControl/RunRetention": _ADMIN_PRINCIPAL,
    "/qim.writer.v1.Internal/ConversationStates": _SESSION_ONLY,
    "/qim.writer.v1.Internal/DeliveredPage": _SESSION_ONLY,
    "/qim.session.v1.Session/ListConversations": _GATEWAY_ACTOR,
    "/qim.session.v1.Session/GetConversation": _GATEWAY_ACTOR,
    "/qim.session.v1.Session/GetTotalUnread": _GATEWAY_ACTOR,
    "/qim.session.v1.Session/MarkRead": _GATEWAY_ACTOR,
    "/qim.session.v1.Session/SetConversationFlags": _GATEWAY_ACTOR,
    "/qim.session.v1.Session/Subscribe": _GATEWAY_STREAM,
    "/qim.session.v1.Session/PullMailbox": _GATEWAY_ACTOR,
    "/qim.session.v1.Session/Project": _WRITER_ONLY,
    "/qim.admin.v1.GroupAdmin/AddMembers": _OPERATOR_OR_BACKEND,
    "/qim.admin.v1.GroupAdmin/RemoveMembers": _OPERATOR_OR_BACKEND,
    "/qim.admin.v1.GroupAdmin/GetGroup": _OPERATOR_OR_BACKEND,
    "/qim.admin.v1.GroupAdmin/ListMembers": _OPERATOR_OR_BACKEND,
    "/qim.admin.v1.GroupAdmin/FindGroups": _OPERATOR_OR_BACKEND,
    "/qim.admin.v1.GroupAdmin/GroupTimeline": _OPERATOR_OR_BACKEND,
    "/qim.admin.v1.GroupAdmin/ExplainVisibility": _OPERATOR_OR_BACKEND,
    "/qim.admin.v1.GroupAdmin/UpdateGroupSettings": _OPERATOR_OR_BACKEND,
    "/qim.admin.v1.GroupAdmin/TransferOwnership": _OPERATOR_OR_BACKEND,
    "/qim.admin.v1.GroupAdmin/ClearGroupHistory": _OPERATOR_OR_BACKEND,
    "/qim.admin.v1.GroupAdmin/FreezeGroup": _OPERATOR_OR_BACKEND,
    "/qim.admin.v1.GroupAdmin/RunRetention": _OPERATOR_OR_BACKEND,
}
"""Full method name -> role -> the identity that a call of this role carries."""


def roles_of(method: str) -> frozenset[Role]:
    """The roles that may call `method` (`/package.Service/Method`); empty for a method without a row."""
    return frozenset(CALLERS.get(method, ()))


def caller_kind(method: str, peer: Peer, *, has_actor: bool, has_principal: bool) -> CallerKind:
    """The identity that this call has to carry.

    Args:
        method: full name, `/package.Service/Method`.
        has_actor: `qim-actor-bin` was sent.
        has_principal: `qim-principal-bin` was sent.

    Raises:
        InternalIdentityRequired: AdminChangeMembers from anything but an admin certificate with a principal, before
            any other reason; or another call for principals that carries none.
        RoleNotAllowed: the role may not call this method, or may not assert the identity that it sent.
    """
    if method == ADMIN_CHANGE_MEMBERS and (peer.role is not Role.ADMIN or not has_principal):
        raise InternalIdentityRequired
    kind = CALLERS.get(method, {}).get(peer.role)
    if kind is None:
        allowed = ", ".join(sorted(roles_of(method))) or "nobody"
        raise RoleNotAllowed(message=f"a certificate of role {peer.role} may not call {method}; allowed: {allowed}")
    if has_actor and kind is not CallerKind.ACTOR:
        raise RoleNotAllowed(
            message="qim-actor-bin is taken from a gateway certificate on unary calls only; "
            "streams carry their actors in the frames"
        )
    if has_principal and kind is not CallerKind.PRINCIPAL:
        raise RoleNotAllowed(
            message="qim-principal-bin is taken from the admin service only, on calls for an operator or a back end"
        )
    if kind is CallerKind.PRINCIPAL and not has_principal:
        raise InternalIdentityRequired
    return kind

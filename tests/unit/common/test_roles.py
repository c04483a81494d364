"""The role table against the services' descriptors, and its decisions."""

import pytest
from google.protobuf.descriptor import FileDescriptor

from qim.admin.v1 import admin_pb2
from qim.membership.v1 import membership_pb2
from qim.session.v1 import session_pb2
from qim.writer.v1 import group_control_pb2, internal_pb2, writer_pb2
from qim_common.errors import InternalIdentityRequired, QimError, RoleNotAllowed
from qim_common.identity import Peer, Role
from qim_common.roles import ADMIN_CHANGE_MEMBERS, CALLERS, CallerKind, caller_kind, roles_of

FILES: tuple[FileDescriptor, ...] = tuple(
    module.DESCRIPTOR
    for module in (admin_pb2, membership_pb2, session_pb2, group_control_pb2, internal_pb2, writer_pb2)
)
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.services_by_name.values()
    for method in service.methods
}
SEND = "/qim.writer.v1.Writer/SendMessage"
STREAM = "/qim.writer.v1.Writer/SendMessages"
SINCE = "/qim.writer.v1.Writer/MembersSince"
GET_GROUP = "/qim.writer.v1.GroupControl/GetGroup"
PROJECT = "/qim.session.v1.Session/Project"
ADD = "/qim.admin.v1.GroupAdmin/AddMembers"


def test_every_method_has_a_row_and_no_row_is_orphaned() -> None:
    assert set(CALLERS) == set(METHODS)


def test_streams_of_requests_carry_their_actors_in_frames() -> None:
    framed = {method for method, row in CALLERS.items() if CallerKind.FRAME_ACTOR in row.values()}
    assert framed == {name for name, method in METHODS.items() if method.client_streaming}


def test_an_actor_is_asked_of_gateways_only() -> None:
    for row in CALLERS.values():
        for role, kind in row.items():
            assert (role is Role.GATEWAY) == (kind in {CallerKind.ACTOR, CallerKind.FRAME_ACTOR})
            assert (role is Role.ADMIN) == (kind is CallerKind.PRINCIPAL)


def test_an_unlisted_method_has_no_roles() -> None:
    assert roles_of("/qim.writer.v1.Writer/Nothing") == frozenset()


@pytest.mark.parametrize(
    ("method", "role", "actor", "principal", "expected"),
    [
        (SEND, Role.GATEWAY, True, False, CallerKind.ACTOR),
        (SEND, Role.GATEWAY, False, False, CallerKind.ACTOR),
        (SEND, Role.GATEWAY, True, True, RoleNotAllowed),
        (SEND, Role.SESSION, True, False, RoleNotAllowed),
        (SEND, Role.OPERATOR, False, False, RoleNotAllowed),
        (STREAM, Role.GATEWAY, False, False, CallerKind.FRAME_ACTOR),
        (STREAM, Role.GATEWAY, True, False, RoleNotAllowed),
        (SINCE, Role.GATEWAY, True, False, CallerKind.ACTOR),
        (SINCE, Role.SESSION, False, False, CallerKind.NONE),
        (SINCE, Role.SESSION, True, False, RoleNotAllowed),
        (SINCE, Role.WRITER, False, False, RoleNotAllowed),
        (PROJECT, Role.WRITER, False, False, CallerKind.NONE),
        (PROJECT, Role.GATEWAY, True, False, RoleNotAllowed),
        (GET_GROUP, Role.ADMIN, False, True, CallerKind.PRINCIPAL),
        (GET_GROUP, Role.ADMIN, False, False, InternalIdentityRequired),
        (GET_GROUP, Role.GATEWAY, False, True, RoleNotAllowed),
        (ADD, Role.OPERATOR, False, False, CallerKind.NONE),
        (ADD, Role.BACKEND, False, False, CallerKind.NONE),
        (ADD, Role.BACKEND, False, True, RoleNotAllowed),
        (ADD, Role.ADMIN, False, False, RoleNotAllowed),
        (ADMIN_CHANGE_MEMBERS, Role.ADMIN, False, True, CallerKind.PRINCIPAL),
        (ADMIN_CHANGE_MEMBERS, Role.ADMIN, False, False, InternalIdentityRequired),
        (ADMIN_CHANGE_MEMBERS, Role.ADMIN, True, True, RoleNotAllowed),
        (ADMIN_CHANGE_MEMBERS, Role.GATEWAY, True, False, InternalIdentityRequired),
        (ADMIN_CHANGE_MEMBERS, Role.GATEWAY, False, True, InternalIdentityRequired),
        (ADMIN_CHANGE_MEMBERS, Role.OPERATOR, False, True, InternalIdentityRequired),
        ("/qim.writer.v1.Writer/Nothing", Role.GATEWAY, True, False, RoleNotAllowed),
    ],
)
def test_decisions(
    method: str, role: Role, actor: bool, principal: bool, expected: CallerKind | type[QimError]
) -> None:
    peer = Peer("qim.local", role, "x")
    if isinstance(expected, CallerKind):
        assert caller_kind(method, peer, has_actor=actor, has_principal=principal) is expected
    else:
        with pytest.raises(expected):
            caller_kind(method, peer, has_actor=actor, has_principal=principal)

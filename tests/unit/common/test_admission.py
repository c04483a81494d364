"""What a call must bring before its handler runs."""

import asyncio
from pathlib import Path

import pytest

from qim_common.bindings import Bindings
from qim_common.calls import check_frame_actor, current_call, require_actor, require_principal
from qim_common.errors import (
    DeadlineRequired,
    InternalIdentityRequired,
    InvalidArgument,
    QimError,
    RoleNotAllowed,
    TenantNotAllowed,
)
from qim_common.identity import Actor, Peer, Principal, PrincipalKind, Role
from qim_common.ids import DeviceId, TenantId, UserId
from qim_common.roles import ADMIN_CHANGE_MEMBERS
from qim_common.server.admission import Admission, CallShape

ANA = Actor(TenantId(1), UserId(b"a" * 16), DeviceId(b"d" * 16))
OUTSIDE = Actor(TenantId(2), UserId(b"a" * 16), DeviceId(b"d" * 16))
OPERATOR = Principal(PrincipalKind.OPERATOR, "ana", TenantId(1), None)
SEND = CallShape("/qim.writer.v1.Writer/SendMessage", request_streaming=False, response_streaming=False)
STREAM = CallShape("/qim.writer.v1.Writer/SendMessages", request_streaming=True, response_streaming=True)
CHANGE = CallShape(ADMIN_CHANGE_MEMBERS, request_streaming=False, response_streaming=False)
RECIPIENTS = CallShape(
    "/qim.membership.v1.GroupMembership/RecipientsForVersion", request_streaming=False, response_streaming=True
)
Pairs = list[tuple[str, str | bytes]]


def _actor(actor: Actor) -> Pairs:
    return [("qim-actor-bin", actor.to_message().SerializeToString())]


def _principal(principal: Principal) -> Pairs:
    return [("qim-principal-bin", principal.to_message().SerializeToString())]


@pytest.fixture
def bindings(tmp_path: Path) -> Bindings:
    path = tmp_path / "bindings.yaml"
    path.write_text("gateways: {g: {tenants: [1]}}")
    return Bindings(path)


@pytest.fixture
def draining() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def admission(bindings: Bindings, draining: asyncio.Event) -> Admission:
    return Admission(bindings=bindings, trust_domain="qim.local", stream_max_age=60, draining=draining)


def _auth(uri: str) -> dict[str, list[bytes]]:
    return {"peer_spiffe_id": [uri.encode()]} if uri else {}


GATEWAY = "spiffe://qim.local/qim/gateway/g"
ADMIN = "spiffe://qim.local/qim/admin/a"


@pytest.mark.parametrize(
    ("shape", "uri", "metadata", "remaining", "refusal"),
    [
        (SEND, "", _actor(ANA), 5.0, RoleNotAllowed),
        (SEND, "spiffe://elsewhere/qim/gateway/g", _actor(ANA), 5.0, RoleNotAllowed),
        (SEND, ADMIN, _actor(ANA), 5.0, RoleNotAllowed),
        (SEND, GATEWAY, _actor(ANA), None, DeadlineRequired),
        (SEND, GATEWAY, [], 5.0, InvalidArgument),
        (SEND, GATEWAY, _actor(ANA) * 2, 5.0, InvalidArgument),
        (SEND, GATEWAY, [("qim-actor-bin", b"\xff")], 5.0, InvalidArgument),
        (SEND, GATEWAY, _actor(OUTSIDE), 5.0, TenantNotAllowed),
        (SEND, "spiffe://qim.local/qim/gateway/stranger", _actor(ANA), 5.0, TenantNotAllowed),
        (STREAM, GATEWAY, _actor(ANA), 5.0, RoleNotAllowed),
        (CHANGE, "", _principal(OPERATOR), 5.0, InternalIdentityRequired),
        (CHANGE, GATEWAY, _actor(ANA), None, InternalIdentityRequired),
        (CHANGE, ADMIN, [], 5.0, InternalIdentityRequired),
        (CHANGE, ADMIN, [("qim-principal-bin", b"\xff")], 5.0, InternalIdentityRequired),
        (CHANGE, ADMIN, _principal(OPERATOR) * 2, 5.0, InternalIdentityRequired),
        (CHANGE, "spiffe://elsewhere/qim/admin/a", _principal(OPERATOR), 5.0, InternalIdentityRequired),
        (CHANGE, ADMIN, _principal(OPERATOR), None, DeadlineRequired),
    ],
)
def test_refusals(
    admission: Admission,
    shape: CallShape,
    uri: str,
    metadata: Pairs,
    remaining: float | None,
    refusal: type[QimError],
) -> None:
    with pytest.raises(refusal):
        admission.admit(shape, auth_context=_auth(uri), metadata=metadata, time_remaining=remaining, request_id="r")


def test_a_gateways_call_carries_its_actor(admission: Admission) -> None:
    call = admission.admit(SEND, auth_context=_auth(GATEWAY), metadata=_actor(ANA), time_remaining=5.0, request_id="r")

    assert (call.actor, call.principal, call.request_id, call.stream) == (ANA, None, "r", None)
    remaining = call.remaining()
    assert remaining is not None
    assert 0 < remaining <= 5.0


def test_an_admins_call_carries_its_principal(admission: Admission) -> None:
    call = admission.admit(
        CHANGE, auth_context=_auth(ADMIN), metadata=_principal(OPERATOR), time_remaining=5.0, request_id="r"
    )

    assert (call.actor, call.principal) == (None, OPERATOR)


def test_a_stream_of_answers_needs_no_deadline(admission: Admission) -> None:
    call = admission.admit(
        RECIPIENTS,
        auth_context=_auth("spiffe://qim.local/qim/session/s"),
        metadata=[],
        time_remaining=None,
        request_id="r",
    )

    assert (call.deadline, call.remaining(), call.stream) == (None, None, None)


async def test_a_stream_of_requests_is_over_when_the_server_drains(
    admission: Admission, draining: asyncio.Event
) -> None:
    call = admission.admit(STREAM, auth_context=_auth(GATEWAY), metadata=[], time_remaining=None, request_id="r")
    assert call.stream is not None
    assert not call.stream.over

    draining.set()

    await call.stream.wait()
    assert call.stream.over


async def test_a_stream_of_requests_is_over_at_its_maximum_age(bindings: Bindings) -> None:
    admission = Admission(bindings=bindings, trust_domain="qim.local", stream_max_age=0.01, draining=asyncio.Event())
    call = admission.admit(STREAM, auth_context=_auth(GATEWAY), metadata=[], time_remaining=None, request_id="r")
    assert call.stream is not None

    await call.stream.wait()

    assert call.stream.over


@pytest.mark.parametrize(
    ("role", "name", "actor", "refusal"),
    [
        (Role.GATEWAY, "g", OUTSIDE, TenantNotAllowed),
        (Role.GATEWAY, "h", ANA, TenantNotAllowed),
        (Role.SESSION, "g", ANA, RoleNotAllowed),
        (Role.GATEWAY, "g", Actor(TenantId(1), UserId(b"short"), DeviceId(b"")), InvalidArgument),
    ],
)
def test_an_actor_in_a_frame_passes_the_same_checks(
    bindings: Bindings, role: Role, name: str, actor: Actor, refusal: type[QimError]
) -> None:
    with pytest.raises(refusal):
        check_frame_actor(bindings, Peer("qim.local", role, name), actor.to_message(), "actors[0]")
    assert check_frame_actor(bindings, Peer("qim.local", Role.GATEWAY, "g"), ANA.to_message()) == ANA


def test_outside_of_a_call_there_is_no_context() -> None:
    for ask in (current_call, require_actor, require_principal):
        with pytest.raises(RuntimeError):
            ask()

"""Peers, actors and principals out of bytes (contracts.md, "Identity")."""

from collections.abc import Callable

import pytest

from qim.common.v1 import identity_pb2
from qim_common.errors import InvalidArgument, QimError, RoleNotAllowed
from qim_common.identity import (
    Actor,
    Peer,
    Principal,
    PrincipalKind,
    Role,
    parse_actor,
    parse_principal,
    parse_spiffe,
    peer_from_auth_context,
)
from qim_common.ids import DeviceId, TenantId, UserId

ANA = bytes(range(16))
PHONE = bytes(range(16, 32))
ActorMessage = identity_pb2.AuthenticatedActor
PrincipalMessage = identity_pb2.InternalPrincipal
OPERATOR = PrincipalMessage.KIND_OPERATOR
BACKEND = PrincipalMessage.KIND_BACKEND


@pytest.mark.parametrize("role", Role)
def test_a_certificate_names_its_role(role: Role) -> None:
    peer = parse_spiffe(f"spiffe://qim.local/qim/{role}/eu-1.a_b")

    assert peer == Peer("qim.local", role, "eu-1.a_b")
    assert str(peer) == f"spiffe://qim.local/qim/{role}/eu-1.a_b"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "spiffe://qim.local",
        "spiffe://qim.local/qim/gateway",
        "spiffe://qim.local/qim/gateway/",
        "spiffe://qim.local/qim/gateway/a/b",
        "spiffe://qim.local/qim/gateway/a ",
        "spiffe://qim.local/qim/gateway/a\n",
        "spiffe://qim.local/qim/gateway/..",
        "spiffe://qim.local/qim/gateway/a?x=1",
        "spiffe://qim.local/qim/Gateway/a",
        "spiffe://qim.local/qim/root/a",
        "spiffe://qim.local/other/gateway/a",
        "spiffe://qim.local//qim/gateway/a",
        "spiffe:///qim/gateway/a",
        "https://qim.local/qim/gateway/a",
        "SPIFFE://qim.local/qim/gateway/a",
        "spiffe://user@qim.local/qim/gateway/a",
        "spiffe://qim.local:1/qim/gateway/a",
        "spiffe://qim.local/qim/gateway/" + "a" * 129,
        "spiffe://qim.local/qim/gateway/ü",
        "x" * 100_000,
    ],
)
def test_anything_else_names_nobody(uri: str) -> None:
    with pytest.raises(RoleNotAllowed):
        parse_spiffe(uri)


@pytest.mark.parametrize(
    "auth_context",
    [
        {},
        {"peer_spiffe_id": []},
        {"peer_spiffe_id": [b"spiffe://a/qim/gateway/x", b"spiffe://a/qim/admin/x"]},
        {"peer_uri": [b"spiffe://a/qim/gateway/x"]},
        {"peer_spiffe_id": [b"\xff\xfe"]},
    ],
)
def test_a_peer_without_exactly_one_spiffe_id_is_refused(auth_context: dict[str, list[bytes]]) -> None:
    with pytest.raises(RoleNotAllowed):
        peer_from_auth_context(auth_context)


def test_an_actor_has_tenant_user_and_device() -> None:
    raw = ActorMessage(tenant_id=2**64 - 1, user_id=ANA, device_id=PHONE).SerializeToString()

    assert parse_actor(raw) == Actor(TenantId(2**64 - 1), UserId(ANA), DeviceId(PHONE))


def test_an_empty_device_is_the_users_own_id() -> None:
    actor = parse_actor(ActorMessage(tenant_id=1, user_id=ANA).SerializeToString())

    assert actor.device == ANA
    assert parse_actor(actor.to_message().SerializeToString()) == actor


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"", "qim-actor-bin.tenant_id"),
        (b"\xff\xff", "qim-actor-bin"),
        (ActorMessage(user_id=ANA).SerializeToString(), "qim-actor-bin.tenant_id"),
        (ActorMessage(tenant_id=1).SerializeToString(), "qim-actor-bin.user_id"),
        (ActorMessage(tenant_id=1, user_id=b"ana").SerializeToString(), "qim-actor-bin.user_id"),
        (ActorMessage(tenant_id=1, user_id=ANA + b"x").SerializeToString(), "qim-actor-bin.user_id"),
        (ActorMessage(tenant_id=1, user_id=bytes(16)).SerializeToString(), "qim-actor-bin.user_id"),
        (ActorMessage(tenant_id=1, user_id=ANA, device_id=b"p").SerializeToString(), "qim-actor-bin.device_id"),
        (ActorMessage(tenant_id=1, user_id=ANA, device_id=bytes(16)).SerializeToString(), "qim-actor-bin.device_id"),
    ],
)
def test_a_malformed_actor_is_refused_by_field(raw: bytes, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_actor(raw)
    assert refused.value.violations[0].field == field


@pytest.mark.parametrize(
    "principal",
    [
        Principal(PrincipalKind.OPERATOR, "ana", TenantId(1), None),
        Principal(PrincipalKind.BACKEND, "shop", TenantId(7), UserId(ANA)),
        Principal(PrincipalKind.BACKEND, "shop", TenantId(7), None),
    ],
)
def test_a_principal_travels_whole(principal: Principal) -> None:
    assert parse_principal(principal.to_message().SerializeToString()) == principal


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: b"\xff\xff", "qim-principal-bin"),
        (lambda: PrincipalMessage(name="ana", tenant_id=1).SerializeToString(), "qim-principal-bin.kind"),
        (lambda: b"\x08\x63" + PrincipalMessage(name="a", tenant_id=1).SerializeToString(), "qim-principal-bin.kind"),
        (lambda: PrincipalMessage(kind=OPERATOR, tenant_id=1).SerializeToString(), "qim-principal-bin.name"),
        (
            lambda: PrincipalMessage(kind=OPERATOR, name="a" * 129, tenant_id=1).SerializeToString(),
            "qim-principal-bin.name",
        ),
        (lambda: PrincipalMessage(kind=OPERATOR, name="ana").SerializeToString(), "qim-principal-bin.tenant_id"),
        (
            lambda: PrincipalMessage(kind=BACKEND, name="s", tenant_id=1, initiator=b"a").SerializeToString(),
            "qim-principal-bin.initiator",
        ),
        (
            lambda: PrincipalMessage(kind=OPERATOR, name="a", tenant_id=1, initiator=ANA).SerializeToString(),
            "qim-principal-bin.initiator",
        ),
    ],
)
def test_a_malformed_principal_is_refused_by_field(make: Callable[[], bytes], field: str) -> None:
    with pytest.raises(QimError) as refused:
        parse_principal(make())
    assert refused.value.violations[0].field == field

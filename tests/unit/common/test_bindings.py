"""The bindings file (contracts.md, "Identity")."""

from pathlib import Path

import pytest

from qim_common.bindings import Bindings, BindingsDocument, BindingsError, OperatorRole
from qim_common.errors import TenantNotAllowed
from qim_common.identity import Peer, Role

GOOD = """
gateways:
  dev-gateway: {tenants: [1]}
  world: {tenants: ["*"]}
operators:
  ana: {tenants: [1, 18446744073709551615], roles: [viewer, admin]}
backends:
  shop: {tenants: [7]}
"""


def _peer(role: Role, name: str) -> Peer:
    return Peer("qim.local", role, name)


def _bindings(tmp_path: Path, text: str = GOOD) -> tuple[Bindings, Path]:
    path = tmp_path / "bindings.yaml"
    path.write_text(text)
    return Bindings(path, interval=0), path


@pytest.mark.parametrize(
    ("role", "name", "tenant", "allowed"),
    [
        (Role.GATEWAY, "dev-gateway", 1, True),
        (Role.GATEWAY, "dev-gateway", 2, False),
        (Role.GATEWAY, "world", 2**64 - 1, True),
        (Role.GATEWAY, "unknown", 1, False),
        (Role.GATEWAY, "ana", 1, False),
        (Role.OPERATOR, "ana", 1, True),
        (Role.OPERATOR, "ana", 2**64 - 1, True),
        (Role.OPERATOR, "ana", 7, False),
        (Role.BACKEND, "shop", 7, True),
        (Role.BACKEND, "shop", 1, False),
        (Role.SESSION, "session-0", 7, True),
    ],
)
def test_a_peer_acts_only_in_its_tenants(tmp_path: Path, role: Role, name: str, tenant: int, allowed: bool) -> None:
    bindings, _ = _bindings(tmp_path)
    if allowed:
        bindings.require_tenant(_peer(role, name), tenant)
    else:
        with pytest.raises(TenantNotAllowed):
            bindings.require_tenant(_peer(role, name), tenant)


def test_operators_hold_roles_and_others_none(tmp_path: Path) -> None:
    bindings, _ = _bindings(tmp_path)

    assert bindings.operator_roles(_peer(Role.OPERATOR, "ana")) == {OperatorRole.VIEWER, OperatorRole.ADMIN}
    assert bindings.operator_roles(_peer(Role.OPERATOR, "ben")) == frozenset()
    assert bindings.operator_roles(_peer(Role.BACKEND, "ana")) == frozenset()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "mapping"),
        ("- a", "mapping"),
        ("a: [", "not YAML"),
        ("gateway: {}", "gateway"),
        ("gateways: {a: {tenants: 1}}", "gateways.a.tenants"),
        ("gateways: {a: {tenants: [0]}}", "gateways.a.tenants"),
        ("gateways: {a: {tenants: [true]}}", "gateways.a.tenants"),
        ("gateways: {a: {tenants: ['1']}}", "gateways.a.tenants"),
        ("gateways: {a: {tenants: [18446744073709551616]}}", "gateways.a.tenants"),
        ("gateways: {a: {}}", "gateways.a.tenants"),
        ("gateways: {a: {tenants: [1], roles: [admin]}}", "gateways.a.roles"),
        ("gateways: {'a/b': {tenants: [1]}}", "gateways.a/b"),
        ("operators: {a: {tenants: [1]}}", "operators.a.roles"),
        ("operators: {a: {tenants: [1], roles: [root]}}", "operators.a.roles"),
    ],
)
def test_a_bad_document_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(BindingsError, match=place.replace(".", r"\.")):
        BindingsDocument.parse(text)


def test_a_missing_file_is_refused_with_the_variable(tmp_path: Path) -> None:
    with pytest.raises(BindingsError, match="QIM_BINDINGS_FILE"):
        Bindings(tmp_path / "nothing.yaml")


def test_a_change_is_in_force_without_a_restart(tmp_path: Path) -> None:
    bindings, path = _bindings(tmp_path)

    path.write_text("gateways: {dev-gateway: {tenants: [2, 3]}}")

    bindings.require_tenant(_peer(Role.GATEWAY, "dev-gateway"), 3)
    with pytest.raises(TenantNotAllowed):
        bindings.require_tenant(_peer(Role.GATEWAY, "dev-gateway"), 1)


def test_a_bad_change_keeps_the_old_bindings_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bindings, path = _bindings(tmp_path)

    path.write_text("gateways: {dev-gateway: {tenants: [0]}}")

    bindings.require_tenant(_peer(Role.GATEWAY, "dev-gateway"), 1)
    bindings.require_tenant(_peer(Role.GATEWAY, "dev-gateway"), 1)
    assert [record.message for record in caplog.records] == ["bindings file not taken, keeping the old one"]

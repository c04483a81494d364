"""The development certificates: who is named, who signs, and what is kept across restarts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from qim_common.identity import Role
from qim_devkit.pki import LEAF_LIFETIME, LEAF_RENEWAL, Authority, CertFiles, DevPki

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def names(files: CertFiles) -> x509.SubjectAlternativeName:
    return certificate(files.cert).extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def uris(files: CertFiles) -> list[str]:
    return names(files).get_values_for_type(x509.UniformResourceIdentifier)


def issued_by(files: CertFiles, ca: Path) -> bool:
    try:
        certificate(files.cert).verify_directly_issued_by(certificate(ca))
    except (InvalidSignature, ValueError):
        return False
    return True


def test_a_leaf_names_its_peer_and_serves_both_sides(tmp_path: Path) -> None:
    files = DevPki(tmp_path).issue(Role.WRITER, "writer-0")
    leaf = certificate(files.cert)
    assert uris(files) == ["spiffe://qim.local/qim/writer/writer-0"]
    assert names(files).get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(ip) for ip in names(files).get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    key = leaf.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc == LEAF_LIFETIME


def test_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    pki = DevPki(tmp_path / "pki")
    pki.issue(Role.GATEWAY, "dev")
    modes = {path.name: path.stat().st_mode & 0o777 for path in pki.directory.iterdir()}
    assert set(modes.values()) == {0o600}
    assert pki.directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("role", "by_services", "by_operators"),
    [
        (Role.GATEWAY, True, False),
        (Role.WRITER, True, False),
        (Role.SESSION, True, False),
        (Role.ADMIN, True, False),
        (Role.OPERATOR, False, True),
        (Role.BACKEND, False, True),
    ],
)
def test_two_authorities_share_the_roles(tmp_path: Path, role: Role, by_services: bool, by_operators: bool) -> None:
    pki = DevPki(tmp_path)
    files = pki.issue(role, "someone")
    assert issued_by(files, pki.services_ca) is by_services
    assert issued_by(files, pki.operators_ca) is by_operators
    assert files.ca == pki.services_ca, "servers are verified by the services' authority, whoever calls"


def test_a_restart_keeps_every_identity(tmp_path: Path) -> None:
    first = DevPki(tmp_path)
    before = {path: path.read_bytes() for path in (first.issue(Role.ADMIN, "admin-0").cert, first.operators_ca)}
    second = DevPki(tmp_path)
    second.issue(Role.ADMIN, "admin-0")
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("age", "kept"),
    [
        (timedelta(days=1), True),
        (LEAF_LIFETIME - LEAF_RENEWAL - timedelta(hours=1), True),
        (LEAF_LIFETIME - LEAF_RENEWAL, False),
        (LEAF_LIFETIME + timedelta(days=1), False),
    ],
)
def test_a_leaf_is_renewed_in_its_last_week(tmp_path: Path, age: timedelta, kept: bool) -> None:
    before = DevPki(tmp_path, clock=lambda: NOW).issue(Role.SESSION, "session-0").cert.read_bytes()
    after = DevPki(tmp_path, clock=lambda: NOW + age).issue(Role.SESSION, "session-0").cert.read_bytes()
    assert (before == after) is kept


def test_a_new_authority_signs_its_leaves_anew(tmp_path: Path) -> None:
    first = DevPki(tmp_path)
    first.issue(Role.WRITER, "writer-0")
    first.services_ca.unlink()
    second = DevPki(tmp_path)
    assert issued_by(second.issue(Role.WRITER, "writer-0"), second.services_ca)


@pytest.mark.parametrize("damage", [b"", b"not a certificate", None])
def test_a_damaged_or_missing_file_is_made_anew(tmp_path: Path, damage: bytes | None) -> None:
    files = DevPki(tmp_path).issue(Role.WRITER, "writer-0")
    for path in (files.cert, files.key):
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage)
        assert DevPki(tmp_path).issue(Role.WRITER, "writer-0") == files
        assert uris(files) == ["spiffe://qim.local/qim/writer/writer-0"]
        assert b"PRIVATE KEY" in files.key.read_bytes()


def test_other_addresses_make_another_certificate(tmp_path: Path) -> None:
    pki = DevPki(tmp_path)
    pki.issue(Role.WRITER, "writer-0")
    files = pki.issue(Role.WRITER, "writer-0", dns=("writer.example",), ips=())
    assert names(files).get_values_for_type(x509.DNSName) == ["writer.example"]
    pki.issue(Role.WRITER, "nameless", uris=(), dns=(), ips=())
    files = pki.issue(Role.WRITER, "nameless", uris=())
    assert names(files).get_values_for_type(x509.DNSName) == ["localhost"]


def test_odd_certificates_for_tests_leave_the_good_one_alone(tmp_path: Path) -> None:
    pki = DevPki(tmp_path)
    good = pki.issue(Role.GATEWAY, "dev")
    before = good.cert.read_bytes()
    two = pki.issue(Role.GATEWAY, "dev", uris=(pki.spiffe_id("gateway", "dev"), pki.spiffe_id("admin", "x")))
    none = pki.issue(Role.GATEWAY, "dev", uris=())
    expired = pki.issue(Role.GATEWAY, "dev", expired=True)
    foreign = pki.issue(Role.GATEWAY, "dev", authority=Authority.FOREIGN)
    assert len(uris(two)) == 2
    assert uris(none) == []
    assert certificate(expired.cert).not_valid_after_utc < datetime.now(UTC)
    assert not issued_by(foreign, pki.services_ca)
    assert not issued_by(foreign, pki.operators_ca)
    assert good.cert.read_bytes() == before


@pytest.mark.parametrize(
    ("role", "name"),
    [("root", "x"), ("", "x"), ("writer", ""), ("writer", "../x"), ("writer", "a/b"), ("writer", "a" * 129)],
)
def test_a_role_or_name_that_is_none_is_refused(tmp_path: Path, role: str, name: str) -> None:
    with pytest.raises(ValueError, match=r"role|name"):
        DevPki(tmp_path).issue(role, name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("domain", ["", "UPPER", "a/b", "a" * 256])
def test_a_trust_domain_that_is_none_is_refused(tmp_path: Path, domain: str) -> None:
    with pytest.raises(ValueError, match="trust domain"):
        DevPki(tmp_path, domain)

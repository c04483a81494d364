"""Local certificate authorities: mTLS holds in development too (contracts.md, "Identity").

There are two: one for services and gateways, and one for operators and back ends, which only the admin service trusts.
Everybody verifies servers with the first. A leaf's one URI SAN names the peer,
`spiffe://<trust-domain>/qim/<role>/<name>`; it is valid for 30 days, for servers and clients alike.

Nothing is made anew while it is still good, so a restart keeps every identity.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from qim_client.config import TlsFiles
from qim_common.identity import Role

LEAF_LIFETIME: Final = timedelta(days=30)
LEAF_RENEWAL: Final = timedelta(days=7)
CA_LIFETIME: Final = timedelta(days=3650)
CA_RENEWAL: Final = timedelta(days=60)
# Machines that share a directory may have clocks that differ a little.
BACKDATE: Final = timedelta(minutes=5)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TRUST_DOMAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,254}")


class Authority(StrEnum):
    """Which certificate authority signs: FOREIGN is trusted by nobody and serves tests."""

    SERVICES = "services"
    OPERATORS = "operators"
    FOREIGN = "foreign"


AUTHORITY_OF_ROLE: Final = {
    Role.GATEWAY: Authority.SERVICES,
    Role.WRITER: Authority.SERVICES,
    Role.SESSION: Authority.SERVICES,
    Role.ADMIN: Authority.SERVICES,
    Role.OPERATOR: Authority.OPERATORS,
    Role.BACKEND: Authority.OPERATORS,
}
"""The six roles of contracts.md, "Identity", and who signs their certificates."""


CertFiles: TypeAlias = TlsFiles
"""PEM files of one identity: certificate, key (mode 0600), and the CA that verifies the servers it calls."""


@dataclass(frozen=True, slots=True)
class _Pair:
    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey


class DevPki:
    """The authorities and leaves in one directory, made on first use.

    Args:
        directory: created with mode 0700.
        trust_domain: of the SPIFFE ids; lower-case letters, digits, `.`, `_` and `-`.
        clock: for tests; the current time in UTC.

    Raises:
        ValueError: the trust domain is not one.
    """

    def __init__(
        self,
        directory: Path,
        trust_domain: str = "qim.local",
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if not _TRUST_DOMAIN.fullmatch(trust_domain):
            raise ValueError(f"trust domain {trust_domain!r}: lower-case letters, digits, '.', '_' and '-' only")
        self.directory = directory
        self.trust_domain = trust_domain
        self._clock = clock

    @property
    def services_ca(self) -> Path:
        """The PEM file that every service trusts, and every client for its servers."""
        return self._authority_file(Authority.SERVICES)

    @property
    def operators_ca(self) -> Path:
        """The PEM file that only the admin service trusts, besides `services_ca`."""
        return self._authority_file(Authority.OPERATORS)

    def spiffe_id(self, role: str, name: str) -> str:
        """The URI SAN of this role (a Role) and name. Raises ValueError for anything else."""
        if role not in AUTHORITY_OF_ROLE:
            raise ValueError(f"role {role!r}: one of {', '.join(Role)}")
        if not _NAME.fullmatch(name):
            raise ValueError(f"name {name!r}: 1 to 128 letters, digits, '.', '_' and '-', the first a letter or digit")
        return f"spiffe://{self.trust_domain}/qim/{role}/{name}"

    def issue(
        self,
        role: str,
        name: str,
        *,
        dns: Sequence[str] = ("localhost",),
        ips: Sequence[str] = ("127.0.0.1",),
        uris: Sequence[str] | None = None,
        authority: Authority | None = None,
        expired: bool = False,
    ) -> CertFiles:
        """The certificate of this identity: the present one if it fits and is good for another week, else a new one.

        Args:
            role: a Role.
            name: the peer's name.
            dns: DNS SANs, for servers.
            ips: IP SANs, for servers.
            uris: URI SANs instead of the one SPIFFE id; tests pass none or two.
            authority: signs instead of the role's own; tests pass FOREIGN.
            expired: make one that ended yesterday; for tests. Such variants have files of their own.

        Raises:
            ValueError: the role or the name is not one.
        """
        spiffe_id = self.spiffe_id(role, name)
        authority = authority or AUTHORITY_OF_ROLE[Role(role)]
        wanted = [
            *(x509.UniformResourceIdentifier(uri) for uri in ([spiffe_id] if uris is None else uris)),
            *(x509.DNSName(entry) for entry in dns),
            *(x509.IPAddress(ipaddress.ip_address(entry)) for entry in ips),
        ]
        stem = f"{role}-{name}{_variant(role, uris, authority, expired=expired)}"
        files = CertFiles(self.directory / f"{stem}.crt", self.directory / f"{stem}.key", self.services_ca)
        ca = self._authority(authority)
        present = _load(files.cert, files.key)
        if expired or present is None or not self._fits(present, ca, wanted):
            begin = self._clock() - (LEAF_LIFETIME + timedelta(days=1) if expired else BACKDATE)
            _store(files.cert, files.key, _leaf(ca, f"{role}/{name}", wanted, begin, begin + LEAF_LIFETIME))
        return files

    def _fits(self, present: _Pair, ca: _Pair, wanted: Sequence[x509.GeneralName]) -> bool:
        try:
            present.cert.verify_directly_issued_by(ca.cert)
            names = list(present.cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        except (InvalidSignature, ValueError):
            return False
        except x509.ExtensionNotFound:
            names = []
        return names == list(wanted) and present.cert.not_valid_after_utc - self._clock() > LEAF_RENEWAL

    def _authority_file(self, authority: Authority) -> Path:
        self._authority(authority)
        return self.directory / f"{authority}-ca.crt"

    def _authority(self, authority: Authority) -> _Pair:
        cert, key = self.directory / f"{authority}-ca.crt", self.directory / f"{authority}-ca.key"
        present = _load(cert, key)
        if present is None or present.cert.not_valid_after_utc - self._clock() <= CA_RENEWAL:
            begin = self._clock() - BACKDATE
            present = _root(f"qim {authority} CA ({self.trust_domain})", begin, begin + CA_LIFETIME)
            _store(cert, key, present)
        return present


def _variant(role: str, uris: Sequence[str] | None, authority: Authority, *, expired: bool) -> str:
    """A file name suffix, so that a test's odd certificate never replaces the good one of the same identity."""
    parts = []
    if uris is not None:
        parts.append("uris-" + hashlib.sha256("\n".join(uris).encode()).hexdigest()[:8])
    if authority is not AUTHORITY_OF_ROLE[Role(role)]:
        parts.append(str(authority))
    if expired:
        parts.append("expired")
    return "".join(f".{part}" for part in parts)


def _builder(subject: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(subject))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _root(subject: str, begin: datetime, end: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(subject, _common_name(subject), key.public_key()).not_valid_before(begin).not_valid_after(end)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(ca=True), critical=True)
    return _Pair(builder.sign(key, hashes.SHA256()), key)


def _leaf(ca: _Pair, subject: str, names: Sequence[x509.GeneralName], begin: datetime, end: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer_key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key())
    builder = _builder(subject, ca.cert.subject, key.public_key()).not_valid_before(begin).not_valid_after(end)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(ca=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(issuer_key_id, critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _Pair(builder.sign(ca.key, hashes.SHA256()), key)


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(text: str) -> x509.Name:
    # X.520 allows 64 characters; the identity is the URI SAN, this is for people who read the certificate.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _load(cert: Path, key: Path) -> _Pair | None:
    """The pair in these files, or None where a file is missing, damaged, or not of the other's key."""
    try:
        certificate = x509.load_pem_x509_certificate(cert.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        return None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or certificate.public_key() != private.public_key():
        return None
    return _Pair(certificate, private)


def _store(cert: Path, key: Path, pair: _Pair) -> None:
    cert.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    pem = pair.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _replace(key, pem)
    _replace(cert, pair.cert.public_bytes(serialization.Encoding.PEM))


def _replace(path: Path, content: bytes) -> None:
    """Writes with mode 0600 and renames, so that a reader meets the old file or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)

"""TLS material in files: read, checked, and followed over changes. Used by both ends of a connection."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from qim_common.start import StartRefusedError
from qim_common.telemetry.metrics import reload_metrics
from qim_common.watched_files import WatchedFiles

_log = logging.getLogger(__name__)


class CertificateError(StartRefusedError):
    """Certificate files that cannot be taken; the message names them and how to mend them."""


@dataclass(frozen=True, slots=True)
class PemFiles:
    """PEM files of one end: its chain, its key, and the CAs whose certificates it accepts from the other end."""

    cert: Path
    key: Path
    cas: tuple[Path, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files, in the order that `TlsMaterial.parse` takes them."""
        return (self.cert, self.key, *self.cas)


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """The content of `PemFiles`, checked: the key fits the certificate and every CA file holds certificates."""

    cert: bytes
    key: bytes
    roots: bytes

    @classmethod
    def parse(cls, files: PemFiles, content: Sequence[bytes]) -> "TlsMaterial":
        """Raises CertificateError; gRPC itself would take a key of another certificate and fail every handshake."""
        cert, key, *cas = content
        leaf = _certificates(files.cert, cert)[0]
        try:
            private = load_pem_private_key(key, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise CertificateError(f"{files.key}: no unencrypted PEM private key") from None
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        if private.public_key().public_bytes(*form) != leaf.public_key().public_bytes(*form):
            raise CertificateError(f"{files.key}: is not the key of {files.cert}; write both together")
        for path, ca in zip(files.cas, cas, strict=True):
            _certificates(path, ca)
        return cls(cert=cert, key=key, roots=b"\n".join(cas))


class WatchedTls:
    """The material of some TLS files, followed over changes. Bad files leave the material as it was.

    Parameters:
        what: `server_certificate` or `client_certificate`, for the log and `qim_reloads_total`.
        interval: seconds between two looks at the files.

    Raises CertificateError if the files cannot be read or taken at first.
    """

    def __init__(self, files: PemFiles, *, what: str, interval: float = 1.0) -> None:
        self._files = files
        self._what = what
        self._watched = WatchedFiles(files.paths, interval=interval)
        try:
            content = self._watched.read()
        except OSError as error:
            raise CertificateError(f"{error.filename}: cannot be read ({error.strerror})") from None
        self.material = TlsMaterial.parse(files, content)

    def poll(self) -> TlsMaterial | None:
        """The new material if it changed since the last call."""
        content = self._watched.poll()
        if content is None:
            return None
        try:
            self.material = TlsMaterial.parse(self._files, content)
        except CertificateError as error:
            reload_metrics().count(self._what, ok=False)
            _log.error("certificate not taken, keeping the old one", extra={"what": self._what, "error": str(error)})
            return None
        reload_metrics().count(self._what, ok=True)
        _log.info("certificate reloaded", extra={"what": self._what, "file": str(self._files.cert)})
        return self.material


def _certificates(path: Path, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise CertificateError(f"{path}: no PEM certificate") from None

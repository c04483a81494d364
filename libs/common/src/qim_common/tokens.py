"""Page and resume tokens: opaque to callers, bound to who got them and for what (contracts.md, "Services").

A token is base64url(version u8 || mac 32 || payload); the MAC is HMAC-SHA256 over method, tenant, person, conversation
and payload, each with its length before it. The key file has one or two lines of hexadecimal keys of at least 32
bytes: the first signs, both verify, so a rotation adds the new key above the old one and later drops the old.
"""

import base64
import binascii
import hashlib
import hmac
import logging
import struct
from pathlib import Path
from typing import Final

from qim_common.errors import PageTokenInvalid
from qim_common.start import StartRefusedError
from qim_common.telemetry.metrics import reload_metrics
from qim_common.watched_files import WatchedFiles

_log = logging.getLogger(__name__)

KEY_BYTES_MIN: Final = 32
KEYS_MAX: Final = 2
TOKEN_CHARS_MAX: Final = 2048
_VERSION: Final = 1
_MAC_BYTES: Final = 32


class TokenKeyError(StartRefusedError):
    """The key file cannot be taken; the message says how to mend it and never repeats a key."""


def parse_keys(content: bytes, origin: str = "token key file") -> tuple[bytes, ...]:
    """The keys in a key file: one or two lines of at least 64 hexadecimal digits. Raises TokenKeyError."""
    lines = [line.strip() for line in content.decode("ascii", errors="replace").splitlines() if line.strip()]
    if not 1 <= len(lines) <= KEYS_MAX:
        raise TokenKeyError(f"{origin}: has {len(lines)} lines; write one key, or two while rotating")
    keys = []
    for number, line in enumerate(lines, start=1):
        try:
            key = bytes.fromhex(line)
        except ValueError:
            raise TokenKeyError(f"{origin}: line {number} is not hexadecimal; use `openssl rand -hex 32`") from None
        if len(key) < KEY_BYTES_MIN:
            raise TokenKeyError(f"{origin}: line {number} is shorter than {KEY_BYTES_MIN} bytes")
        keys.append(key)
    return tuple(keys)


class TokenSigner:
    """Issues and opens tokens. Rereads its key file when that changes; a bad file leaves the keys as they were."""

    def __init__(self, path: Path, *, interval: float = 1.0) -> None:
        """Raises TokenKeyError when the file cannot be read or taken."""
        self._files = WatchedFiles([path], interval=interval)
        try:
            (content,) = self._files.read()
        except OSError as error:
            raise TokenKeyError(f"{path}: cannot be read ({error.strerror}); set QIM_TOKEN_KEY_FILE") from None
        self._path = path
        self._keys = parse_keys(content, str(path))

    def issue(self, method: str, tenant: int, person: bytes, conversation: bytes, payload: bytes) -> str:
        """A token for this call of this person; `conversation` is empty where the call has none."""
        bound = _bound(method, tenant, person, conversation, payload)
        mac = hmac.digest(self._current()[0], bound, hashlib.sha256)
        raw = bytes((_VERSION,)) + mac + payload
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")

    def open(self, method: str, tenant: int, person: bytes, conversation: bytes, token: str) -> bytes:
        """The payload of a token that was issued for exactly this call; raises PageTokenInvalid otherwise."""
        raw = _decode(token)
        if len(raw) < 1 + _MAC_BYTES or raw[0] != _VERSION:
            raise PageTokenInvalid
        mac, payload = raw[1 : 1 + _MAC_BYTES], raw[1 + _MAC_BYTES :]
        bound = _bound(method, tenant, person, conversation, payload)
        for key in self._current():
            if hmac.compare_digest(mac, hmac.digest(key, bound, hashlib.sha256)):
                return payload
        raise PageTokenInvalid

    def _current(self) -> tuple[bytes, ...]:
        changed = self._files.poll()
        if changed is not None:
            try:
                self._keys = parse_keys(changed[0], str(self._path))
            except TokenKeyError as error:
                reload_metrics().count("token_keys", ok=False)
                _log.error("token keys not taken, keeping the old ones", extra={"error": str(error)})
            else:
                reload_metrics().count("token_keys", ok=True)
                _log.info("token keys reloaded", extra={"keys": len(self._keys)})
        return self._keys


def _bound(method: str, tenant: int, person: bytes, conversation: bytes, payload: bytes) -> bytes:
    parts = (method.encode(), struct.pack(">Q", tenant), person, conversation, payload)
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


def _decode(token: str) -> bytes:
    if not token or len(token) > TOKEN_CHARS_MAX or not token.isascii():
        raise PageTokenInvalid
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise PageTokenInvalid from None
    # One spelling only: the last character's spare bits must be what `issue` writes.
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii") != token:
        raise PageTokenInvalid
    return raw

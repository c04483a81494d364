"""What a webhook receives: JSON, and a signature over it (docs/push.md has the schema). Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import Sequence
from typing import Any, Final

from qim_common.ids import ConversationKind, kind_of
from qim_session.domain.push import Notification

SCHEMA: Final = 1
SIGNATURE_HEADER: Final = "qim-signature"
_NOBODY: Final = bytes(16)


def encode(batch: Sequence[Notification]) -> bytes:
    """The body of one request."""
    document = {"schema": SCHEMA, "notifications": list(map(_document, batch))}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def sign(secrets: Sequence[bytes], time_s: int, body: bytes) -> str:
    """The header's value: `t=<seconds>,v1=<hex>`, with one `v1` for each secret.

    `v1` is HMAC-SHA256 under the secret over the seconds as decimal digits, a full stop, and the body.
    """
    signed = b"%d." % time_s + body
    digests = (hmac.digest(secret, signed, hashlib.sha256).hex() for secret in secrets)
    return ",".join([f"t={time_s}", *(f"v1={digest}" for digest in digests)])


def _document(notification: Notification) -> dict[str, Any]:
    message = notification.message
    document = {
        "id": notification.id,
        # As text, because JSON's numbers lose the last digits of 64 bits.
        "tenant": str(notification.tenant),
        "recipient": None if notification.recipient is None else _uuid(notification.recipient),
        "conversation": _uuid(notification.conversation),
        "kind": "direct" if kind_of(notification.conversation) is ConversationKind.DIRECT else "group",
        "generation": message.generation,
        "seq": message.seq,
        "time_ms": message.time_ms,
        "sender": None if message.sender == _NOBODY else _uuid(message.sender),
        "custom_type": message.custom_type,
        "count": notification.count,
        "unread": notification.unread,
        "muted": notification.muted,
        "hidden": notification.hidden,
    }
    if notification.body is not None:
        document["body"] = base64.b64encode(notification.body).decode("ascii")
        document["body_truncated"] = len(notification.body) < message.size
    return document


def _uuid(value: bytes) -> str:
    return str(uuid.UUID(bytes=value))

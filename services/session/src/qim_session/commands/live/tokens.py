"""Resume tokens as callers hold them: signed, for one device of one person."""

from __future__ import annotations

import struct
from typing import Final, Protocol

from qim_common.errors import PageTokenInvalid
from qim_common.identity import Actor
from qim_session.domain.resume import ResumePoint

_METHOD: Final = "Subscribe"


class Signer(Protocol):
    """Issues and opens tokens (qim_common.tokens)."""

    def issue(self, method: str, tenant: int, person: bytes, conversation: bytes, payload: bytes) -> str:
        """A token for this call of this person."""
        ...

    def open(self, method: str, tenant: int, person: bytes, conversation: bytes, token: str) -> bytes:
        """The payload of a token; raises PageTokenInvalid."""
        ...


class ResumeTokens:
    """Makes and reads the resume tokens of Subscribe."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def issue(self, actor: Actor, time_ms: int, logs: int) -> str:
        """A token with which the device goes on from this moment of these logs (`LiveTails.identity`)."""
        point = ResumePoint(actor.device, time_ms, logs)
        return self._signer.issue(_METHOD, actor.tenant, actor.user, b"", point.pack())

    def open(self, actor: Actor, token: str) -> tuple[int, int]:
        """The moment (ms) of a token, and of which logs. Raises PageTokenInvalid for one of another device or key."""
        payload = self._signer.open(_METHOD, actor.tenant, actor.user, b"", token)
        try:
            point = ResumePoint.unpack(payload)
        except (struct.error, ValueError):
            raise PageTokenInvalid from None
        if point.device != actor.device:
            raise PageTokenInvalid
        return point.time_ms, point.logs

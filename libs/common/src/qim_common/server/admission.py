"""Whether a call may be served, and as whom: peer, role table, deadline, actor or principal, tenant.

Pure but for the clock: what the transport knows goes in, a `CallContext` comes out, or the named refusal.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from qim_common.bindings import Bindings
from qim_common.calls import CallContext, StreamLife
from qim_common.errors import (
    DeadlineRequired,
    InternalIdentityRequired,
    InvalidArgument,
    RoleNotAllowed,
)
from qim_common.identity import (
    ACTOR_KEY,
    PRINCIPAL_KEY,
    Actor,
    Peer,
    Principal,
    parse_actor,
    parse_principal,
    peer_from_auth_context,
)
from qim_common.roles import ADMIN_CHANGE_MEMBERS, CallerKind, caller_kind

Metadata = Iterable[tuple[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class CallShape:
    """A method as the server registered it."""

    method: str
    request_streaming: bool
    response_streaming: bool

    @property
    def unary(self) -> bool:
        """One request and one answer: such a call needs a deadline."""
        return not self.request_streaming and not self.response_streaming


class Admission:
    """The checks that every call passes before its handler runs.

    Parameters:
        bindings: who may act in which tenants.
        trust_domain: certificates of another one are refused.
        stream_max_age: seconds after which streams of requests stop reading.
        draining: set when the server drains; streams of requests stop reading then too.
    """

    def __init__(
        self, *, bindings: Bindings, trust_domain: str, stream_max_age: float, draining: asyncio.Event
    ) -> None:
        self._bindings = bindings
        self._trust_domain = trust_domain
        self._stream_max_age = stream_max_age
        self._draining = draining

    def admit(
        self,
        shape: CallShape,
        *,
        auth_context: Mapping[str, Iterable[bytes]],
        metadata: Metadata,
        time_remaining: float | None,
        request_id: str,
    ) -> CallContext:
        """The context of a call that may be served.

        Raises:
            RoleNotAllowed: no usable certificate name, a foreign trust domain, a role or an asserted identity that
                the table does not take.
            InternalIdentityRequired: a call for principals without an admin certificate and a sound principal.
            DeadlineRequired: a unary call without a deadline.
            InvalidArgument: the actor is missing, sent twice, or malformed.
            TenantNotAllowed: the gateway is not bound to the actor's tenant.
        """
        actor_raw: list[str | bytes] = []
        principal_raw: list[str | bytes] = []
        for key, value in metadata:
            if key == ACTOR_KEY:
                actor_raw.append(value)
            elif key == PRINCIPAL_KEY:
                principal_raw.append(value)
        peer = self._peer(shape.method, auth_context)
        kind = caller_kind(shape.method, peer, has_actor=bool(actor_raw), has_principal=bool(principal_raw))
        if time_remaining is None and shape.unary:
            raise DeadlineRequired
        now = time.monotonic()
        return CallContext(
            method=shape.method,
            peer=peer,
            actor=self._actor(peer, actor_raw) if kind is CallerKind.ACTOR else None,
            principal=_principal(principal_raw) if kind is CallerKind.PRINCIPAL else None,
            request_id=request_id,
            deadline=None if time_remaining is None else now + time_remaining,
            stream=StreamLife(ends_at=now + self._stream_max_age, draining=self._draining)
            if shape.request_streaming
            else None,
        )

    def _peer(self, method: str, auth_context: Mapping[str, Iterable[bytes]]) -> Peer:
        try:
            peer = peer_from_auth_context(auth_context)
            if peer.trust_domain != self._trust_domain:
                raise RoleNotAllowed(message="the certificate is of another trust domain; see QIM_TRUST_DOMAIN")
        except RoleNotAllowed:
            if method == ADMIN_CHANGE_MEMBERS:
                raise InternalIdentityRequired from None
            raise
        return peer

    def _actor(self, peer: Peer, values: list[str | bytes]) -> Actor:
        if not values:
            raise InvalidArgument(ACTOR_KEY, "is required: send the end user for whom the call is made")
        actor = parse_actor(_once(ACTOR_KEY, values))
        self._bindings.require_tenant(peer, actor.tenant)
        return actor


def _principal(values: list[str | bytes]) -> Principal:
    # Whatever is wrong with a principal, the answer is the boundary's own (contracts.md, "Identity").
    try:
        return parse_principal(_once(PRINCIPAL_KEY, values))
    except InvalidArgument as error:
        raise InternalIdentityRequired(message=f"the principal cannot be taken: {error.message}") from None


def _once(key: str, values: list[str | bytes]) -> bytes:
    if len(values) != 1:
        raise InvalidArgument(key, "must be sent once")
    (value,) = values
    return value if isinstance(value, bytes) else value.encode()


__all__: Final = ["Admission", "CallShape"]

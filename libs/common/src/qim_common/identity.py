"""Who calls: the peer (a certificate), the end user it acts for, the operator it acts for (contracts.md, "Identity").

Everything here is pure: bytes from the transport in, frozen values out, a `QimError` for whatever cannot be taken.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from google.protobuf.message import DecodeError

from qim.common.v1 import identity_pb2
from qim_common.errors import InvalidArgument, RoleNotAllowed
from qim_common.ids import DeviceId, TenantId, UserId, parse_id, parse_tenant

ACTOR_KEY: Final = "qim-actor-bin"
"""Metadata key of a serialized `qim.common.v1.AuthenticatedActor`, from a gateway only."""

PRINCIPAL_KEY: Final = "qim-principal-bin"
"""Metadata key of a serialized `qim.common.v1.InternalPrincipal`, from the admin service only."""

SPIFFE_KEY: Final = "peer_spiffe_id"
"""Key of the auth context; gRPC sets it only for a certificate with exactly one URI SAN that is a SPIFFE id."""

_SPIFFE_MAX: Final = 2048
_SPIFFE: Final = re.compile(r"spiffe://([a-z0-9._-]{1,255})/qim/([a-z]+)/([A-Za-z0-9._-]{1,128})")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Role(StrEnum):
    """What a certificate is for: the path segment after `/qim/`."""

    GATEWAY = "gateway"
    BACKEND = "backend"
    WRITER = "writer"
    SESSION = "session"
    ADMIN = "admin"
    OPERATOR = "operator"


class PrincipalKind(StrEnum):
    """Whom the admin service acts for."""

    OPERATOR = "operator"
    BACKEND = "backend"


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection, as its certificate names it. `name` is 1 to 128 of `[A-Za-z0-9._-]`."""

    trust_domain: str
    role: Role
    name: str

    def __str__(self) -> str:
        return f"spiffe://{self.trust_domain}/qim/{self.role}/{self.name}"


@dataclass(frozen=True, slots=True)
class Actor:
    """An end user, asserted by the gateway that authenticated them. Ids are 16 bytes, `device` is never empty."""

    tenant: TenantId
    user: UserId
    device: DeviceId

    def to_message(self) -> identity_pb2.AuthenticatedActor:
        """The wire form, for `qim-actor-bin` and for frames."""
        return identity_pb2.AuthenticatedActor(tenant_id=self.tenant, user_id=self.user, device_id=self.device)


@dataclass(frozen=True, slots=True)
class Principal:
    """The operator or back end for whom the admin service acts, and the end user whom a back end names, if any."""

    kind: PrincipalKind
    name: str
    tenant: TenantId
    initiator: UserId | None

    def to_message(self) -> identity_pb2.InternalPrincipal:
        """The wire form, for `qim-principal-bin`."""
        return identity_pb2.InternalPrincipal(
            kind=_KIND_TO_WIRE[self.kind], name=self.name, tenant_id=self.tenant, initiator=self.initiator or b""
        )


_KIND_TO_WIRE: Final = {
    PrincipalKind.OPERATOR: identity_pb2.InternalPrincipal.KIND_OPERATOR,
    PrincipalKind.BACKEND: identity_pb2.InternalPrincipal.KIND_BACKEND,
}
_KIND_FROM_WIRE: Final = {wire: kind for kind, wire in _KIND_TO_WIRE.items()}


@lru_cache(maxsize=1024)
def parse_spiffe(uri: str) -> Peer:
    """The peer named by `spiffe://<trust-domain>/qim/<role>/<name>`; raises RoleNotAllowed for anything else."""
    match = _SPIFFE.fullmatch(uri) if len(uri) <= _SPIFFE_MAX else None
    if match is None or match[2] not in _ROLES or match[3] in {".", ".."}:
        raise RoleNotAllowed(
            message="the certificate names no peer of qim; its one URI SAN has to be "
            "spiffe://<trust-domain>/qim/<role>/<name>"
        )
    return Peer(match[1], Role(match[2]), match[3])


_ROLES: Final = frozenset(role.value for role in Role)


def peer_from_auth_context(auth_context: Mapping[str, Iterable[bytes]]) -> Peer:
    """The peer of a call; raises RoleNotAllowed where the certificate has no URI SAN, two of them, or a foreign one."""
    values = tuple(auth_context.get(SPIFFE_KEY, ()))
    if len(values) != 1:
        raise RoleNotAllowed(
            message="the certificate has not exactly one URI SAN; issue it with "
            "spiffe://<trust-domain>/qim/<role>/<name> and no other"
        )
    return parse_spiffe(values[0].decode("ascii", errors="replace"))


def actor_from_message(message: identity_pb2.AuthenticatedActor, field: str = ACTOR_KEY) -> Actor:
    """A checked actor; raises InvalidArgument naming the part of `field` at fault. An empty device is the user's id."""
    tenant = parse_tenant(message.tenant_id, f"{field}.tenant_id")
    user = UserId(parse_id(message.user_id, f"{field}.user_id"))
    device = parse_id(message.device_id, f"{field}.device_id") if message.device_id else user
    return Actor(tenant, user, DeviceId(device))


@lru_cache(maxsize=8192)
def parse_actor(raw: bytes) -> Actor:
    """The actor in the metadata `qim-actor-bin`; raises InvalidArgument."""
    try:
        message = identity_pb2.AuthenticatedActor.FromString(raw)
    except DecodeError:
        raise InvalidArgument(ACTOR_KEY, "is not a serialized qim.common.v1.AuthenticatedActor") from None
    return actor_from_message(message)


def parse_principal(raw: bytes) -> Principal:
    """The principal in the metadata `qim-principal-bin`; raises InvalidArgument."""
    try:
        message = identity_pb2.InternalPrincipal.FromString(raw)
    except DecodeError:
        raise InvalidArgument(PRINCIPAL_KEY, "is not a serialized qim.common.v1.InternalPrincipal") from None
    kind = _KIND_FROM_WIRE.get(message.kind)
    if kind is None:
        raise InvalidArgument(f"{PRINCIPAL_KEY}.kind", "must be OPERATOR or BACKEND")
    if _NAME.fullmatch(message.name) is None:
        raise InvalidArgument(f"{PRINCIPAL_KEY}.name", "must be a certificate's name: 1 to 128 of A-Z, a-z, 0-9, '._-'")
    tenant = parse_tenant(message.tenant_id, f"{PRINCIPAL_KEY}.tenant_id")
    initiator = None
    if message.initiator:
        if kind is not PrincipalKind.BACKEND:
            raise InvalidArgument(f"{PRINCIPAL_KEY}.initiator", "may be named by a back end only")
        initiator = UserId(parse_id(message.initiator, f"{PRINCIPAL_KEY}.initiator"))
    return Principal(kind, message.name, tenant, initiator)

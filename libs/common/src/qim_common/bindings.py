"""Which certificate name may act in which tenants, and which operator holds which roles: `QIM_BINDINGS_FILE`.

    gateways:  {dev-gateway: {tenants: [1]}}
    operators: {ana: {tenants: ["*"], roles: [admin]}}
    backends:  {shop: {tenants: [1, 7]}}

A name that the file does not know has no tenants. The file is read again when its content changes; a file that cannot
be taken leaves the bindings as they were, and the log and `qim_reloads_total` say so.
"""

import logging
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Annotated, Final, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError, field_validator

from qim_common.errors import TenantNotAllowed
from qim_common.identity import Peer, Role
from qim_common.ids import MAX_TENANT
from qim_common.start import StartRefusedError
from qim_common.telemetry.metrics import reload_metrics
from qim_common.watched_files import WatchedFiles

_log = logging.getLogger(__name__)

ALL_TENANTS: Final = "*"


class BindingsError(StartRefusedError):
    """The bindings file cannot be taken; the message names the place and how to mend it."""


class OperatorRole(StrEnum):
    """What an operator may do, from least to most."""

    VIEWER = "viewer"
    MODERATOR = "moderator"
    ADMIN = "admin"


_Tenant = Annotated[StrictInt, Field(ge=1, le=MAX_TENANT)] | Literal["*"]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,128}$")]


class Binding(BaseModel):
    """What one certificate name may do. `tenants` holds numbers from 1 to 2^64-1, or "*" for all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenants: frozenset[_Tenant]

    def allows(self, tenant: int) -> bool:
        """Whether this name may act in `tenant`."""
        return tenant in self.tenants or ALL_TENANTS in self.tenants


class OperatorBinding(Binding):
    """A binding of an operator, who also holds roles."""

    roles: frozenset[OperatorRole]


class BindingsDocument(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gateways: dict[_Name, Binding] = {}
    operators: dict[_Name, OperatorBinding] = {}
    backends: dict[_Name, Binding] = {}

    @field_validator("gateways", "operators", "backends", mode="before")
    @classmethod
    def _empty_section(cls, value: object) -> object:
        return {} if value is None else value

    @classmethod
    def parse(cls, text: str | bytes, origin: str = "bindings") -> Self:
        """The document in `text` (YAML); raises BindingsError with every fault and how to mend it."""
        try:
            content = yaml.safe_load(text)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise BindingsError(f"{origin}: not YAML: {' '.join(str(error).split())}") from None
        if not isinstance(content, dict):
            raise BindingsError(f"{origin}: must be a mapping with gateways, operators and backends")
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            faults = "; ".join(
                f"{_place(fault['loc'])}: {_mend(fault['loc'], fault['msg'])}" for fault in error.errors()
            )
            raise BindingsError(f"{origin}: {faults}") from None


class Bindings:
    """The bindings in force. Looks at the file at most once a second, when it is asked.

    Raises BindingsError when made from a file that cannot be read or taken.
    """

    def __init__(self, path: Path, *, interval: float = 1.0, clock: Callable[[], float] = monotonic) -> None:
        self._files = WatchedFiles([path], interval=interval, clock=clock)
        try:
            (content,) = self._files.read()
        except OSError as error:
            raise BindingsError(f"{path}: cannot be read ({error.strerror}); set QIM_BINDINGS_FILE") from None
        self._path = path
        self._document = BindingsDocument.parse(content, str(path))

    def require_tenant(self, peer: Peer, tenant: int) -> None:
        """Raises TenantNotAllowed unless `peer` may act in `tenant`. The services themselves are not bound."""
        document = self._current()
        match peer.role:
            case Role.GATEWAY:
                binding: Binding | None = document.gateways.get(peer.name)
            case Role.OPERATOR:
                binding = document.operators.get(peer.name)
            case Role.BACKEND:
                binding = document.backends.get(peer.name)
            case _:
                return
        if binding is None or not binding.allows(tenant):
            raise TenantNotAllowed(
                message=f"{peer.role} {peer.name} is not bound to this tenant; add it under {peer.role}s in the "
                "bindings file"
            )

    def operator_roles(self, peer: Peer) -> frozenset[OperatorRole]:
        """The roles of an operator; empty for everybody else."""
        binding = self._current().operators.get(peer.name) if peer.role is Role.OPERATOR else None
        return binding.roles if binding else frozenset()

    def _current(self) -> BindingsDocument:
        changed = self._files.poll()
        if changed is not None:
            try:
                self._document = BindingsDocument.parse(changed[0], str(self._path))
            except BindingsError as error:
                reload_metrics().count("bindings", ok=False)
                _log.error("bindings file not taken, keeping the old one", extra={"error": str(error)})
            else:
                reload_metrics().count("bindings", ok=True)
                _log.info("bindings reloaded", extra={"file": str(self._path)})
        return self._document


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in loc[:3])


def _mend(loc: tuple[int | str, ...], message: str) -> str:
    if "tenants" in loc:
        return f'list tenant numbers from 1 to 2^64-1, or "*" ({message})'
    if "roles" in loc:
        return f"list some of {', '.join(OperatorRole)} ({message})"
    if "[key]" in loc:
        return "a certificate name is 1 to 128 of A-Z a-z 0-9 . _ -"
    return message

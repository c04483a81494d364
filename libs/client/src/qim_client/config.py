"""Where the command lines find the suite and who they are: the file `client.toml` that `make up` writes.

`qim` acts through the section [gateway], `qimctl` through [operator]. Looked up in this order: the file that QIM_CONFIG
names, else the nearest `.qim/client.toml` from the working directory upward. Paths in it are relative to the file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from qim_common.ids import MAX_TENANT

CONFIG_VARIABLE: Final = "QIM_CONFIG"
CONFIG_PLACE: Final = Path(".qim") / "client.toml"
DEVELOPMENT_NAMES: Final = "development"


class ClientConfigError(Exception):
    """No client configuration, or a faulty one; the message says how to mend it."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the client's certificate and key, and the CA that verifies the servers it calls."""

    cert: Path
    key: Path
    ca: Path


@dataclass(frozen=True, slots=True)
class GatewayProfile:
    """How to act for end users: `writer` and `session` are `host:port`, `tenant` is from 1 to 2^64-1."""

    writer: str
    session: str
    tenant: int
    tls: TlsFiles


@dataclass(frozen=True, slots=True)
class OperatorProfile:
    """How to act as an operator: `admin` is `host:port`, `tenant` is from 1 to 2^64-1.

    `development_names`: names stand for ids (qim_client.names); the file says `names = "development"`.
    """

    admin: str
    tenant: int
    tls: TlsFiles
    development_names: bool = False


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """One client configuration; a section that the file does not have is None."""

    path: Path
    gateway: GatewayProfile | None
    operator: OperatorProfile | None

    @classmethod
    def load(
        cls,
        path: Path | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
        directory: Path | None = None,
    ) -> ClientConfig:
        """Read `path`, or else the file that the lookup order finds, starting at `directory` (the working directory).

        Raises ClientConfigError: nothing was found, it is not TOML, or a value is missing or of the wrong type.
        """
        path = path or _find(environment, directory or Path.cwd())
        try:
            document = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ClientConfigError(f"{path}: cannot be read ({error.strerror}); run `make up`") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ClientConfigError(f"{path}: not TOML ({error}); `make up` writes it anew") from None
        sections = {name: _Section(path, name, document[name]) for name in ("gateway", "operator") if name in document}
        gateway, operator = sections.get("gateway"), sections.get("operator")
        return cls(
            path,
            GatewayProfile(gateway.text("writer"), gateway.text("session"), gateway.tenant(), gateway.tls())
            if gateway
            else None,
            OperatorProfile(
                operator.text("admin"), operator.tenant(), operator.tls(), development_names=operator.names()
            )
            if operator
            else None,
        )

    def require_gateway(self) -> GatewayProfile:
        """The section [gateway]; raises ClientConfigError where the file has none."""
        if self.gateway is None:
            raise ClientConfigError(f"{self.path}: has no section [gateway]; `make up` writes one")
        return self.gateway

    def require_operator(self) -> OperatorProfile:
        """The section [operator]; raises ClientConfigError where the file has none."""
        if self.operator is None:
            raise ClientConfigError(f"{self.path}: has no section [operator]; `make up` writes one")
        return self.operator


def _find(environment: Mapping[str, str], directory: Path) -> Path:
    if named := environment.get(CONFIG_VARIABLE):
        path = Path(named).expanduser()
        if not path.is_file():
            raise ClientConfigError(f"{path}: no such file; {CONFIG_VARIABLE} names it: unset it or mend it")
        return path
    directory = directory.resolve()
    for candidate in (directory, *directory.parents):
        if (candidate / CONFIG_PLACE).is_file():
            return candidate / CONFIG_PLACE
    raise ClientConfigError(
        f"no {CONFIG_PLACE} in {directory} or above it: run `make up` in another terminal, "
        f"or set {CONFIG_VARIABLE} to a client configuration"
    )


@dataclass(frozen=True, slots=True)
class _Section:
    path: Path
    name: str
    values: Any

    def value(self, key: str) -> Any:
        if not isinstance(self.values, dict) or key not in self.values:
            raise ClientConfigError(f"{self.path}: [{self.name}] lacks {key}; `make up` writes it anew")
        return self.values[key]

    def text(self, key: str) -> str:
        value = self.value(key)
        if not isinstance(value, str) or not value:
            raise ClientConfigError(f"{self.path}: [{self.name}] {key} must be a text that is not empty")
        return value

    def tenant(self) -> int:
        value = self.value("tenant")
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_TENANT:
            raise ClientConfigError(f"{self.path}: [{self.name}] tenant must be a number from 1 to 2^64-1")
        return value

    def names(self) -> bool:
        if "names" not in self.values:
            return False
        if self.text("names") != DEVELOPMENT_NAMES:
            raise ClientConfigError(f'{self.path}: [{self.name}] names must be "{DEVELOPMENT_NAMES}", or be left out')
        return True

    def tls(self) -> TlsFiles:
        cert, key, ca = (self.path.resolve().parent / self.text(name) for name in ("cert", "key", "ca"))
        return TlsFiles(cert, key, ca)

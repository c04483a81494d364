"""Where Cassandra is and how it is spoken to: variables `QIM_CASSANDRA_*`, a part of the settings of who needs it."""

from __future__ import annotations

import ssl
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, FilePath, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from qim_common.config import comma_list

DEFAULT_PORT: Final = 9042


def _contact_point(text: str) -> str:
    if _split(text) is None:
        raise PydanticCustomError("qim_contact_point", "write host or host:port, an IPv6 host in brackets")
    return text


def _split(text: str) -> tuple[str, int] | None:
    """Host without brackets and port; None for what is neither `host` nor `host:port`."""
    host, colon, port = text, "", ""
    if not text.endswith("]"):
        host, colon, port = text.rpartition(":") if ":" in text else (text, "", "")
    bracketed = host.startswith("[") and host.endswith("]")
    if not host.strip("[]") or (":" in host and not bracketed) or any(char.isspace() or char in "/@" for char in host):
        return None
    if not colon:
        return host.strip("[]"), DEFAULT_PORT
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
        return None
    return host.strip("[]"), int(port)


ContactPoints = Annotated[
    tuple[Annotated[str, AfterValidator(_contact_point)], ...],
    NoDecode,
    BeforeValidator(comma_list),
    Field(min_length=1, max_length=64),
]
"""Comma-separated `host` or `host:port`; the other nodes are found through them."""


class CassandraSettings(BaseSettings):
    """One cluster and keyspace. Works for ScyllaDB alike, which speaks version 4 of the same protocol."""

    model_config = SettingsConfigDict(env_prefix="QIM_", frozen=True)

    cassandra_contact_points: ContactPoints
    cassandra_local_dc: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = "dc1"
    cassandra_keyspace: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,47}$")] = "qim"
    cassandra_consistency: Literal["QUORUM", "LOCAL_QUORUM"] = "QUORUM"
    cassandra_protocol_version: Annotated[int, Field(ge=4, le=5)] = 5
    cassandra_timeout_seconds: Annotated[float, Field(gt=0, le=120)] = 5.0
    cassandra_max_in_flight: Annotated[int, Field(ge=1, le=30_000)] = 512
    cassandra_username: str = ""
    cassandra_password_file: FilePath | None = None
    cassandra_tls_ca_file: FilePath | None = None
    cassandra_tls_cert_file: FilePath | None = None
    cassandra_tls_key_file: FilePath | None = None

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if bool(self.cassandra_username) != bool(self.cassandra_password_file):
            raise PydanticCustomError(
                "qim_cassandra_login", "QIM_CASSANDRA_USERNAME and QIM_CASSANDRA_PASSWORD_FILE: set both or neither"
            )
        if bool(self.cassandra_tls_cert_file) != bool(self.cassandra_tls_key_file):
            raise PydanticCustomError(
                "qim_cassandra_tls", "QIM_CASSANDRA_TLS_CERT_FILE and QIM_CASSANDRA_TLS_KEY_FILE: set both or neither"
            )
        if self.cassandra_tls_cert_file and not self.cassandra_tls_ca_file:
            raise PydanticCustomError(
                "qim_cassandra_tls", "QIM_CASSANDRA_TLS_CA_FILE: set it too, the nodes' certificates are checked"
            )
        return self

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """Host and port of each contact point."""
        return [found for text in self.cassandra_contact_points if (found := _split(text)) is not None]

    def password(self) -> str:
        """The content of the password file without its line end; empty where none is set. Raises OSError."""
        file = self.cassandra_password_file
        return file.read_text().rstrip("\r\n") if file else ""

    def ssl_context(self) -> ssl.SSLContext | None:
        """TLS that checks the nodes' certificates and names; None where no CA is set.

        Raises OSError or ssl.SSLError for files that cannot be taken.
        """
        if self.cassandra_tls_ca_file is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self.cassandra_tls_ca_file))
        if self.cassandra_tls_cert_file and self.cassandra_tls_key_file:
            context.load_cert_chain(self.cassandra_tls_cert_file, self.cassandra_tls_key_file)
        return context

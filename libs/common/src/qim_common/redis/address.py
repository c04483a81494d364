"""Where a Redis or Valkey instance is reached, as the configuration writes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

DEFAULT_PORT: Final = 6379
_FORMS: Final = (
    "write host:port, redis://user:password@host:port/db, rediss://user:password@host:port/db (TLS) or unix:///path"
)


class AddressError(ValueError):
    """An address that cannot be used; the message says how to mend it and never holds the password."""


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """One instance's address.

    Attributes:
        host: host name or IP address; empty for a unix socket.
        port: 1-65535; 0 for a unix socket.
        path: absolute path of the unix socket, else empty.
        tls: whether the connection is encrypted (rediss://).
        username: empty means the server's `default` user.
        password: empty means none; never shown by repr or str.
        database: from 0.
        password_file: holds the password where `password` is empty; read for each connection.
        tls_ca_file: the CAs of the server's certificate, with TLS; None: those of the system.
    """

    host: str = ""
    port: int = 0
    path: str = ""
    tls: bool = False
    username: str = ""
    password: str = field(default="", repr=False)
    database: int = 0
    password_file: Path | None = None
    tls_ca_file: Path | None = None

    @classmethod
    def parse(cls, text: str) -> RedisAddress:
        """Read `host:port`, `redis://...`, `rediss://...` or `unix:///path`.

        In a URL, user and password are percent-encoded; the database is the path (`/2`), for unix sockets `?db=2`.

        Raises:
            AddressError: with what is wrong and how to write it.
        """
        text = text.strip()
        if not text:
            raise AddressError(f"an address of a Redis instance is empty: {_FORMS}")
        try:
            parts = urlsplit(text if "://" in text else f"redis://{text}")
            scheme = parts.scheme
            if scheme == "unix":
                return cls._of_unix(parts)
            if scheme not in ("redis", "rediss"):
                raise AddressError(f"unknown scheme {scheme!r}")
            if "://" not in text and (parts.path or parts.username is not None):
                raise AddressError("user, password and database need the form redis://...")
            return cls._of_tcp(parts)
        except AddressError as error:
            raise AddressError(f"Redis address {_shown(text)!r}: {error}; {_FORMS}") from None
        except ValueError:  # from urlsplit, whose text may hold the password
            raise AddressError(
                f"Redis address {_shown(text)!r} is malformed (is the port a number in 1-65535, an IPv6 host in [ ], "
                f"and every special character of the password percent-encoded?); {_FORMS}"
            ) from None

    @classmethod
    def _of_unix(cls, parts: SplitResult) -> RedisAddress:
        if parts.hostname or not parts.path.startswith("/") or parts.path == "/":
            raise AddressError("a unix socket needs an absolute path after unix://")
        query = parse_qs(parts.query, keep_blank_values=True)
        if set(query) - {"db"}:
            raise AddressError("only ?db=<number> may follow the path of a unix socket")
        return cls(
            path=unquote(parts.path),
            username=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=_database(query.get("db", [""])[-1]),
        )

    @classmethod
    def _of_tcp(cls, parts: SplitResult) -> RedisAddress:
        if not parts.hostname:
            raise AddressError("the host is missing")
        if any(character.isspace() or character in ",;" for character in parts.netloc):
            raise AddressError("blanks, commas and semicolons do not belong into one address")
        if parts.query or parts.fragment:
            raise AddressError("nothing may follow the database (percent-encode ? and # in a password)")
        port = DEFAULT_PORT if parts.port is None else parts.port
        if port == 0:
            raise AddressError("the port must be in 1-65535")
        if parts.username and parts.password is None:
            raise AddressError("a user without a password (the form for a password alone is redis://:password@host)")
        return cls(
            host=parts.hostname,
            port=port,
            tls=parts.scheme == "rediss",
            username=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=_database(parts.path.removeprefix("/")),
        )

    def with_login(self, username: str, password_file: Path | None) -> RedisAddress:
        """The same with this login, unless the address has a password of its own.

        Args:
            username: empty means the server's `default` user.
            password_file: as `qim_common.redis.password_file` reads it; None: no login, and `username` is ignored.
        """
        if self.password or password_file is None:
            return self
        return replace(self, username=username, password_file=password_file)

    def with_ca(self, tls_ca_file: Path | None) -> RedisAddress:
        """The same with these CAs instead of the system's, where the connection is encrypted."""
        return replace(self, tls_ca_file=tls_ca_file) if self.tls else self

    def __str__(self) -> str:
        """The address without user and password, for logs and messages."""
        database = f"/{self.database}" if self.database else ""
        if self.path:
            return f"unix://{self.path}" + (f"?db={self.database}" if self.database else "")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss://' if self.tls else ''}{host}:{self.port}{database}"


def _database(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise AddressError("the database must be a number from 0")
    return int(text)


def _shown(text: str) -> str:
    """The text without anything that could be a password: all before the last @ except the scheme."""
    if "@" not in text:
        return text
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "", text
    return f"{scheme}{separator}***@{rest.rpartition('@')[2]}"

"""How a new connection is encrypted and logged in, with files that are read for each connection anew: what is in them
may change while the process runs."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from qim_common.redis.address import RedisAddress
from qim_common.redis.errors import HandshakeRefused, RedisUnavailable, ReplyError, UnusableFile
from qim_common.redis.password_file import PasswordFileError, read_password

_Argument = bytes | str | int


def tls_context(address: RedisAddress) -> ssl.SSLContext | None:
    """TLS that checks the server's certificate and name; None for an address without TLS.

    Raises:
        UnusableFile: the file of the CAs.
    """
    if not address.tls:
        return None
    try:
        return ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=address.tls_ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise UnusableFile(f"Redis {address} is not connected to: QIM_REDIS_TLS_CA_FILE: {error}") from None


def greeting(address: RedisAddress, name: str) -> list[Sequence[_Argument]]:
    """The first commands of a connection: protocol 2, login, the connection's name, database.

    Raises:
        UnusableFile: the file of the password.
    """
    hello: list[_Argument] = ["HELLO", 2]
    if password := _password(address):
        hello += ["AUTH", address.username or "default", password]
    commands: list[Sequence[_Argument]] = [[*hello, "SETNAME", name]]
    if address.database:
        commands.append(["SELECT", address.database])
    return commands


def refused(address: RedisAddress, error: ReplyError) -> HandshakeRefused:
    """For a server that does not take the greeting: which settings to look at."""
    check = "user, password and database of its address, or set QIM_REDIS_PASSWORD_FILE where it has no password"
    if address.password_file is not None:
        check = "QIM_REDIS_USERNAME, QIM_REDIS_PASSWORD_FILE and the database of its address"
    return HandshakeRefused(f"Redis {address} refuses the connection ({error}): check {check}")


def unverified(address: RedisAddress, error: ssl.SSLCertVerificationError) -> RedisUnavailable:
    """For a server whose certificate is not taken. It may get another one: so this is no fault of the configuration."""
    cas = "QIM_REDIS_TLS_CA_FILE" if address.tls_ca_file is not None else "the system (or QIM_REDIS_TLS_CA_FILE)"
    return RedisUnavailable(
        f"Redis {address} cannot be reached: {error}; its certificate must name {address.host} and be of a CA of {cas}"
    )


def _password(address: RedisAddress) -> str | bytes:
    if address.password_file is None:
        return address.password
    try:
        return read_password(address.password_file)
    except PasswordFileError as error:
        raise UnusableFile(f"Redis {address} is not connected to: QIM_REDIS_PASSWORD_FILE: {error}") from None

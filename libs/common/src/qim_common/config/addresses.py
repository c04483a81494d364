"""The annotated types of addresses in settings: each checks one way of writing where something is."""

from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

from qim_common.redis.address import AddressError, RedisAddress


def _host_port(text: str, *, listening: bool) -> str:
    host, colon, port = text.rpartition(":")
    lowest = 0 if listening else 1
    if not colon or not host or not port.isascii() or not port.isdigit() or not lowest <= int(port) <= 65_535:
        raise PydanticCustomError("qim_host_port", "write host:port with a port up to 65535")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise PydanticCustomError("qim_host_port", "write an IPv6 host in brackets: [::1]:7401")
    return text


def _redis_addr(text: str) -> str:
    try:
        RedisAddress.parse(text)
    except AddressError as error:
        raise PydanticCustomError("qim_redis", "{fault}", {"fault": str(error)}) from None
    return text


def comma_list(value: object) -> object:
    """A text as its parts between commas, blanks and empty ones left out; anything else as it is."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _webhook_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if not parts.hostname or port == 0 or parts.fragment or not text.isascii() or not text.isprintable() or " " in text:
        raise PydanticCustomError("qim_url", "write one absolute URL, such as https://push.example/qim")
    if parts.username is not None or parts.password is not None:
        raise PydanticCustomError("qim_url", "write no user or password; the receiver knows qim by the signature")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname)):
        raise PydanticCustomError("qim_url", "write an https URL; http is taken on loopback only")
    return text


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


ListenAddress = Annotated[str, AfterValidator(lambda text: _host_port(text, listening=True))]
"""`host:port` to serve on; port 0 takes a free one."""
TargetAddress = Annotated[str, AfterValidator(lambda text: _host_port(text, listening=False))]
"""`host:port` of another service."""
OptionalAddress = Annotated[str, AfterValidator(lambda text: text and _host_port(text, listening=False))]
"""The same, or empty: there is none."""
WebhookUrl = Annotated[str, AfterValidator(_webhook_url)]
"""An https URL without user, password or fragment; on loopback http is taken too."""
RedisAddr = Annotated[str, AfterValidator(_redis_addr)]
"""`host:port`, or a URL `redis://`, `rediss://`, `unix://`."""
OptionalRedisAddr = Annotated[str, AfterValidator(lambda text: text and _redis_addr(text))]
"""The same, or empty: there is none."""
RedisAddrs = Annotated[tuple[RedisAddr, ...], NoDecode, BeforeValidator(comma_list)]
"""Comma-separated; may be empty."""


def split_listen(address: str) -> tuple[str, int]:
    """Host (without brackets) and port of a `ListenAddress`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)

"""Configuration: environment variables with the prefix `QIM_`, validated at start, with messages that say how to mend.

Each service has one settings class, made of what every server needs and of what some need. `load` reads it or ends the
process with one line per variable at fault.
"""

import sys
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    FilePath,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from qim_common.redis.address import AddressError, RedisAddress
from qim_common.tls import PemFiles

PREFIX: Final = "QIM_"
EXIT_CODE: Final = 2
_Settings = TypeVar("_Settings", bound=BaseSettings)


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


class ProcessSettings(BaseSettings):
    """What every process needs that serves or consumes. All times in the unit that the name ends in."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True)

    service: ClassVar[str]

    health_listen: ListenAddress
    metrics_listen: ListenAddress
    tls_cert_file: FilePath
    tls_key_file: FilePath
    tls_ca_file: FilePath
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["json", "text"] = "json"
    otlp_endpoint: Annotated[str, Field(pattern=r"^(https?://[^\s/]+)?$")] = ""
    drain_seconds: Annotated[float, Field(ge=0, le=600)] = 20.0
    drain_pause_seconds: Annotated[float, Field(ge=0, le=60)] = 0.0

    @property
    def client_tls(self) -> PemFiles:
        """The process's own certificate for calls to services, whose certificates are of the services' CA."""
        return PemFiles(self.tls_cert_file, self.tls_key_file, (self.tls_ca_file,))


class ServerSettings(ProcessSettings):
    """What every service needs beside that."""

    listen: ListenAddress
    trust_domain: Annotated[str, Field(pattern=r"^[a-z0-9._-]{1,255}$")] = "qim.local"
    bindings_file: FilePath
    stream_max_age_seconds: Annotated[float, Field(gt=0, le=86_400)] = 3600.0
    connection_max_age_seconds: Annotated[float, Field(gt=0, le=86_400)] = 1800.0
    max_concurrent_calls: Annotated[int, Field(ge=1, le=100_000)] = 4096
    reload_interval_seconds: Annotated[float, Field(ge=0, le=3600)] = 1.0

    @property
    def server_tls(self) -> PemFiles:
        """The server's certificate and the CA of those who may connect."""
        return PemFiles(self.tls_cert_file, self.tls_key_file, (self.tls_ca_file,))


class StoreSettings(BaseSettings):
    """Where the keys live (storage.md, "Where a key lives"). Every service of an installation has the same values."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True)

    runs_on_scylla: ClassVar[bool] = False
    """Whether the process does without Redis, where the backend is scylla."""

    backend: Literal["redis", "tiered", "scylla"] = "redis"
    ack_level: Literal["log", "replicated", "archived"] = "log"
    replicas: Annotated[int, Field(ge=0, le=16)] = 0
    promotion: Literal["resynchronise", "accept"] = "resynchronise"
    redis_addr: Annotated[OptionalRedisAddr, Field(validate_default=True)] = ""
    message_store_addrs: RedisAddrs = ()
    session_redis_addrs: RedisAddrs = ()
    commit_buckets: Annotated[int, Field(ge=1, le=1000)] = 256
    installation_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]

    @field_validator("backend")
    @classmethod
    def _log_to_read(cls, backend: str) -> str:
        if backend == "scylla" and not cls.runs_on_scylla:
            raise PydanticCustomError(
                "qim_backend",
                "scylla has no dispatch log and no projection, so that only the writer runs on it "
                "(docs/storage-tiers.md); use redis or tiered",
            )
        return backend

    @field_validator("redis_addr")
    @classmethod
    def _redis_where_it_is_needed(cls, address: str, info: ValidationInfo) -> str:
        # Where the backend is at fault itself, it is not among the values yet.
        if not address and info.data.get("backend") != "scylla":
            raise PydanticCustomError("qim_missing", "is not set; set it (docs/operations.md, Configuration)")
        return address

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for name, addresses in (
            ("QIM_REDIS_ADDR and QIM_MESSAGE_STORE_ADDRS", self.commit_addrs),
            ("QIM_SESSION_REDIS_ADDRS", self.session_addrs),
        ):
            if len({RedisAddress.parse(address) for address in addresses}) != len(addresses):
                raise PydanticCustomError("qim_distinct", "{name}: name each instance once", {"name": name})
        return self

    @model_validator(mode="after")
    def _level_that_can_be_kept(self) -> Self:
        if self.ack_level == "archived" and self.backend != "tiered":
            raise PydanticCustomError("qim_ack", "QIM_ACK_LEVEL: archived needs QIM_BACKEND=tiered")
        if self.ack_level != "log" and self.backend == "scylla":
            raise PydanticCustomError("qim_ack", "QIM_ACK_LEVEL: only log with QIM_BACKEND=scylla")
        if (self.ack_level == "replicated") != (self.replicas > 0):
            raise PydanticCustomError(
                "qim_ack",
                "QIM_REPLICAS: how many replicas may be promoted, with QIM_ACK_LEVEL=replicated and only with it",
            )
        return self

    @property
    def commit_addrs(self) -> tuple[str, ...]:
        """The instances of the commit facts, in the order that buckets are spread over; none with scylla."""
        return tuple(filter(None, (self.redis_addr, *self.message_store_addrs)))

    @property
    def session_addrs(self) -> tuple[str, ...]:
        """The instances of the session service, in the order that people's buckets are spread over."""
        return self.session_redis_addrs or self.commit_addrs


class TokenSettings(BaseSettings):
    """What signing page and resume tokens needs (qim_common.tokens)."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True)

    token_key_file: FilePath


class WriterSettings(ServerSettings, StoreSettings, TokenSettings):
    """The writer."""

    service: ClassVar[str] = "writer"
    runs_on_scylla: ClassVar[bool] = True

    listen: ListenAddress = "127.0.0.1:7401"
    health_listen: ListenAddress = "127.0.0.1:7411"
    metrics_listen: ListenAddress = "127.0.0.1:7421"
    message_max_bytes: Annotated[int, Field(ge=1, le=1024 * 1024)] = 65_536
    group_member_limit: Annotated[int, Field(ge=1, le=100_000)] = 100_000
    group_member_limit_max: Annotated[int, Field(ge=1, le=100_000)] = 100_000
    membership_event_broadcast_max_members: Annotated[int, Field(ge=1, le=100_000)] = 500
    projection_fanout_max_members: Annotated[int, Field(ge=1, le=100_000)] = 1000
    dispatch_retention_hours: Annotated[float, Field(gt=0, le=24 * 365)] = 24.0
    retention_interval_seconds: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    session_addr: OptionalAddress = ""
    outbox_max_messages: Annotated[int, Field(ge=1, le=10**9)] = 5_000_000
    allow_comparison_backend: Annotated[bool, Field(validate_default=True)] = False

    @field_validator("allow_comparison_backend")
    @classmethod
    def _comparison_is_wanted(cls, allowed: bool, info: ValidationInfo) -> bool:
        if info.data.get("backend") == "scylla" and not allowed:
            raise PydanticCustomError(
                "qim_comparison",
                "set it to yes to run QIM_BACKEND=scylla all the same, a comparison and not for use: there are "
                "no membership changes, sends are not version-checked, a crash leaves gaps in the seqs, a retry may "
                "commit twice (docs/storage-tiers.md)",
            )
        return allowed

    @model_validator(mode="after")
    def _limit_within_maximum(self) -> Self:
        if self.group_member_limit > self.group_member_limit_max:
            raise PydanticCustomError("qim_limit", "QIM_GROUP_MEMBER_LIMIT: must not exceed QIM_GROUP_MEMBER_LIMIT_MAX")
        return self


class ArchiverSettings(ProcessSettings, StoreSettings):
    """The process that brings what is committed into the archive, and lets old records leave Redis."""

    service: ClassVar[str] = "archiver"

    health_listen: ListenAddress = "127.0.0.1:7415"
    metrics_listen: ListenAddress = "127.0.0.1:7425"
    archive_linger_ms: Annotated[int, Field(ge=0, le=10_000)] = 500
    hot_record_hours: Annotated[float, Field(ge=0, le=24 * 365)] = 24.0

    @property
    def linger_seconds(self) -> float:
        """How long an archiver that has caught up waits: 20 ms where acknowledgements wait for it and nobody has said
        otherwise."""
        unsaid = "archive_linger_ms" not in self.model_fields_set
        return 0.02 if unsaid and self.ack_level == "archived" else self.archive_linger_ms / 1000


class SessionSettings(ServerSettings, StoreSettings, TokenSettings):
    """The session service."""

    service: ClassVar[str] = "session"

    listen: ListenAddress = "127.0.0.1:7402"
    health_listen: ListenAddress = "127.0.0.1:7412"
    metrics_listen: ListenAddress = "127.0.0.1:7422"
    writer_addr: TargetAddress = "127.0.0.1:7401"
    mailbox_max_entries: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    mailbox_max_age_days: Annotated[float, Field(gt=0, le=36_500)] = 30.0
    subscribe_queue_events: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000
    subscribe_queue_bytes: Annotated[int, Field(ge=1, le=4 * 1024**3)] = 32 * 1024 * 1024
    subscribe_attachments_max: Annotated[int, Field(ge=1, le=1_000_000)] = 50_000
    subscribe_token_seconds: Annotated[float, Field(gt=0, le=3600)] = 20.0


class PushSettings(ProcessSettings, StoreSettings):
    """A process that hands push notifications to a sink, whatever that is (docs/push.md)."""

    service: ClassVar[str] = "push"

    health_listen: ListenAddress = "127.0.0.1:7414"
    metrics_listen: ListenAddress = "127.0.0.1:7424"
    writer_addr: TargetAddress = "127.0.0.1:7401"
    push_name: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")]
    push_max_age_seconds: Annotated[float, Field(gt=0, le=86_400 * 365)] = 3600.0
    push_big_groups: Literal["skip", "topic"] = "skip"
    push_unread_max_recipients: Annotated[int, Field(ge=0, le=100_000)] = 100
    push_body_max_bytes: Annotated[int, Field(ge=0, le=4096)] = 0
    push_batch_max: Annotated[int, Field(ge=1, le=1000)] = 100


class PushWebhookSettings(PushSettings):
    """The one whose sink is a webhook."""

    service: ClassVar[str] = "push-webhook"

    push_name: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")] = "webhook"
    webhook_url: WebhookUrl
    webhook_secret_file: FilePath
    webhook_ca_file: FilePath | None = None
    webhook_timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 5.0
    webhook_connections: Annotated[int, Field(ge=1, le=256)] = 8


class AdminSettings(ServerSettings):
    """The admin service: operators and back ends have a CA of their own, which nobody else trusts."""

    service: ClassVar[str] = "admin"

    listen: ListenAddress = "127.0.0.1:7403"
    health_listen: ListenAddress = "127.0.0.1:7413"
    metrics_listen: ListenAddress = "127.0.0.1:7423"
    operator_ca_file: FilePath
    writer_addr: TargetAddress = "127.0.0.1:7401"

    @property
    def server_tls(self) -> PemFiles:
        """Only the operators' CA: a service's certificate never passes for an operator, whatever it is named."""
        return PemFiles(self.tls_cert_file, self.tls_key_file, (self.operator_ca_file,))


def load(cls: type[_Settings], **overrides: Any) -> _Settings:
    """The settings from the environment, `overrides` before it.

    On a fault: one line on stderr per variable (name, what is wrong, how to mend it), then exit code 2. The value
    itself is not repeated, it may be a password.
    """
    try:
        return cls(**overrides)
    except ValidationError as error:
        lines = "\n".join(f"  {line}" for line in explain(error))
        print(f"qim cannot start with this configuration:\n{lines}", file=sys.stderr)
        raise SystemExit(EXIT_CODE) from None


def explain(error: ValidationError) -> list[str]:
    """One line per variable at fault."""
    return sorted({_line(fault) for fault in error.errors(include_url=False, include_input=False)})


def _line(fault: ErrorDetails) -> str:
    if not fault["loc"]:
        return fault["msg"]
    name = PREFIX + str(fault["loc"][0]).upper()
    match fault["type"]:
        case "missing":
            return f"{name}: is not set; set it (docs/operations.md, Configuration)"
        case "path_not_file":
            return f"{name}: names no file; check the path, `make up` writes development files under .qim/"
        case "string_pattern_mismatch":
            return f"{name}: has a form that is not taken; it must match {fault['ctx']['pattern']}"
        case _:
            return f"{name}: {fault['msg']}"


def split_listen(address: str) -> tuple[str, int]:
    """Host (without brackets) and port of a `ListenAddress`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


__all__ = [
    "AdminSettings",
    "ArchiverSettings",
    "ProcessSettings",
    "PushSettings",
    "PushWebhookSettings",
    "ServerSettings",
    "SessionSettings",
    "StoreSettings",
    "TokenSettings",
    "WriterSettings",
    "explain",
    "load",
    "split_listen",
]

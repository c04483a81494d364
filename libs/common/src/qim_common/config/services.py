"""The settings of each process: what every one needs that serves or consumes, and what only some need."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, FilePath, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from qim_common.config.addresses import ListenAddress, OptionalAddress, TargetAddress, WebhookUrl
from qim_common.config.loading import PREFIX
from qim_common.config.stores import StoreSettings
from qim_common.tls import PemFiles


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

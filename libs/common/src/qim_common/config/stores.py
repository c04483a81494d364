"""The settings of who uses Redis: which instances there are, how they are reached, what an acknowledgement survives."""

import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, FilePath, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from qim_common.config.addresses import OptionalRedisAddr, RedisAddrs
from qim_common.config.loading import PREFIX
from qim_common.redis.address import RedisAddress
from qim_common.redis.password_file import PasswordFileError, read_password


def _with_password(path: Path) -> Path:
    try:
        read_password(path)
    except PasswordFileError as error:
        raise PydanticCustomError("qim_password_file", "{fault}", {"fault": str(error)}) from None
    return path


def _with_cas(path: Path) -> Path:
    try:
        ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=path)
    except OSError:  # ssl.SSLError too
        raise PydanticCustomError("qim_ca_file", "holds no CA certificates in PEM that can be read") from None
    return path


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
    redis_username: Annotated[str, Field(pattern=r"^\S{0,128}$")] = ""
    redis_password_file: Annotated[FilePath, AfterValidator(_with_password)] | None = None
    redis_tls_ca_file: Annotated[FilePath, AfterValidator(_with_cas)] | None = None
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
            raise PydanticCustomError("qim_missing", "is not set; set it (docs/configuration.md)")
        return address

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for name, addresses in (
            ("QIM_REDIS_ADDR and QIM_MESSAGE_STORE_ADDRS", self.commit_addrs),
            ("QIM_SESSION_REDIS_ADDRS", self.session_addrs),
        ):
            # Written out they have no login: two users of one instance do not make two of it.
            if len(set(map(str, addresses))) != len(addresses):
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

    @model_validator(mode="after")
    def _login_that_is_used(self) -> Self:
        if self.redis_username and self.redis_password_file is None:
            raise PydanticCustomError("qim_login", "QIM_REDIS_PASSWORD_FILE: QIM_REDIS_USERNAME needs it too")
        addresses = (*self.commit_addrs, *self.session_addrs)
        if self.redis_tls_ca_file is not None and addresses and not any(address.tls for address in addresses):
            raise PydanticCustomError(
                "qim_tls", "QIM_REDIS_TLS_CA_FILE: no address is encrypted; write rediss://host:port for those that are"
            )
        return self

    @property
    def commit_addrs(self) -> tuple[RedisAddress, ...]:
        """The instances of the commit facts, in the order that buckets are spread over, with their login and CAs; none
        with scylla."""
        return self._reached(filter(None, (self.redis_addr, *self.message_store_addrs)))

    @property
    def session_addrs(self) -> tuple[RedisAddress, ...]:
        """The instances of the session service, in the order that people's buckets are spread over; likewise."""
        return self._reached(self.session_redis_addrs) or self.commit_addrs

    def _reached(self, addresses: Iterable[str]) -> tuple[RedisAddress, ...]:
        return tuple(
            RedisAddress.parse(address)
            .with_login(self.redis_username, self.redis_password_file)
            .with_ca(self.redis_tls_ca_file)
            for address in addresses
        )

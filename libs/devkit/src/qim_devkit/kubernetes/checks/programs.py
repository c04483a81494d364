"""Which programs there are, and what each reads and does: the settings are the code's own, and a test compares the rest
with what the entry points import."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic_settings import BaseSettings

from qim_client.config import CONFIG_VARIABLE
from qim_common.cassandra import CassandraSettings
from qim_common.config import (
    AdminSettings,
    ArchiverSettings,
    PushWebhookSettings,
    ServerSettings,
    SessionSettings,
    StoreSettings,
    WriterSettings,
)
from qim_common.identity import Role


class StoreKind(StrEnum):
    """The stores, by the label `app.kubernetes.io/component` of their pods."""

    COMMIT = "valkey"
    SESSION = "session-valkey"


@dataclass(frozen=True, slots=True)
class Program:
    """One program that a container may run.

    Attributes:
        name: of its entry point.
        component: the label `app.kubernetes.io/component` of its pods.
        settings: classes that it always reads.
        tiered: classes that it reads besides, where QIM_BACKEND is tiered.
        variables: names that it reads without a class.
        role: of its certificate; None where it has none.
        stores: kinds that it connects to.
        stays: whether it runs until it is told to stop.
    """

    name: str
    component: str
    settings: tuple[type[BaseSettings], ...]
    tiered: tuple[type[BaseSettings], ...] = ()
    variables: frozenset[str] = frozenset()
    role: Role | None = None
    stores: frozenset[StoreKind] = frozenset()
    stays: bool = True

    @property
    def serves(self) -> bool:
        """Whether others call it."""
        return any(issubclass(cls, ServerSettings) for cls in self.settings)


_COMMIT: Final = frozenset({StoreKind.COMMIT})
_BOTH: Final = frozenset(StoreKind)

WRITER: Final = Program(
    "qim-writer", "writer", (WriterSettings,), (CassandraSettings,), role=Role.WRITER, stores=_COMMIT
)
SESSION: Final = Program(
    "qim-session", "session", (SessionSettings,), (CassandraSettings,), role=Role.SESSION, stores=_BOTH
)
ADMIN: Final = Program("qim-admin", "admin", (AdminSettings,), role=Role.ADMIN)
ARCHIVER: Final = Program(
    "qim-archiver", "archiver", (ArchiverSettings,), (CassandraSettings,), role=Role.WRITER, stores=_COMMIT
)
PUSH: Final = Program("qim-push-webhook", "push", (PushWebhookSettings,), role=Role.SESSION, stores=_BOTH)
SCHEMA: Final = Program(
    "qimctl",
    "schema",
    (CassandraSettings,),
    variables=frozenset({"QIM_CASSANDRA_REPLICATION", CONFIG_VARIABLE}),
    stays=False,
)
"""`qimctl schema`."""
MAINTENANCE: Final = Program(
    "qimctl",
    "maintenance",
    (StoreSettings,),
    (CassandraSettings,),
    variables=frozenset({"QIM_CASSANDRA_REPLICATION", CONFIG_VARIABLE}),
    stores=_COMMIT,
    stays=False,
)
"""`qimctl` for what an operator does by hand: recover, fence, schema."""

PROGRAMS: Final = (WRITER, SESSION, ADMIN, ARCHIVER, PUSH, SCHEMA, MAINTENANCE)

IMAGES: Final = {
    "qim-writer": "qim-writer",
    "qim-session": "qim-session",
    "qim-push": "qim-push-webhook",
    "qim-admin": "qim-admin",
    "qimctl": "qimctl",
}
"""Image, without registry and tag -> its entry point, as the Dockerfiles say."""

USER: Final = 10001
"""The user and group of these images."""

STORE_PROGRAMS: Final = frozenset({"valkey-server", "redis-server"})
STORE_IMAGES: Final = frozenset({"valkey", "redis"})


def image_name(image: str) -> str:
    """Without registry, folder, tag and digest."""
    return image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]


def program_of(image: str, entrypoint: tuple[str, ...], arguments: tuple[str, ...], component: str) -> Program | None:
    """What a container runs; None for what is none of these."""
    name = entrypoint[0].rsplit("/", 1)[-1] if entrypoint else IMAGES.get(image_name(image), "")
    if name == SCHEMA.name or image_name(image) == SCHEMA.name:
        by_hand = component == MAINTENANCE.component
        words = (*entrypoint[1:], *arguments)
        is_schema = name == SCHEMA.name and words[:2] in (("schema", "migrate"), ("schema", "status"))
        if by_hand:
            return MAINTENANCE if entrypoint else None
        return SCHEMA if is_schema else None
    # A word after the entry point would be an argument, and these take none.
    if entrypoint[1:] or arguments:
        return None
    return next((program for program in PROGRAMS if program.name == name), None)


def is_store(image: str, entrypoint: tuple[str, ...]) -> bool:
    """Whether a container runs a Valkey or Redis."""
    if entrypoint:
        return entrypoint[0].rsplit("/", 1)[-1] in STORE_PROGRAMS
    return image_name(image) in STORE_IMAGES

"""What a suite with the backend `tiered` needs beside Redis: where Cassandra is, and its tables (storage-tiers.md)."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self, TypedDict

from prometheus_client import CollectorRegistry

from qim_common.cassandra import CassandraRefused, CassandraSession, CassandraSettings, CassandraUnavailable
from qim_common.cassandra.migrate import migrate, schema_status
from qim_common.cassandra.migrations import MigrationError, installed_migrations
from qim_common.ids import TenantId
from qim_common.telemetry.metrics import CassandraMetrics
from qim_devkit.cassandra import CONTACT_POINTS_VARIABLE, CassandraCluster, ExistingCluster
from qim_devkit.cassandra.config import DATACENTER
from qim_devkit.processes import SuiteError


class Backend(StrEnum):
    """What a suite may have (storage.md, "Backends")."""

    REDIS = "redis"
    TIERED = "tiered"


ARCHIVER: Final = "archiver"
ARCHIVER_MODULE: Final = "qim_writer.archiver_main"

CLUSTER_DIRECTORY: Final = Path(".qim/cassandra")
"""Where `make cassandra-up` has its cluster."""

CLUSTER_HELP: Final = (
    f"the directory of the cluster; default: the Cassandra that {CONTACT_POINTS_VARIABLE} names, without that "
    f"{CLUSTER_DIRECTORY}"
)
"""Of the option `--cassandra`, as `backend_arguments` takes it."""

COLD: Final = {"QIM_HOT_RECORD_HOURS": "0"}
"""Messages leave Redis as soon as the archive holds them, so that whoever looks later reads from it."""

PROMPT: Final = {"QIM_ARCHIVE_LINGER_MS": "20"}
"""The archive follows at once, for those who wait for it."""

_COPIES: Final = 3
_MIGRATION_SECONDS: Final = 30.0
"""For one request of a migration: each change of the schema takes seconds where tests use the machine too."""


def keyspace_of(installation_id: str) -> str:
    """The keyspace of a suite that names none: its own, so that an emptied directory does not meet its former data."""
    return f"qim_{hashlib.sha256(installation_id.encode()).hexdigest()[:12]}"


def shared_keyspace() -> str:
    """The keyspace that all suites share which are thrown away, and tests: a table takes seconds to make.

    They keep apart by tenants of their own (`new_tenant`) and by their installation ids. Another schema is another
    keyspace, because files that are not released may change.
    """
    checksums = "".join(migration.checksum for migration in installed_migrations())
    return f"qim_shared_{hashlib.sha256(checksums.encode()).hexdigest()[:8]}"


def new_tenant() -> TenantId:
    """A tenant that no other suite has."""
    return TenantId(secrets.randbits(62) | 1)


class BackendArguments(TypedDict, total=False):
    """The arguments of a suite that name its backend."""

    backend: str
    cassandra: CassandraCluster | ExistingCluster | None
    keyspace: str


@contextlib.contextmanager
def backend_arguments(
    backend: str, directory: Path | None = None, *, throwaway: bool = True
) -> Iterator[BackendArguments]:
    """The arguments of a suite, and for the backend `tiered` a running cluster: what is started here ends with it.

    Without a directory it is the cluster that QIM_CASSANDRA_CONTACT_POINTS names, which is neither started nor stopped,
    and without that the one of `make cassandra-up`.

    Called from a thread that lives as long as the cluster (qim_devkit.tether).

    Args:
        backend: a Backend.
        directory: of the cluster. One that holds none gets three nodes, on the usual ports if they are free.
        throwaway: whether the suite's directory is removed afterwards.

    Raises:
        CassandraNotAvailable, CassandraStartError: the cluster does not start.
        ValueError: its directory is damaged.
    """
    if backend != Backend.TIERED:
        yield BackendArguments(backend=backend)
        return
    keyspace = shared_keyspace() if throwaway else ""
    if directory is None and (existing := ExistingCluster.named()) is not None:
        yield BackendArguments(backend=backend, cassandra=existing, keyspace=keyspace)
        return
    cluster = CassandraCluster.at(directory or CLUSTER_DIRECTORY, tether=True, usual_ports=directory is None)
    if not cluster.running:
        print(f"Starting Cassandra ({len(cluster.nodes)} nodes), which may take half a minute", file=sys.stderr)
    with cluster.up():
        yield BackendArguments(backend=backend, cassandra=cluster, keyspace=keyspace)


@dataclass(frozen=True, slots=True)
class CassandraPlace:
    """Where the tables of one suite are.

    Attributes:
        contact_points: as QIM_CASSANDRA_CONTACT_POINTS takes them.
        keyspace: as QIM_CASSANDRA_KEYSPACE takes it.
        local_dc: the data centre; all copies are in it.
        copies: of each row, where the keyspace has to be made.
    """

    contact_points: str
    keyspace: str
    local_dc: str = DATACENTER
    copies: int = _COPIES

    @classmethod
    def of(cls, cassandra: CassandraCluster | ExistingCluster, keyspace: str) -> Self:
        """In a cluster of this machine, or in one that is there."""
        return cls(cassandra.contact_points, keyspace, cassandra.datacenter, min(_COPIES, cassandra.size))

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead every service there."""
        return {
            "QIM_CASSANDRA_CONTACT_POINTS": self.contact_points,
            "QIM_CASSANDRA_LOCAL_DC": self.local_dc,
            "QIM_CASSANDRA_KEYSPACE": self.keyspace,
        }

    def settings(self, timeout_seconds: float) -> CassandraSettings:
        """The same as settings, for a session beside the suite's."""
        return CassandraSettings.model_validate(
            {
                "cassandra_contact_points": self.contact_points,
                "cassandra_local_dc": self.local_dc,
                "cassandra_keyspace": self.keyspace,
                "cassandra_timeout_seconds": timeout_seconds,
            }
        )

    async def provide_tables(self) -> None:
        """Bring the keyspace to this release, as `qimctl schema migrate` does; costs a read where it is there already.

        Raises:
            SuiteError: Cassandra does not answer, or holds tables that this release did not make.
        """
        try:
            session = await CassandraSession.connect(
                self.settings(_MIGRATION_SECONDS), CassandraMetrics(CollectorRegistry()), keyspace=""
            )
            try:
                migrations = installed_migrations()
                if not (await schema_status(session, migrations)).complete:
                    await migrate(session, migrations, {self.local_dc: self.copies})
            finally:
                await session.close()
        except CassandraUnavailable as error:
            raise SuiteError(f"Cassandra at {self.contact_points}: {error.detail}") from error
        except (CassandraRefused, MigrationError) as error:
            raise SuiteError(f"Cassandra at {self.contact_points}, keyspace {self.keyspace}: {error}") from error

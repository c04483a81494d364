"""The comparison backend on the run's Cassandra: a keyspace with its tables, its stores, and a writer process."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.cassandra import _use, opened, settings_of
from tests.support.chat import Chat, Stores
from tests.support.writers import AnotherWriter, Writers, running_writers

from qim_common.cassandra import CassandraRequests, CassandraSession, CassandraSettings
from qim_common.cassandra.migrate import migrate
from qim_common.cassandra.migrations import COMPARISON_COMPONENTS, installed_migrations
from qim_common.ids import TenantId
from qim_devkit.cassandra import CassandraCluster
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.backends.scylla.commit_log import ScyllaCommitLog
from qim_writer.backends.scylla.membership import ScyllaMembershipStore
from qim_writer.backends.scylla.messages import ScyllaMessageStore

BUCKETS = 256
ALLOWED = {"QIM_BACKEND": "scylla", "QIM_ALLOW_COMPARISON_BACKEND": "yes", "QIM_REDIS_ADDR": ""}


def open_stores(session: CassandraRequests) -> Stores:
    """The stores of one writer; several on one session are several writers that share nothing else."""
    archive = CassandraArchive(session, installation_id="scylla-test", buckets=BUCKETS)
    return Stores(
        ScyllaMembershipStore(session, archive, buckets=BUCKETS),
        ScyllaMessageStore(archive),
        ScyllaCommitLog(session, archive),
        BUCKETS,
    )


@pytest.fixture(scope="session")
def scylla_schema(cassandra_run: tuple[CassandraCluster, Path]) -> CassandraSettings:
    """The settings of a keyspace with the comparison's tables, made once a run."""
    migrations = installed_migrations(COMPARISON_COMPONENTS)
    digest = hashlib.sha256("".join(one.checksum for one in migrations).encode()).hexdigest()[:8]
    settings = settings_of(cassandra_run[0], keyspace=f"qim_scylla_{digest}")

    async def apply() -> None:
        async with opened(settings, keyspace="") as session:
            await migrate(session, migrations, {cassandra_run[0].datacenter: 3})

    with _use(cassandra_run, 1):
        asyncio.run(apply())
    return settings


@pytest_asyncio.fixture
async def scylla_session(
    cassandra: CassandraCluster, scylla_schema: CassandraSettings
) -> AsyncIterator[CassandraSession]:
    """A session on that keyspace."""
    async with opened(scylla_schema) as session:
        yield session


@pytest.fixture
def chat(scylla_session: CassandraSession, tenant: TenantId) -> Chat:
    """The writer's commands on the comparison backend, in a tenant of the test's own."""
    return Chat(open_stores(scylla_session), tenant=tenant)


def scylla_environment(cluster: CassandraCluster, settings: CassandraSettings) -> dict[str, str]:
    """The variables of a writer that runs on it."""
    return {
        **ALLOWED,
        "QIM_CASSANDRA_CONTACT_POINTS": cluster.contact_points,
        "QIM_CASSANDRA_LOCAL_DC": cluster.datacenter,
        "QIM_CASSANDRA_KEYSPACE": settings.cassandra_keyspace,
        "QIM_CASSANDRA_TIMEOUT_SECONDS": "20",
    }


@asynccontextmanager
async def scylla_writers(directory: Path, environment: dict[str, str]) -> AsyncIterator[Writers]:
    """A writer process on the comparison backend, over mTLS. The suite that makes its identities has a Valkey, of
    which that writer is not told."""
    async with running_writers(directory, valkeys=1) as beside, beside.another(**environment) as process:
        writers = Writers(beside.suite, process.address)
        try:
            yield writers
        finally:
            await writers.close()


async def refused_start(writers: Writers, environment: Mapping[str, str | None]) -> tuple[int | None, str]:
    """Exit status and words of a writer that must not start; None removes a variable."""
    values = {**AnotherWriter(writers.suite, {}).environment, **environment}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qim_writer.main"),
        env={name: value for name, value in values.items() if value is not None},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(60):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert b"READY" not in output
    return process.returncode, output.decode()

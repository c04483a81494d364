"""A real Cassandra cluster for tests: `cassandra` is shared, `breakable_cassandra` may be broken and is mended after.

One cluster of three nodes serves the whole test run, also several workers of it: it takes as long to start as many
tests take. Tests keep apart by tenants of their own. The workers agree by locks on files, which the kernel gives up
when one of them dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from tests.support.valkey import missing

from qim_common.cassandra import CassandraSession, CassandraSettings
from qim_common.ids import TenantId
from qim_common.telemetry.metrics import CassandraMetrics
from qim_devkit.cassandra import CassandraCluster, CassandraNotAvailable, find_java, provide_jars
from qim_devkit.suite import Suite
from qim_devkit.tiered import Backend, CassandraPlace, new_tenant, shared_keyspace

RUNNING_VARIABLE = "QIM_TEST_CASSANDRA"
"""Names the directory of a cluster that `make cassandra-up` left running: tests use that one, and start at once."""

CASSANDRA_MARKS = (pytest.mark.cassandra, pytest.mark.timeout(600))
"""Of every test that uses the cluster: it may have to wait for the start."""

_BUSY: Final = {"QIM_CASSANDRA_TIMEOUT_SECONDS": "20"}
"""Tests share two cores with the nodes: a slow answer is not a fault."""

_TENANTS = itertools.count(random.randrange(2**40, 2**62))  # noqa: S311  no secret
_LAST_USER_SECONDS = 600.0


def require_cassandra() -> None:
    """Java, Maven and the jars; see `missing`."""
    try:
        find_java()
        provide_jars()
    except CassandraNotAvailable as error:
        missing(f"no Cassandra: {error}")


@dataclass(frozen=True, slots=True)
class TieredPlace:
    """The running cluster and a keyspace with all tables, for suites of the backend `tiered`."""

    cluster: CassandraCluster
    keyspace: str

    def suite(self, directory: Path, *, env_overrides: Mapping[str, str] | None = None, **options: Any) -> Suite:
        """A suite on it, not started yet, with a tenant of its own (`suite.tenants[0]`), because others share it."""
        options.setdefault("tenants", (new_tenant(),))
        return Suite(
            directory,
            backend=Backend.TIERED,
            cassandra=self.cluster,
            keyspace=self.keyspace,
            env_overrides=_BUSY | dict(env_overrides or {}),
            **options,
        )


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, how)
        yield


@pytest.fixture(scope="session")
def cassandra_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CassandraCluster, Path]]:
    """The run's cluster and the directory of its locks; tests ask for `cassandra`."""
    require_cassandra()
    base = tmp_path_factory.getbasetemp()
    # Workers of one run have a common parent; the cluster's directory lies there, where each of them finds it.
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "cassandra"
    shared.mkdir(exist_ok=True)
    users = shared / "users"
    with users.open("a") as use:
        with _locked(shared / "start", fcntl.LOCK_EX):
            fcntl.flock(use, fcntl.LOCK_SH)
            running = os.environ.get(RUNNING_VARIABLE)
            cluster = CassandraCluster(Path(running) if running else shared / "cluster", tether=not running)
            starter = not cluster.running
            if starter:
                cluster.start()
        yield cluster, shared
        fcntl.flock(use, fcntl.LOCK_UN)
    # A node ends with the worker that started it, or started it again: each waits for the others.
    _wait_for_other_users(users)
    if starter:
        cluster.kill()


def _wait_for_other_users(users: Path) -> None:
    # The time limit that runs now is that of the worker's last test, whichever it was.
    signal.setitimer(signal.ITIMER_REAL, 0)
    end = time.monotonic() + _LAST_USER_SECONDS
    with users.open("a") as file:
        while time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.1)
            else:
                return


@contextlib.contextmanager
def _use(run: tuple[CassandraCluster, Path], how: int) -> Iterator[CassandraCluster]:
    cluster, shared = run
    # Whoever waits for the cluster holds the gate: those who share it do not pass one who wants it alone.
    with (shared / "use").open("a") as file:
        with _locked(shared / "gate", fcntl.LOCK_EX):
            fcntl.flock(file, how)
        yield cluster


@pytest.fixture
def cassandra(cassandra_run: tuple[CassandraCluster, Path]) -> Iterator[CassandraCluster]:
    """The running cluster, which all tests share."""
    with _use(cassandra_run, fcntl.LOCK_SH) as cluster:
        yield cluster


@pytest.fixture
def breakable_cassandra(cassandra_run: tuple[CassandraCluster, Path]) -> Iterator[CassandraCluster]:
    """The cluster for this test alone, which may kill and pause nodes; they are mended afterwards."""
    with alone_with(cassandra_run) as cluster:
        yield cluster


@contextlib.contextmanager
def shared_with(run: tuple[CassandraCluster, Path]) -> Iterator[CassandraCluster]:
    """The cluster together with others, none of whom breaks it, for a fixture that serves more than one test."""
    with _use(run, fcntl.LOCK_SH) as cluster:
        yield cluster


@contextlib.contextmanager
def alone_with(run: tuple[CassandraCluster, Path]) -> Iterator[CassandraCluster]:
    """The cluster while no other test uses it, for a fixture that serves more than one test; mended afterwards."""
    with _use(run, fcntl.LOCK_EX) as cluster:
        try:
            yield cluster
        finally:
            cluster.heal()


@pytest.fixture(scope="session")
def cassandra_schema(cassandra_run: tuple[CassandraCluster, Path]) -> CassandraSettings:
    """The settings of a keyspace with this release's tables, made once a run: a table takes seconds."""
    place = CassandraPlace.of(cassandra_run[0], shared_keyspace())
    with _use(cassandra_run, fcntl.LOCK_SH):
        asyncio.run(place.provide_tables())
    return settings_of(cassandra_run[0], keyspace=place.keyspace)


@pytest.fixture(scope="module")
def module_cassandra(
    cassandra_run: tuple[CassandraCluster, Path], cassandra_schema: CassandraSettings
) -> Iterator[TieredPlace]:
    """The cluster for suites that live as long as their module, whose tests do not ask for `cassandra` then."""
    with _use(cassandra_run, fcntl.LOCK_SH) as cluster:
        yield TieredPlace(cluster, cassandra_schema.cassandra_keyspace)


def settings_of(cluster: CassandraCluster, **others: object) -> CassandraSettings:
    """How to reach the cluster; the machine may be busy, so that the timeout is long."""
    values: dict[str, object] = {"timeout_seconds": 20.0, **others}
    return CassandraSettings.model_validate(
        {
            "cassandra_contact_points": cluster.contact_points,
            "cassandra_local_dc": cluster.datacenter,
            **{f"cassandra_{name}": value for name, value in values.items()},
        }
    )


@contextlib.asynccontextmanager
async def opened(settings: CassandraSettings, *, keyspace: str | None = None) -> AsyncIterator[CassandraSession]:
    """A session of a test's own."""
    session = await CassandraSession.connect(settings, CassandraMetrics(CollectorRegistry()), keyspace=keyspace)
    try:
        yield session
    finally:
        await session.close()


@pytest_asyncio.fixture(scope="session")
async def cassandra_run_session(cassandra_schema: CassandraSettings) -> AsyncIterator[CassandraSession]:
    """The run's one session; tests ask for `cassandra_session`."""
    async with opened(cassandra_schema) as session:
        yield session


@pytest.fixture
def cassandra_session(cassandra: CassandraCluster, cassandra_run_session: CassandraSession) -> CassandraSession:
    """A session on a keyspace with all tables, which all tests share."""
    return cassandra_run_session


@pytest.fixture
def tenant() -> TenantId:
    """A tenant of the test's own."""
    return TenantId(next(_TENANTS))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test that asks for the cluster is marked so, and may have to wait for its start."""
    for item in items:
        if "cassandra_run" in getattr(item, "fixturenames", ()):
            for mark in CASSANDRA_MARKS:
                item.add_marker(mark)

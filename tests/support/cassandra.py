"""A real Cassandra cluster for tests: `cassandra` is shared, `breakable_cassandra` may be broken and is mended after.

One cluster of three nodes serves the whole test run, also several workers of it: it takes as long to start as many
tests take. Tests keep apart by tenants of their own. The workers agree by locks on files, which the kernel gives up
when one of them dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qim_common.ids import TenantId
from qim_devkit.cassandra import CassandraCluster, CassandraNotAvailable, find_java, provide_jars

_TENANTS = itertools.count(random.randrange(2**40, 2**62))  # noqa: S311  no secret
_LAST_USER_SECONDS = 600.0


def require_cassandra() -> None:
    """Skip the test where Java or Maven is missing; fail it in CI, where a skip would hide that nothing was tested."""
    try:
        find_java()
        provide_jars()
    except CassandraNotAvailable as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have Cassandra: {error}")
        pytest.skip(f"no Cassandra: {error}")


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
            cluster = CassandraCluster(shared / "cluster", tether=True)
            starter = not cluster.running
            if starter:
                cluster.start()
        yield cluster, shared
        fcntl.flock(use, fcntl.LOCK_UN)
    if starter:
        # The nodes end with the worker that started them: it waits for the others.
        _wait_for_other_users(users)
        cluster.kill()


def _wait_for_other_users(users: Path) -> None:
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
    with _use(cassandra_run, fcntl.LOCK_EX) as cluster:
        try:
            yield cluster
        finally:
            cluster.heal()


@pytest.fixture
def tenant() -> TenantId:
    """A tenant of the test's own."""
    return TenantId(next(_TENANTS))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test that asks for the cluster is marked so, and may have to wait for its start."""
    for item in items:
        if "cassandra_run" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cassandra)
            item.add_marker(pytest.mark.timeout(600))

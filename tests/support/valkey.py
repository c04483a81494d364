"""A real Valkey for tests: `valkey` is one of the test's own, `valkey_session` a shared one, emptied for each test."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest
import redis

from qim_common.redis import Instance
from qim_devkit.valkey import ValkeyNotAvailable, ValkeyServer, find_server

CONNECTED_SECONDS = 20.0


async def connected_again(instance: Instance) -> None:
    """Wait, with a bound, until calls on `instance` are written."""
    async with asyncio.timeout(CONNECTED_SECONDS):
        while not instance.connected:  # noqa: ASYNC110  no event: a connection is lost and made in the background
            await asyncio.sleep(0.005)


def missing(what: str) -> NoReturn:
    """Skip the test, as this machine lacks what it runs on. In CI it fails, and with QIM_TEST_SKIP=no the whole run
    ends: a skip there would hide that nothing was tested.
    """
    if os.environ.get("QIM_TEST_SKIP") == "no":
        pytest.exit(what, returncode=1)
    if os.environ.get("CI"):
        pytest.fail(f"CI must not skip this: {what}")
    pytest.skip(what)


def require_valkey() -> None:
    """See `missing`."""
    try:
        find_server()
    except ValkeyNotAvailable as error:
        missing(f"no Valkey server: {error}")


@pytest.fixture
def valkey() -> Iterator[ValkeyServer]:
    """A running server of the test's own: it may kill, restart and reconfigure it."""
    require_valkey()
    with ValkeyServer() as server:
        yield server


@contextmanager
def replica_of(primary: ValkeyServer) -> Iterator[ValkeyServer]:
    """A running replica that has everything of `primary` and is as durable."""
    replicaof = f"{primary.host} {primary.port}"
    with ValkeyServer(options={"replicaof": replicaof}) as replica:
        wait_for_link(replica)
        yield replica


def wait_for_link(replica: ValkeyServer) -> None:
    """Wait, with a bound, until a replica has synchronized and follows its primary."""
    end = time.monotonic() + CONNECTED_SECONDS
    with redis.Redis(host=replica.host, port=replica.port, protocol=2) as client:
        while client.info("replication").get("master_link_status") != "up":
            assert time.monotonic() < end, "the replica does not follow its primary"
            time.sleep(0.005)


@pytest.fixture(scope="session")
def valkey_shared_server() -> Iterator[ValkeyServer]:
    """The server behind `valkey_session`; tests ask for that one."""
    require_valkey()
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def valkey_session(valkey_shared_server: ValkeyServer) -> ValkeyServer:
    """A running, empty server that all tests share: cheap, but it must be left running with its settings."""
    with redis.Redis(host=valkey_shared_server.host, port=valkey_shared_server.port, protocol=2) as client:
        client.flushall()
        client.script_flush()
    return valkey_shared_server

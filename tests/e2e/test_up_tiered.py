"""`make up BACKEND=tiered`: the cluster and the suite on it, as one thing that Ctrl-C ends."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from pathlib import Path

import pytest
from tests.support.cassandra import CASSANDRA_MARKS, require_cassandra
from tests.support.valkey import require_valkey

from qim_client.config import ClientConfig
from qim_client.gateway import GatewayClient
from qim_client.names import user_id
from qim_common.ids import ConversationId, TenantId
from qim_devkit.cassandra import CassandraCluster
from qim_devkit.cassandra.cluster import STATE_FILE, free_ports

UP = (sys.executable, "-m", "qim_devkit.up", "up")
TENANT = TenantId(1)
START_SECONDS = 240.0
pytestmark = [pytest.mark.server, *CASSANDRA_MARKS]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A working directory with a cluster of one node, which does not run yet: three take three times as long."""
    require_valkey()
    require_cassandra()
    directory = tmp_path / ".qim" / "cassandra"
    directory.mkdir(parents=True)
    native, storage = free_ports(["127.0.0.1"])
    (directory / STATE_FILE).write_text(json.dumps({"nodes": 1, "native_port": native, "storage_port": storage}))
    return tmp_path


async def start_up(directory: Path, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *UP, *options, cwd=directory, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def refused(directory: Path, *options: str) -> str:
    process = await start_up(directory, *options)
    async with asyncio.timeout(START_SECONDS):
        output, errors = await process.communicate()
    assert (process.returncode, output) == (1, b"")
    return errors.decode()


async def test_up_on_a_cluster_that_does_not_run_starts_it_and_ends_it_and_its_data_stands_beside_that_of_redis(
    project: Path,
) -> None:
    found: list[str] = []
    for _ in range(2):
        process = await start_up(project, "--backend", "tiered")
        try:
            assert process.stdout is not None
            async with asyncio.timeout(START_SECONDS):
                line = (await process.stdout.readline()).decode()
            told = re.fullmatch(
                r"qim is ready \(writer \S+, session \S+, admin \S+; backend tiered, Cassandra (\S+), "
                r"keyspace (qim_[0-9a-f]{12})\)\. Try: \S+/qim --config .qim/tiered/client.toml "
                r"--as ana group create hikers ben cara\n",
                line,
            )
            assert told, line
            found.append(told[2])
            cluster = CassandraCluster.at(project / ".qim" / "cassandra")
            assert cluster.running
            assert told[1] == cluster.contact_points
            if len(found) == 1:
                group = await created(project)
            assert await members(project, group) == {user_id("ana"), user_id("ben")}
        finally:
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(START_SECONDS):
                output, errors = await process.communicate()
        assert (process.returncode, output) == (0, b"")
        assert errors.decode() == "Starting Cassandra (1 nodes), which may take half a minute\n"
        assert not cluster.running
    assert found[0] == found[1], "a directory keeps its keyspace"

    other = await refused(project, "--directory", ".qim/tiered")
    assert "its data was made with the backend tiered, not redis; start it with that" in other


async def test_up_refuses_a_cluster_whose_state_is_damaged(project: Path) -> None:
    (project / ".qim" / "cassandra" / STATE_FILE).write_text("{")
    damaged = await refused(project, "--backend", "tiered")
    assert f"{STATE_FILE} is damaged; remove" in damaged


async def created(project: Path) -> ConversationId:
    async with gateway(project) as client:
        return (await client.as_actor(TENANT, user_id("ana")).create_group([user_id("ben")])).group


async def members(project: Path, group: ConversationId) -> set[bytes]:
    async with gateway(project) as client:
        return {member.user async for member in client.as_actor(TENANT, user_id("ana")).members(group)}


def gateway(project: Path) -> GatewayClient:
    config = ClientConfig.load(project / ".qim" / "tiered" / "client.toml")
    return GatewayClient.from_profile(config.require_gateway(), timeout=20.0)

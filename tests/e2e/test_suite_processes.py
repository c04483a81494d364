"""The suite as `make up` starts it: real processes, mTLS, embedded Valkeys; restarts, crashes and clean ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from tests.support.valkey import require_valkey

from qim_client.config import ClientConfig, GatewayProfile
from qim_client.gateway import GatewayClient
from qim_client.names import user_id
from qim_common.ids import ConversationId, TenantId
from qim_devkit.processes import SuiteError
from qim_devkit.suite import MODULES, Suite

ANA, BEN, CARA = user_id("ana"), user_id("ben"), user_id("cara")
TENANT = TenantId(1)
START_SECONDS = 60.0
UP = (sys.executable, "-m", "qim_devkit.up", "up")

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def needs_valkey() -> None:
    require_valkey()


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    """One for all tests that leave everything running."""
    require_valkey()
    async with Suite(tmp_path_factory.mktemp("processes") / "suite") as running:
        yield running


async def create_group(suite: Suite) -> ConversationId:
    async with gateway(suite) as client:
        created = await client.as_actor(TENANT, ANA).create_group([BEN, CARA])
        return created.group


async def members_of(suite: Suite, group: ConversationId) -> set[bytes]:
    async with gateway(suite) as client:
        return {member.user async for member in client.as_actor(TENANT, ANA).members(group)}


def gateway(suite: Suite) -> GatewayClient:
    return GatewayClient.from_profile(gateway_profile(suite), timeout=10.0)


def gateway_profile(suite: Suite) -> GatewayProfile:
    """What the command lines of this suite read."""
    return ClientConfig.load(suite.paths.client_config).require_gateway()


async def test_every_process_serves_and_ends_cleanly(tmp_path: Path) -> None:
    suite = Suite(tmp_path / "suite")
    async with suite:
        assert set(suite.addresses) == set(MODULES)
        assert all(suite.running(name) for name in (*MODULES, "valkey-0", "valkey-1"))
        assert len({suite.pid(name) for name in (*MODULES, "valkey-0", "valkey-1")}) == 5
    assert not any(suite.running(name) for name in (*MODULES, "valkey-0", "valkey-1"))
    for name in MODULES:
        assert "Traceback" not in suite.log(name).read_text()


async def test_no_port_serves_a_peer_without_a_certificate(suite: Suite) -> None:
    trusted = grpc.ssl_channel_credentials(suite.pki.services_ca.read_bytes())
    for name, address in suite.addresses.items():
        for channel in (grpc.aio.insecure_channel(address), grpc.aio.secure_channel(address, trusted)):
            async with channel:
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                    "/qim.writer.v1.Writer/SendMessage"
                )
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(b"", timeout=5.0)
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE, name


async def test_a_restart_finds_the_data_and_the_ports(tmp_path: Path) -> None:
    async with Suite(tmp_path / "suite") as first:
        addresses = first.addresses
        group = await create_group(first)
    async with Suite(tmp_path / "suite") as second:
        assert second.addresses == addresses
        assert await members_of(second, group) == {ANA, BEN, CARA}


async def test_every_session_replica_serves_at_a_port_of_its_own_and_ends_alone(tmp_path: Path) -> None:
    async with Suite(tmp_path / "suite", sessions=3) as first:
        addresses = first.addresses
        assert set(addresses) == {*MODULES, "session-1", "session-2"}
        assert gateway_profile(first).session == addresses["session"]
        group = await create_group(first)
        await first.kill("session-1")
        for name in ("session", "session-2"):
            await listed(first, addresses[name], group)
        await first.restart("session-1")
        await listed(first, addresses["session-1"], group)
    # Fewer replicas, and again more: all find the ports that they had.
    async with Suite(tmp_path / "suite") as second:
        assert second.addresses == {name: addresses[name] for name in MODULES}
    async with Suite(tmp_path / "suite", sessions=3) as third:
        assert third.addresses == addresses


async def listed(suite: Suite, session: str, group: ConversationId) -> None:
    """Waits until a session replica has the group in a member's list."""
    async with GatewayClient(suite.addresses["writer"], session, suite.gateway_files(), timeout=10.0) as client:
        async with asyncio.timeout(START_SECONDS):
            ben = client.as_actor(TENANT, BEN)
            while [entry.conversation async for entry in ben.conversations()] != [group]:  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", ["writer", "valkey-0", "valkey-1"])
async def test_after_a_crash_and_a_restart_everything_acknowledged_is_there(suite: Suite, name: str) -> None:
    groups = [await create_group(suite) for _ in range(4)]
    await suite.kill(name)
    assert not suite.running(name)
    await suite.restart(name)
    for group in groups:
        assert await members_of(suite, group) == {ANA, BEN, CARA}


async def test_a_service_that_cannot_start_is_reported_in_its_own_words_and_nothing_stays(tmp_path: Path) -> None:
    suite = Suite(tmp_path / "suite", env_overrides={"QIM_LOG_LEVEL": "LOUD"})
    with pytest.raises(SuiteError, match=r"writer ended while starting, with exit status 2.*\n(.*\n)*.*QIM_LOG_LEVEL"):
        await suite.start()
    assert not any(suite.running(name) for name in (*MODULES, "valkey-0", "valkey-1"))


async def start_up(directory: Path, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *UP, *options, cwd=directory, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def first_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(START_SECONDS):
        return (await process.stdout.readline()).decode()


async def test_up_prints_one_line_refuses_a_second_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    process = await start_up(tmp_path)
    try:
        line = await first_line(process)
        assert re.fullmatch(
            r"qim is ready \(writer \S+, session \S+, admin \S+\)\. "
            r"Try: \S+/qim --as ana group create hikers ben cara\n",
            line,
        )
        ports = json.loads((tmp_path / ".qim" / "state.json").read_text())["ports"]
        assert f"127.0.0.1:{ports['writer']}" in line

        second = await start_up(tmp_path)
        output, errors = await second.communicate()
        assert second.returncode == 1
        assert output == b""
        assert f"`make up` already runs on {tmp_path}/.qim (process {process.pid})".encode() in errors

        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(START_SECONDS):
            output, errors = await process.communicate()
        assert (process.returncode, output, errors) == (0, b"", b"")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_up_starts_as_many_session_replicas_as_it_is_told(tmp_path: Path) -> None:
    process = await start_up(tmp_path, "--sessions", "2")
    try:
        line = await first_line(process)
        found = re.match(r"qim is ready \(writer (\S+), session (\S+), session-1 (\S+), admin \S+\)\. ", line)
        assert found, line
        assert len(set(found.groups())) == 3
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(START_SECONDS):
            output, errors = await process.communicate()
        assert (process.returncode, output, errors) == (0, b"", b"")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    refused = await start_up(tmp_path, "--sessions", "0")
    _, errors = await refused.communicate()
    assert refused.returncode == 2
    assert b"--sessions" in errors


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_no_process_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    process = await start_up(tmp_path)
    await first_line(process)
    children = [os.pidfd_open(int(pid)) for pid in children_of(process.pid)]
    assert len(children) == 5
    process.kill()
    await process.wait()
    for child in children:
        await ended(child)
        os.close(child)


def children_of(pid: int) -> list[str]:
    children: list[str] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            children += (task / "children").read_text().split()
    return children


async def ended(pidfd: int) -> None:
    """Returns once the process behind `pidfd` has ended: the descriptor is readable then."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(pidfd, event.set)
    try:
        async with asyncio.timeout(10):
            await event.wait()
    finally:
        loop.remove_reader(pidfd)

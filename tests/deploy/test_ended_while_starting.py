"""A container that is told to end before it serves ends: its first process is told once, and hears it if it listens."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.contained import Contained
from tests.support.sandbox import Sandbox, require_sandbox
from tests.support.valkey import require_valkey

from qim_common.server.runtime import ENDED_WHILE_STARTING
from qim_devkit.suite import MODULES, Suite

BOUND_SECONDS = 20.0
pytestmark = pytest.mark.server


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    """Has what a service needs to start: certificates, keys, bindings."""
    require_sandbox()
    require_valkey()
    async with Suite(tmp_path_factory.mktemp("suite"), valkeys=1) as running:
        yield running


@pytest_asyncio.fixture
async def silent() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A store that takes connections and says nothing; and whether somebody has come."""
    asked = asyncio.Event()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(ask, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}", asked


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("service", ["writer", "session"])
async def test_a_process_that_waits_for_its_store_ends_when_it_is_told_to(
    service: str, number: signal.Signals, suite: Suite, silent: tuple[str, asyncio.Event], tmp_path: Path
) -> None:
    address, asked = silent
    free = {f"QIM_{kind}LISTEN": "127.0.0.1:0" for kind in ("", "HEALTH_", "METRICS_")}
    environment = suite.environment(service) | free | {"QIM_REDIS_ADDR": address}
    command = [sys.executable, "-m", MODULES[service]]
    async with Contained(service, Sandbox(), command, environment, tmp_path / "log") as process:
        async with asyncio.timeout(BOUND_SECONDS):
            await asked.wait()
        process.signal(number)
        assert await process.wait(BOUND_SECONDS) == ENDED_WHILE_STARTING, process.log_tail()
    assert "READY" not in (tmp_path / "log").read_text()

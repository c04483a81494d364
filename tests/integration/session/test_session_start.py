"""The session process refuses to start where it could lose or mix up data, in one line that says why."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.valkey import require_valkey

from qim_devkit.suite import Suite
from qim_devkit.valkey import ValkeyServer

BOUND_SECONDS = 30.0
pytestmark = pytest.mark.server


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    """An installation whose writer runs, so that its instances carry their fingerprint."""
    require_valkey()
    directory: Path = tmp_path_factory.mktemp("session-start")
    async with Suite(directory / "suite", services=("writer", "session")) as running:
        await running.kill("session")
        yield running


async def start_with(suite: Suite, changes: Mapping[str, str]) -> tuple[int | None, str]:
    """Start the session process with another configuration; its exit code and what it said on stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "qim_session.main",
        env={**suite.environment("session"), **changes},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(BOUND_SECONDS):
        _, said = await process.communicate()
    return process.returncode, said.decode()


async def test_another_number_of_buckets_is_refused(suite: Suite) -> None:
    code, said = await start_with(suite, {"QIM_COMMIT_BUCKETS": "128"})
    assert code == 1
    assert "number of buckets is 256 on the instance and 128 in the configuration" in said
    assert "Traceback" not in said


async def test_instances_in_another_order_are_refused(suite: Suite) -> None:
    first, second = suite.valkey_addresses
    code, said = await start_with(suite, {"QIM_REDIS_ADDR": second, "QIM_MESSAGE_STORE_ADDRS": first})
    assert code == 1
    assert "position" in said


async def test_an_unsafe_session_instance_is_refused(suite: Suite) -> None:
    with ValkeyServer(options={"appendfsync": "everysec"}) as unsafe:
        code, said = await start_with(suite, {"QIM_SESSION_REDIS_ADDRS": unsafe.address})
    assert code == 1
    assert "appendfsync is 'everysec', set it to always" in said
    assert "Traceback" not in said


async def test_a_missing_setting_is_named(suite: Suite) -> None:
    code, said = await start_with(suite, {"QIM_TOKEN_KEY_FILE": "no-such-file"})
    assert code == 2
    assert "QIM_TOKEN_KEY_FILE" in said

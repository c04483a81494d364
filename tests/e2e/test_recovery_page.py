"""docs/recovery.md, "Try it on one machine": its commands, as they stand there, on a suite of `qim-dev up`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis
from tests.support.archived import until
from tests.support.cassandra import TieredPlace
from tests.support.valkey import require_valkey

from qim_common.keys import BucketKeys
from qim_devkit.protos import repository_root

SECONDS = 120.0
BUCKETS = 256
pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture
def blocks() -> list[str]:
    """The page's blocks of commands: the start, the loss, the recovery."""
    page = (repository_root() / "docs" / "recovery.md").read_text("utf-8")
    section = page.split("## Try it on one machine\n")[1].split("\n## ")[0]
    found = re.findall(r"^```\n(.*?)^```$", section, flags=re.DOTALL | re.MULTILINE)
    assert len(found) == 3
    return found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A working directory in which the page's paths of programs lead to the installed ones."""
    require_valkey()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    return tmp_path


async def shell(commands: str, checkout: Path) -> str:
    """What the commands print, of which each must succeed."""
    status, output = await ended(commands, checkout)
    assert status == 0, output
    return output


async def answered(commands: str, checkout: Path) -> str:
    """What the commands print once the services use the instance again, which they find by themselves."""
    output = ""

    async def look() -> bool:
        nonlocal output
        status, output = await ended(commands, checkout)
        assert status == 0 or "INSTANCE_FENCED" in output or "BACKEND_UNAVAILABLE" in output, output
        return status == 0

    await until(look)
    return output


async def ended(commands: str, checkout: Path) -> tuple[int | None, str]:
    """The exit status of the commands, which end at the first that fails, and what they print."""
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-euc",
        commands,
        cwd=checkout,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(SECONDS):
        output, _ = await process.communicate()
    return process.returncode, output.decode()


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("QIM_")}


@contextlib.asynccontextmanager
async def started(command: str, checkout: Path, place: TieredPlace) -> AsyncIterator[asyncio.subprocess.Process]:
    """The supervisor, on the cluster that runs for the tests, once it is ready."""
    process = await asyncio.create_subprocess_exec(
        *shlex.split(command),
        f"--cassandra={place.cluster.directory}",
        cwd=checkout,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            assert (await process.stdout.readline()).startswith(b"qim is ready")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            await process.wait()


async def archived(checkout: Path) -> None:
    """Wait until the archive has everything."""
    (address,) = re.findall(r"^QIM_REDIS_ADDR=(\S+)$", (checkout / ".qim/trial/qimctl.env").read_text(), re.MULTILINE)
    host, port = address.split(":")

    def caught_up() -> bool:
        with redis.Redis(host, int(port)) as client, client.pipeline(transaction=False) as pipeline:
            for bucket in range(BUCKETS):
                pipeline.hmget(BucketKeys(bucket).meta, "rec", "arcd")
            counts = [tuple(int(count or 0) for count in pair) for pair in pipeline.execute()]
        return all(recorded == taken for recorded, taken in counts) and any(recorded for recorded, _ in counts)

    async def look() -> bool:
        return await asyncio.to_thread(caught_up)

    await until(look)


async def told(process: asyncio.subprocess.Process, words: str) -> None:
    """Wait for a line of the supervisor's standard error that begins with these words."""
    assert process.stderr is not None
    async with asyncio.timeout(SECONDS):
        async for line in process.stderr:
            if line.decode().startswith(words):
                return
    raise AssertionError(f"the supervisor ended without saying: {words}")


async def test_an_instance_that_went_back_is_fenced_told_and_recovered_by_the_pages_commands(
    blocks: list[str], checkout: Path, module_cassandra: TieredPlace
) -> None:
    start, loss, recovery = blocks
    before, between, lost = loss.split("sleep 3\n")
    recover, reading = recovery.split("sleep 3\n")
    client = before.splitlines()[0]
    async with started(start, checkout, module_cassandra) as suite:
        await shell(before, checkout)
        await archived(checkout)
        await shell(f"{client}\n{between}", checkout)
        await archived(checkout)
        await shell(f"{client}\n{lost}", checkout)
        await told(suite, "qim: valkey-0 has ended; it is started again with the data that is there")
        await told(suite, "qim: instance 0 (valkey-0) is fenced: the log of commit bucket")

        refused = await shell(f"{client}\n! .venv/bin/qim list", checkout)
        assert "INSTANCE_FENCED: the store of this conversation is fenced; an operator has to recover it" in refused
        assert "carried out" not in refused

        assert "the fence is lifted" in await shell(recover, checkout)
        history = await answered(f"{client}\n{reading}", checkout)
        assert "before the copy" in history
        assert "after the copy" in history

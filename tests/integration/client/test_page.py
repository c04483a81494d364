"""The examples of docs/client.md, exactly as they stand there."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.valkey import require_valkey
from tests.support.writers import until

from qim_client import GatewayClient, TenantId
from qim_client.names import user_id
from qim_devkit.suite import Suite

PAGE = Path(__file__).parents[3] / "docs" / "client.md"
CALLS, WITHOUT_FILE, GATEWAY = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
ANA, BEN = user_id("ana"), user_id("ben")


@pytest_asyncio.fixture
async def suite(tmp_path: Path) -> AsyncIterator[Suite]:
    """What `make up` leaves in the directory in which the examples run."""
    require_valkey()
    async with Suite(tmp_path / ".qim", services=("writer", "session")) as running:
        yield running


@asynccontextmanager
async def running(example: str, directory: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
    """An example as a process, and where its output goes."""
    script, output = directory / "example.py", directory / "output"
    script.write_text(example)
    with output.open("wb") as file:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("QIM_")}
        process = await asyncio.create_subprocess_exec(
            sys.executable, script, cwd=directory, env=environment, stdout=file, stderr=asyncio.subprocess.STDOUT
        )
        try:
            yield process, output
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def ended(process: asyncio.subprocess.Process, output: Path) -> list[str]:
    """The lines of an example that ended well."""
    async with asyncio.timeout(30):
        await process.wait()
    assert process.returncode == 0, output.read_text()
    return output.read_text().splitlines()


@pytest.mark.server
async def test_the_calls_answer_what_the_page_says(suite: Suite, tmp_path: Path) -> None:
    async with running(CALLS, tmp_path) as (process, output):
        lines = await ended(process, output)
    assert lines[:4] == [
        "seq 1, again 1",
        "seqs [2, 3, 4]",
        "history [b'number 2', b'number 1', b'number 0', b'hello']",
        "unread 3",
    ]
    assert lines[4] in ("conversations 0", "conversations 1")
    assert lines[5:] == ["refused True"]


@pytest.mark.server
async def test_the_gateway_brings_what_is_said_and_goes_on_where_it_ended(suite: Suite, tmp_path: Path) -> None:
    async with GatewayClient(suite.addresses["writer"], suite.addresses["session"], suite.gateway_files()) as client:
        ana = client.as_actor(TenantId(1), ANA)
        async with running(GATEWAY, tmp_path) as (process, output):
            await until((tmp_path / "ben.token").exists)
            await ana.send_to_person(BEN, b"hello")
            await until(lambda: "message 1 b'hello'" in output.read_text())
            await ana.send_to_person(BEN, b"bye")
            assert await ended(process, output) == ["message 1 b'hello'", "message 2 b'bye'"]
        await ana.send_to_person(BEN, b"missed")
        await ana.send_to_person(BEN, b"bye")
        async with running(GATEWAY, tmp_path) as (process, output):
            first, *rest = await ended(process, output)
    assert first.startswith("read the list again [")
    assert rest == ["message 3 b'missed'", "message 4 b'bye'"]


@pytest.mark.server
async def test_a_client_can_be_made_of_certificates_alone(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = suite.gateway_files()
    for source, name in ((files.cert, "gateway.crt"), (files.key, "gateway.key"), (files.ca, "services-ca.crt")):
        shutil.copy(source, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(WITHOUT_FILE, str(PAGE), "exec"), names)  # noqa: S102  the page's own lines
    client: GatewayClient = names["connect"]()
    await client.close()

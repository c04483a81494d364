"""The real writer as a process over mTLS, and the development gateway's client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.valkey import require_valkey

from qim_client import GatewayClient
from qim_devkit.suite import Suite


@pytest_asyncio.fixture(scope="session")
async def writer_suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    """A writer whose streams end after one second, so that streams of the client meet their maximum age."""
    require_valkey()
    directory = tmp_path_factory.mktemp("client")
    overrides = {"QIM_STREAM_MAX_AGE_SECONDS": "1"}
    async with Suite(directory, services=("writer",), env_overrides=overrides) as suite:
        yield suite


@pytest_asyncio.fixture
async def gateway(writer_suite: Suite) -> AsyncIterator[GatewayClient]:
    """The development gateway."""
    writer = writer_suite.addresses["writer"]
    async with GatewayClient(writer, writer, writer_suite.gateway_files()) as client:
        yield client

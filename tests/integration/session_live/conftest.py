"""The real writer and two replicas of the session service over mTLS, and gateways that read live streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from tests.support.live import LiveReader
from tests.support.members import Operators, operators
from tests.support.valkey import require_valkey

from qim_client import ActorClient, GatewayClient
from qim_common.ids import DeviceId, TenantId, UserId, uuid7
from qim_devkit.suite import Suite

TENANT = TenantId(1)


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    """Tokens come often here, so that tests need not wait for them."""
    require_valkey()
    overrides = {"QIM_SUBSCRIBE_TOKEN_SECONDS": "0.2"}
    directory = tmp_path_factory.mktemp("live")
    async with Suite(directory, services=("writer", "session"), sessions=2, env_overrides=overrides) as running:
        yield running


@pytest_asyncio.fixture(scope="module")
async def gateways(suite: Suite) -> AsyncIterator[list[GatewayClient]]:
    """One client of each replica."""
    writer, files = suite.addresses["writer"], suite.gateway_files()
    clients = [GatewayClient(writer, suite.addresses[name], files, timeout=10.0) for name in suite.session_names]
    yield clients
    for client in clients:
        await client.close()


@pytest.fixture
def gateway(gateways: list[GatewayClient]) -> GatewayClient:
    """The client of the first replica."""
    return gateways[0]


Person = Callable[[], ActorClient]


@pytest.fixture
def person(gateway: GatewayClient) -> Person:
    """Makes a new person on a device of their own, so that tests do not meet each other's conversations."""
    return lambda: gateway.as_actor(TENANT, UserId(uuid7()), DeviceId(uuid7()))


@pytest_asyncio.fixture
async def live(gateway: GatewayClient) -> AsyncIterator[LiveReader]:
    """A reader on the first replica."""
    async with LiveReader(gateway) as reader:
        yield reader


@pytest_asyncio.fixture
async def elsewhere(gateways: list[GatewayClient]) -> AsyncIterator[LiveReader]:
    """A reader on the second replica."""
    async with LiveReader(gateways[1]) as reader:
        yield reader


@pytest_asyncio.fixture(scope="module")
async def operator(suite: Suite) -> AsyncIterator[Operators]:
    """Who adds and removes people."""
    async with operators(suite, TENANT) as acting:
        yield acting

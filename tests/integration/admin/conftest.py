"""The admin service and the real writer as processes over mTLS, shared by the tests of this directory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import pytest_asyncio
from tests.support.command_lines import Ended, run_program
from tests.support.valkey import require_valkey

from qim_client import GatewayClient, OperatorClient
from qim_client.names import group_id, user_id
from qim_common.ids import ConversationId, TenantId, UserId, show
from qim_devkit.paths import SuitePaths
from qim_devkit.suite import Suite

TENANT = TenantId(1)
BINDINGS = """
gateways: {dev-gateway: {tenants: [1, 2]}}
operators:
  dev-operator: {tenants: [1, 2], roles: [admin]}
  vic: {tenants: [1], roles: [viewer]}
  mo: {tenants: [1], roles: [moderator]}
  nora: {tenants: [1], roles: []}
backends: {dev-backend: {tenants: [1]}}
"""


@pytest_asyncio.fixture(scope="session")
async def admin_suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    """Writer and admin; the tests leave them running."""
    require_valkey()
    directory = tmp_path_factory.mktemp("admin")
    SuitePaths(directory).bindings.write_text(BINDINGS)
    async with Suite(directory, services=("writer", "admin"), env_overrides={"QIM_LOG_FORMAT": "json"}) as suite:
        yield suite


@pytest_asyncio.fixture
async def gateway(admin_suite: Suite) -> AsyncIterator[GatewayClient]:
    """The development gateway."""
    writer = admin_suite.addresses["writer"]
    async with GatewayClient(writer, writer, admin_suite.gateway_files()) as client:
        yield client


@pytest_asyncio.fixture
async def operator(admin_suite: Suite) -> AsyncIterator[OperatorClient]:
    """The development operator in tenant 1."""
    async with OperatorClient(admin_suite.addresses["admin"], admin_suite.operator_files(), TENANT) as client:
        yield client


@pytest_asyncio.fixture
async def backend(admin_suite: Suite) -> AsyncIterator[OperatorClient]:
    """The development back end in tenant 1."""
    async with OperatorClient(admin_suite.addresses["admin"], admin_suite.backend_files(), TENANT) as client:
        yield client


Named = Callable[[str], AbstractAsyncContextManager[OperatorClient]]


@pytest.fixture
def operator_named(admin_suite: Suite) -> Named:
    """Any operator by the certificate's name, in tenant 1."""

    def client(name: str) -> OperatorClient:
        files = admin_suite.pki.issue("operator", name)
        return OperatorClient(admin_suite.addresses["admin"], files, TENANT)

    return client


def journal(suite: Suite, group: bytes) -> list[dict[str, Any]]:
    """The journal's lines about one group, oldest first."""
    lines = [json.loads(line) for line in suite.log("admin").read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("logger") == "qim_admin.journal" and line["group"] == show(group)]


async def named_group(gateway: GatewayClient, name: str, *members: UserId, messages: int = 0) -> ConversationId:
    """Ana's group under a name, and so many messages of hers."""
    ana = gateway.as_actor(TENANT, user_id("ana"))
    group = (await ana.create_group(members, group=group_id(name))).group
    for number in range(messages):
        await ana.send_to(group, b"%d" % number)
    return group


async def qimctl(suite: Suite, line: str, *, stdin: str = "", columns: int = 200) -> Ended:
    """A run of `qimctl`, its arguments as typed, without any space in one of them."""
    environment = {"QIM_CONFIG": str(suite.paths.client_config)}
    return await run_program("qimctl", *line.split(), environment=environment, stdin=stdin, columns=columns)

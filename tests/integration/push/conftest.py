"""The real writer and session service, a receiver on loopback, and the push process between them."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from tests.support.members import Operators, operators
from tests.support.valkey import require_valkey
from tests.support.webhook_receiver import WebhookReceiver

from qim_client import ActorClient, GatewayClient
from qim_common.identity import Role
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, uuid7
from qim_devkit.ports import allocate
from qim_devkit.processes import ServiceProcess
from qim_devkit.suite import Suite

TENANT = TenantId(1)


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    """Groups of more than five are big here."""
    require_valkey()
    overrides = {"QIM_PROJECTION_FANOUT_MAX_MEMBERS": "5"}
    directory = tmp_path_factory.mktemp("push")
    async with Suite(directory, services=("writer", "session"), env_overrides=overrides) as running:
        yield running


@pytest_asyncio.fixture(scope="module")
async def gateway(suite: Suite) -> AsyncIterator[GatewayClient]:
    client = GatewayClient(suite.addresses["writer"], suite.addresses["session"], suite.gateway_files(), timeout=10.0)
    yield client
    await client.close()


@pytest_asyncio.fixture(scope="module")
async def operator(suite: Suite) -> AsyncIterator[Operators]:
    async with operators(suite, TENANT) as acting:
        yield acting


Person = Callable[[], ActorClient]


@pytest.fixture
def person(gateway: GatewayClient) -> Person:
    """Makes a new person, so that tests do not meet each other's conversations."""
    return lambda: gateway.as_actor(TENANT, UserId(uuid7()), DeviceId(uuid7()))


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with WebhookReceiver(secrets.token_bytes(32)) as listening:
        yield listening


@dataclass
class Push:
    """Starts push processes of one consumer."""

    suite: Suite
    receiver: WebhookReceiver
    directory: Path
    name: str
    metrics: dict[ServiceProcess, str] = field(default_factory=dict)
    health: dict[ServiceProcess, str] = field(default_factory=dict)
    environments: dict[ServiceProcess, dict[str, str]] = field(default_factory=dict)

    def process(self, **settings: str) -> ServiceProcess:
        """One that is not started. `settings` are QIM_ variables."""
        ports = allocate(("health", "metrics"), {})
        health, metrics = (f"127.0.0.1:{port}" for port in ports.values())
        secret = self.directory / "secret"
        secret.write_text(self.receiver.secret.hex() + "\n")
        files = self.suite.pki.issue(Role.SESSION, "push-0")
        environment = self.suite.environment("session") | {
            "QIM_HEALTH_LISTEN": health,
            "QIM_METRICS_LISTEN": metrics,
            "QIM_TLS_CERT_FILE": str(files.cert),
            "QIM_TLS_KEY_FILE": str(files.key),
            "QIM_PUSH_NAME": self.name,
            "QIM_WEBHOOK_URL": self.receiver.url,
            "QIM_WEBHOOK_SECRET_FILE": str(secret),
            "QIM_WEBHOOK_TIMEOUT_SECONDS": "2",
        }
        log = self.directory / f"push-{ports['health']}.log"
        process = ServiceProcess("push", "qim_session.push_webhook", environment | settings, log, health)
        self.metrics[process], self.health[process] = metrics, health
        self.environments[process] = environment | settings
        return process

    async def counts(self, process: ServiceProcess, sample: str) -> bool:
        """Whether a counter of a process has moved, by its name with its labels."""
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://{self.metrics[process]}/metrics")
        return any(line.startswith(f"{sample} ") and not line.endswith(" 0.0") for line in answer.text.splitlines())

    @asynccontextmanager
    async def running(self, **settings: str) -> AsyncIterator[ServiceProcess]:
        """One that ends in order with the context."""
        process = self.process(**settings)
        await process.start()
        try:
            yield process
            assert await process.stop(), process.log_tail()
        finally:
            await process.kill()


@pytest.fixture
def push(suite: Suite, receiver: WebhookReceiver, tmp_path: Path) -> Push:
    """A consumer of the test's own, which starts with the oldest message that is not too old."""
    return Push(suite, receiver, tmp_path, uuid.uuid4().hex)


def shown(conversation: ConversationId | UserId) -> str:
    """An id as the receiver sees it."""
    return str(uuid.UUID(bytes=conversation))

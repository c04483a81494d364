"""A writer over real mTLS on real Valkeys, callers with certificates of every kind, and a way to its keys."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.support.valkey import require_valkey

from qim.membership.v1 import membership_pb2, membership_pb2_grpc
from qim.writer.v1 import group_control_pb2_grpc, internal_pb2_grpc, writer_pb2_grpc
from qim_client.actor import ActorClient
from qim_client.gateway import GatewayClient
from qim_client.names import user_id
from qim_client.retry import RetryPolicy
from qim_common.channels import ChannelProvider
from qim_common.identity import ACTOR_KEY, PRINCIPAL_KEY, Actor, Principal, PrincipalKind
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, uuid7
from qim_common.keys import BucketKeys, ConversationKeys
from qim_common.tls import PemFiles
from qim_common.topology import Topology
from qim_devkit.pki import CertFiles
from qim_devkit.ports import allocate
from qim_devkit.processes import ServiceProcess
from qim_devkit.provision import GATEWAY
from qim_devkit.suite import MODULES, Suite

TENANT = TenantId(1)
OTHER_TENANT = TenantId(2)
FORBIDDEN_TENANT = TenantId(3)
ANA, BEN, CARA, DAN = (user_id(name) for name in ("ana", "ben", "cara", "dan"))
OPERATOR = Principal(PrincipalKind.OPERATOR, "dev-operator", TENANT, None)
SECONDS = 10.0
Pairs = tuple[tuple[str, str | bytes], ...]


def person(number: int) -> UserId:
    """One of many people, from 0."""
    return UserId(b"p" + struct.pack(">15s", str(number).encode()))


def acting(user: UserId, tenant: TenantId = TENANT) -> Actor:
    """An end user on a device of their own."""
    return Actor(tenant, user, DeviceId(user))


def as_actor(actor: Actor) -> Pairs:
    """The metadata of a gateway's call for an end user."""
    return ((ACTOR_KEY, actor.to_message().SerializeToString()),)


def as_principal(principal: Principal = OPERATOR) -> Pairs:
    """The metadata of the admin service's call for an operator or a back end."""
    return ((PRINCIPAL_KEY, principal.to_message().SerializeToString()),)


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for a condition that another process brings about."""
    async with asyncio.timeout(SECONDS):
        while not (met if isinstance(met := condition(), bool) else await met):  # noqa: ASYNC110  no event crosses processes
            await asyncio.sleep(0.005)


class Caller:
    """The generated stubs over one certificate."""

    def __init__(self, address: str, files: CertFiles, **options: Any) -> None:
        self.provider = ChannelProvider(
            address,
            PemFiles(files.cert, files.key, (files.ca,)),
            options=tuple(("grpc." + name, value) for name, value in options.items()),
        )
        self.membership: membership_pb2_grpc.GroupMembershipStub
        self.writer: writer_pb2_grpc.WriterStub
        self.internal: internal_pb2_grpc.InternalStub
        self.control: group_control_pb2_grpc.GroupControlStub
        self.membership = self.provider.stub(membership_pb2_grpc.GroupMembershipStub)
        self.writer = self.provider.stub(writer_pb2_grpc.WriterStub)
        self.internal = self.provider.stub(internal_pb2_grpc.InternalStub)
        self.control = self.provider.stub(group_control_pb2_grpc.GroupControlStub)


class Writers:
    """A suite whose only service is the writer, and callers of that writer or, with `address`, of another one on the
    same Valkeys."""

    def __init__(self, suite: Suite, address: str = "") -> None:
        self.suite = suite
        self.address = address or suite.addresses["writer"]
        self.gateway_client = self.client()
        self._callers: dict[tuple[str, str, tuple[str, ...]], Caller] = {}
        self._redis = [
            redis.Redis(host=host, port=int(port), protocol=2)
            for host, _, port in (address.rpartition(":") for address in suite.valkey_addresses)
        ]
        state = suite.environment("writer")
        self.topology = Topology(suite.valkey_addresses, 256, state["QIM_INSTALLATION_ID"])

    def client(
        self, address: str = "", *, timeout: float = SECONDS, policy: RetryPolicy | None = None
    ) -> GatewayClient:
        """A gateway's typed client of the writer at `address`; close it."""
        target = address or self.address
        return GatewayClient(target, target, self.suite.gateway_files(), timeout=timeout, policy=policy)

    def user(self, user: UserId, tenant: TenantId = TENANT) -> ActorClient:
        """The typed client of one end user."""
        return self.gateway_client.as_actor(tenant, user)

    def caller(self, role: str, name: str = "", *, uris: Sequence[str] | None = None) -> Caller:
        """The stubs over a certificate of this role; kept for the next test."""
        name = name or (GATEWAY if role == "gateway" else f"{role}-0")
        key = (role, name, tuple(uris or ()))
        if key not in self._callers:
            self._callers[key] = Caller(self.address, self.suite.pki.issue(role, name, uris=uris))
        return self._callers[key]

    async def change(
        self,
        group: ConversationId,
        people: Sequence[UserId],
        *,
        remove: bool = False,
        principal: Principal = OPERATOR,
        request_id: bytes = b"",
        **fields: Any,
    ) -> membership_pb2.MembershipVersion:
        """AdminChangeMembers, as the admin service calls it."""
        kinds = membership_pb2.AdminMembershipChange
        return await self.caller("admin").membership.AdminChangeMembers(
            membership_pb2.AdminMembershipChange(
                request_id=request_id or uuid7(),
                group_id=group,
                kind=kinds.KIND_REMOVE if remove else kinds.KIND_ADD,
                user_ids=people,
                **fields,
            ),
            timeout=SECONDS,
            metadata=as_principal(principal),
        )

    async def recipients(self, group: ConversationId, version: int, tenant: TenantId = TENANT) -> list[bytes]:
        """The members at a version, as the session service learns them."""
        chunks = self.caller("session").membership.RecipientsForVersion(
            membership_pb2.RecipientsForVersionRequest(tenant_id=tenant, group_id=group, membership_version=version)
        )
        return [user async for chunk in chunks for user in chunk.user_ids]

    def keys(self, conversation: ConversationId, tenant: TenantId = TENANT) -> tuple[Any, ConversationKeys, BucketKeys]:
        """The Redis client of a conversation's instance (untyped), its keys and those of its bucket."""
        bucket = self.topology.conversation_bucket(tenant, conversation)
        instance = self._redis[self.topology.instance_of(bucket)]
        return instance, ConversationKeys(tenant, conversation, bucket), BucketKeys(bucket)

    def instance_name(self, conversation: ConversationId, tenant: TenantId = TENANT) -> str:
        """The suite's name of the Valkey that holds a conversation."""
        bucket = self.topology.conversation_bucket(tenant, conversation)
        return f"valkey-{self.topology.instance_of(bucket)}"

    def facts(self, conversation: ConversationId, tenant: TenantId = TENANT) -> dict[str, bytes]:
        """Everything stored of a conversation but its idempotency entries, to compare: a refusal changes nothing."""
        instance, keys, _ = self.keys(conversation, tenant)
        return {key.decode(): instance.dump(key) for key in sorted(instance.scan_iter(f"{keys.prefix}*", count=5000))}

    @asynccontextmanager
    async def another(self, **settings: str) -> AsyncIterator[AnotherWriter]:
        """Another writer process on the same Valkeys; `.address` tells where. `settings` are QIM_ variables."""
        async with another_writer(self.suite, **settings) as process:
            yield process

    @asynccontextmanager
    async def second(self) -> AsyncIterator[Writers]:
        """Callers of another writer process on the same Valkeys."""
        async with self.another() as process:
            beside = Writers(self.suite, process.address)
            try:
                yield beside
            finally:
                await beside.close()

    async def close(self) -> None:
        """Close every connection."""
        await self.gateway_client.close()
        for caller in self._callers.values():
            await caller.provider.close()
        for client in self._redis:
            client.close()


class AnotherWriter(ServiceProcess):
    """A writer beside the suite's own."""

    def __init__(self, suite: Suite, settings: dict[str, str]) -> None:
        ports = allocate(("", "health", "metrics"), {})
        self.address, health, self.metrics = (f"127.0.0.1:{port}" for port in ports.values())
        own = {"QIM_LISTEN": self.address, "QIM_HEALTH_LISTEN": health, "QIM_METRICS_LISTEN": self.metrics}
        self.environment = suite.environment("writer") | own | settings
        log = suite.paths.log(f"writer-{ports['']}")
        super().__init__("another writer", MODULES["writer"], self.environment, log, health)


@asynccontextmanager
async def another_writer(suite: Suite, **settings: str) -> AsyncIterator[AnotherWriter]:
    """Another writer process on the Valkeys of `suite`; `settings` are QIM_ variables."""
    process = AnotherWriter(suite, settings)
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


@asynccontextmanager
async def running_writers(
    directory: Path, *, valkeys: int = 2, services: Sequence[str] = ("writer",), **settings: str
) -> AsyncIterator[Writers]:
    """A suite of its own, its two tenants bound; with one writer and, where a test wants them, the other services."""
    require_valkey()
    suite = Suite(directory, valkeys=valkeys, services=services, tenants=(TENANT, OTHER_TENANT), env_overrides=settings)
    async with suite:
        writers = Writers(suite)
        try:
            yield writers
        finally:
            await writers.close()


@pytest.fixture(scope="session")
async def writers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Writers]:
    """The writer that all tests share; it must be left running, with the settings and bindings that it has."""
    async with running_writers(tmp_path_factory.mktemp("writers") / "suite") as running:
        yield running

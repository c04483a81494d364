"""A writer and a session service as processes, and people in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis.asyncio
from tests.support.valkey import require_valkey

from qim.membership.v1 import membership_pb2
from qim.membership.v1.membership_pb2_grpc import GroupMembershipStub
from qim_client import ActorClient, Conversation, GatewayClient, MailboxEntry
from qim_client.config import ClientConfig
from qim_common.channels import ChannelProvider
from qim_common.identity import PRINCIPAL_KEY, Principal, PrincipalKind, Role
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, uuid7
from qim_common.tls import PemFiles
from qim_devkit.suite import Suite

TENANT = TenantId(1)
BOUND_SECONDS = 20.0
ADD = membership_pb2.AdminMembershipChange.KIND_ADD
REMOVE = membership_pb2.AdminMembershipChange.KIND_REMOVE


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what the consumer brings about."""
    async with asyncio.timeout(BOUND_SECONDS):
        while not await condition():  # noqa: ASYNC110  the service tells nobody
            await asyncio.sleep(0.02)


@dataclass(frozen=True)
class Service:
    """A running suite and a gateway of it."""

    suite: Suite
    gateway: GatewayClient
    instances: tuple[Any, ...]
    """Its Valkeys, from below."""

    def person(self) -> ActorClient:
        """Somebody new, so that tests do not meet each other's conversations."""
        return self.gateway.as_actor(TENANT, UserId(uuid7()))

    def on_another_device(self, client: ActorClient) -> ActorClient:
        """The same person elsewhere."""
        return self.gateway.as_actor(TENANT, client.actor.user, DeviceId(uuid7()))

    async def change(self, kind: int, group: ConversationId, people: Sequence[UserId]) -> int:
        """Let an operator add or remove people; returns the seq of the event."""
        files = self.suite.pki.issue(Role.ADMIN, "test-admin")
        channels = ChannelProvider(self.suite.addresses["writer"], PemFiles(files.cert, files.key, (files.ca,)))
        principal = Principal(PrincipalKind.OPERATOR, "tester", TENANT, None)
        try:
            answer = await channels.stub(GroupMembershipStub).AdminChangeMembers(
                membership_pb2.AdminMembershipChange(
                    request_id=uuid7(),
                    group_id=group,
                    kind=membership_pb2.AdminMembershipChange.Kind.ValueType(kind),
                    user_ids=people,
                ),
                metadata=((PRINCIPAL_KEY, principal.to_message().SerializeToString()),),
                timeout=10.0,
            )
        finally:
            await channels.close()
        return answer.seq


@asynccontextmanager
async def running(directory: Path, **env: str) -> AsyncIterator[Service]:
    """Start it with these variables."""
    require_valkey()
    async with Suite(directory / "suite", services=("writer", "session"), env_overrides=env) as suite:
        profile = ClientConfig.load(suite.paths.client_config).require_gateway()
        instances = tuple(
            redis.asyncio.Redis(host=host, port=int(port), protocol=2)
            for host, _, port in (address.rpartition(":") for address in suite.valkey_addresses)
        )
        async with GatewayClient.from_profile(profile, timeout=10.0) as client:
            yield Service(suite, client, instances)
        for instance in instances:
            await instance.aclose()


async def listed(client: ActorClient, *, page_size: int = 1000, include_hidden: bool = False) -> list[Conversation]:
    """All pages of a person's list."""
    page = await client.list_conversations(page_size=page_size, include_hidden=include_hidden)
    found = list(page.conversations)
    while page.next_page_token:
        page = await client.list_conversations(
            page_size=page_size, page_token=page.next_page_token, include_hidden=include_hidden
        )
        found += page.conversations
    return found


async def ids(client: ActorClient, *, page_size: int = 1000, include_hidden: bool = False) -> list[ConversationId]:
    """The conversations of a person's list, in its order."""
    return [entry.conversation for entry in await listed(client, page_size=page_size, include_hidden=include_hidden)]


async def lists_all(client: ActorClient, conversations: set[ConversationId]) -> None:
    """Wait until a person's list holds these."""

    async def there() -> bool:
        return set(await ids(client, include_hidden=True)) >= conversations

    await until(there)


def seqs(entries: Sequence[MailboxEntry]) -> list[int]:
    """The seqs of the messages of a mailbox page."""
    return [entry.message.seq for entry in entries if entry.message is not None]

"""The real thing that the model is compared with: the whole suite as processes, and clients of every role."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

import grpc
from tests.support.subscribers import Subscriptions
from tests.support.valkey import require_valkey

from qim.membership.v1 import membership_pb2, membership_pb2_grpc
from qim.writer.v1 import internal_pb2_grpc
from qim_client import answers
from qim_client.actor import ActorClient
from qim_client.gateway import GatewayClient
from qim_client.operators import OperatorClient
from qim_client.retry import RetryPolicy
from qim_client.values import Outgoing
from qim_common.channels import ChannelProvider
from qim_common.identity import Role
from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.tls import PemFiles
from qim_devkit.suite import Suite

TENANT = TenantId(1)
SECONDS = 30.0
PATIENT = RetryPolicy(max_attempts=200, longest_delay=0.2)
"""A restart of the writer must look like a slow answer."""


class World:
    """A running suite with a gateway, an operator, a back end, and the session service's own right to ask."""

    def __init__(self, suite: Suite) -> None:
        files = suite.operator_files()
        admin = suite.addresses["admin"]
        self.suite = suite
        self._restarting = asyncio.Lock()
        self.gateway = GatewayClient(
            suite.addresses["writer"],
            suite.addresses["session"],
            suite.gateway_files(),
            timeout=SECONDS,
            policy=PATIENT,
        )
        self._stream = self.gateway.open_stream()
        self.operators = {
            "operator": OperatorClient(admin, files, TENANT, timeout=SECONDS, policy=PATIENT),
            "backend": OperatorClient(admin, suite.backend_files(), TENANT, timeout=SECONDS, policy=PATIENT),
        }
        session = suite.pki.issue(Role.SESSION, "session-0")
        self._channels = ChannelProvider(
            suite.addresses["writer"], PemFiles(session.cert, session.key, (session.ca,)), options=()
        )
        self.live = Subscriptions([self.gateway])
        self._membership = self._channels.stub(membership_pb2_grpc.GroupMembershipStub)
        self.internal = self._channels.stub(internal_pb2_grpc.InternalStub)

    def person(self, user: UserId) -> ActorClient:
        """The calls of one end user."""
        return self.gateway.as_actor(TENANT, user)

    async def send(self, item: Outgoing, *, streamed: bool) -> answers.Sent:
        """One message, by itself or on the stream that all share; raises its refusal."""
        if not streamed:
            return await self.gateway.as_actor(item.actor.tenant, item.actor.user, item.actor.device).send(item)
        (sent,) = await self._stream.send([item])
        return sent.result()

    async def members_at(self, group: ConversationId, version: int) -> list[bytes]:
        """RecipientsForVersion, as the session service asks it."""
        request = membership_pb2.RecipientsForVersionRequest(
            tenant_id=TENANT, group_id=group, membership_version=version
        )
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                chunks = self._membership.RecipientsForVersion(request, timeout=SECONDS)
                return [user async for chunk in chunks for user in chunk.user_ids]
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(PATIENT.longest_delay)

    async def restart_writer(self) -> None:
        """End the writer as a crash would, while calls are under way, and start it again."""
        async with self._restarting:
            await self.suite.kill("writer")
            await self.suite.restart("writer")

    async def close(self) -> None:
        """Close every connection."""
        await self._stream.close()
        await self.gateway.close()
        for client in self.operators.values():
            await client.close()
        await self._channels.close()

    @classmethod
    @asynccontextmanager
    async def running(cls, directory: Path) -> AsyncIterator[Self]:
        """A suite of its own on two Valkeys."""
        require_valkey()
        async with AsyncExitStack() as stack:
            suite = await stack.enter_async_context(Suite(directory, valkeys=2, tenants=(TENANT,)))
            world = cls(suite)
            stack.push_async_callback(world.close)
            await stack.enter_async_context(world.live)
            yield world

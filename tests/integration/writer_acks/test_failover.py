"""A failover under the running services at ack level `replicated`: what readers got and no replica has is lost, and
they are told so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
import redis
from tests.integration.session.running import TENANT, lists_all, seqs, until
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.valkey import replica_of, require_valkey

from qim_client import GatewayClient
from qim_client.config import ClientConfig
from qim_client.values import DeviceCursor, Outgoing
from qim_common.errors import BackendUnavailable, ResyncRequired
from qim_common.ids import UserId, uuid7
from qim_common.redis.fence import FENCE_KEY
from qim_devkit.suite import Suite
from qim_devkit.valkey import ValkeyServer

pytestmark = pytest.mark.server


@dataclass
class Installation:
    """Services that reach their commit instance, a primary with one replica, through a proxy."""

    gateway: GatewayClient
    proxy: CuttingProxy
    primary: ValkeyServer
    replica: ValkeyServer
    servers: ExitStack

    async def fail_over(self) -> None:
        """The primary is lost, and the replica takes its place with what it has. Once the writer has met it, it gets a
        replica of its own."""
        self.primary.kill()
        self.replica.restart()
        with redis.Redis(host=self.replica.host, port=self.replica.port, protocol=2) as client:
            client.config_set("repl-diskless-sync-delay", 0)
            client.execute_command("REPLICAOF", "NO", "ONE")
            run_id = client.info("server")["run_id"].encode()

            async def met() -> bool:
                return bool(client.hget(FENCE_KEY, "run_id") == run_id)

            self.proxy.retarget(self.replica.address)
            await self.proxy.cut()
            await until(met)
        self.servers.enter_context(replica_of(self.replica))


@asynccontextmanager
async def installation(directory: Path, mode: str) -> AsyncIterator[Installation]:
    require_valkey()
    with ExitStack() as servers:
        primary = servers.enter_context(ValkeyServer(options={"repl-diskless-sync-delay": "0"}))
        sessions = servers.enter_context(ValkeyServer())
        replica = servers.enter_context(replica_of(primary))
        async with cutting_proxy(primary.address) as proxy:
            variables = {
                "QIM_REDIS_ADDR": proxy.address,
                "QIM_MESSAGE_STORE_ADDRS": "",
                "QIM_SESSION_REDIS_ADDRS": sessions.address,
                "QIM_REPLICAS": "1",
                "QIM_PROMOTION": mode,
            }
            suite = Suite(
                directory,
                valkeys=1,
                services=("writer", "session"),
                ack_level="replicated",
                env_overrides=variables,
            )
            async with suite:
                profile = ClientConfig.load(suite.paths.client_config).require_gateway()
                async with GatewayClient.from_profile(profile, timeout=10.0) as gateway:
                    yield Installation(gateway, proxy, primary, replica, servers)


T = TypeVar("T")


async def served(call: Callable[[], Awaitable[T]]) -> T:
    """The answer, once the instance is used again."""
    answers: list[T] = []

    async def answered() -> bool:
        try:
            answers.append(await call())
        except BackendUnavailable:
            return False
        return True

    await until(answered)
    return answers[0]


@pytest.mark.parametrize("mode", ["resynchronise", "accept"])
async def test_a_device_that_acknowledged_what_is_lost(tmp_path: Path, mode: str) -> None:
    async with installation(tmp_path / "suite", mode) as running:
        ana, ben = (running.gateway.as_actor(TENANT, UserId(uuid7())) for _ in range(2))
        group = (await ana.create_group([ben.actor.user])).group
        await ana.send_to(group, b"one")
        await lists_all(ben, {group})
        running.replica.kill()
        with pytest.raises(BackendUnavailable):
            await ana.send_to(group, b"never acknowledged")
        pulled = await ben.pull_mailbox()
        assert seqs(pulled.entries) == [1, 2]
        assert (await ben.pull_mailbox(ack=[DeviceCursor(group, 0, 2)])).entries == ()

        await running.fail_over()
        again = Outgoing(ana.actor, b"acknowledged", conversation=group)
        sent = await served(lambda: ana.send(again))
        assert sent.seq == 2
        other = (await ana.create_group([ben.actor.user])).group
        await ana.send_to(other, b"elsewhere")
        if mode == "accept":
            # The limit that is accepted: seq 2 counts as delivered. The projection goes on.
            await lists_all(ben, {group, other})
            entries = (await ben.pull_mailbox()).entries
            assert [(entry.conversation, entry.cursor.seq) for entry in entries] == [(other, 1)]
            return
        with pytest.raises(ResyncRequired):
            await served(ben.pull_mailbox)
        history = [(one.seq, one.body) async for one in ben.history(group)]
        assert sorted(history) == [(1, b"one"), (2, b"acknowledged")]
        await lists_all(ben, {group, other})
        pulled = await ben.pull_mailbox(ack=[DeviceCursor(group, 1, 2)])
        assert [(entry.conversation, entry.cursor.seq) for entry in pulled.entries] == [(other, 1)]
        await ana.send_to(group, b"three")

        async def third() -> bool:
            return 3 in seqs((await ben.pull_mailbox()).entries)

        await until(third)

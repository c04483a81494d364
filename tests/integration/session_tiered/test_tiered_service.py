"""The session service on the backend tiered, as processes with a real Cassandra."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from tests.integration.session.running import Service, ids, listed, lists_all, seqs, until
from tests.integration.session.test_lost_projection import metric
from tests.support.valkey import require_valkey

from qim_client import ActorClient, GatewayClient
from qim_client.config import ClientConfig
from qim_common.ids import DeviceId, TenantId, UserId, uuid7
from qim_common.keys import BucketKeys, ucs_pending, unflushed
from qim_common.redis import Instance
from qim_devkit.cassandra import CassandraCluster
from qim_devkit.suite import Suite
from qim_devkit.tiered import new_tenant, shared_keyspace
from qim_devkit.valkey import ValkeyServer


@dataclass(frozen=True)
class Tiered:
    """A suite whose session store is a Valkey of its own, which may be wiped."""

    suite: Suite
    gateway: GatewayClient
    tenant: TenantId
    commits: Instance
    sessions: Instance

    def person(self, device: DeviceId | None = None, user: UserId | None = None) -> ActorClient:
        """Somebody new, or somebody known on another device."""
        return self.gateway.as_actor(self.tenant, user or UserId(uuid7()), device or DeviceId(uuid7()))

    async def metric(self, name: str) -> float:
        """A metric of the session service."""
        return await metric(Service(self.suite, self.gateway, ()), name)

    async def flushed(self) -> None:
        """Wait until everything is written behind and registered."""

        async def empty() -> bool:
            waiting = await self.sessions.call("HLEN", unflushed(0)) + await self.sessions.call("LLEN", ucs_pending(0))
            return bool(waiting == 0) and await self.memlog() == 0

        await until(empty)

    async def memlog(self) -> int:
        """How many entries of the membership logs are not registered."""
        lengths = await self.commits.pipeline([("XLEN", BucketKeys(bucket).memlog) for bucket in range(256)])
        return sum(lengths)


@asynccontextmanager
async def tiered(
    directory: Path, sessions: ValkeyServer, cassandra: CassandraCluster, **env: str
) -> AsyncIterator[Tiered]:
    tenant = new_tenant()
    async with Suite(
        directory / "suite",
        services=("writer", "session"),
        valkeys=1,
        backend="tiered",
        cassandra=cassandra,
        keyspace=shared_keyspace(),
        tenants=(tenant,),
        env_overrides={"QIM_SESSION_REDIS_ADDRS": sessions.address, **env},
    ) as suite:
        profile = ClientConfig.load(suite.paths.client_config).require_gateway()
        addresses = (*suite.valkey_addresses, sessions.address)
        commits, store = (Instance(address, name="test", instance_position=0) for address in addresses)
        await commits.start()
        await store.start()
        async with GatewayClient.from_profile(profile, timeout=20.0) as client:
            yield Tiered(suite, client, tenant, commits, store)
        await commits.close()
        await store.close()


@pytest.fixture(scope="module")
def session_valkey() -> Iterator[ValkeyServer]:
    require_valkey()
    with ValkeyServer() as server:
        yield server


@pytest_asyncio.fixture(scope="module")
async def service(
    tmp_path_factory: pytest.TempPathFactory,
    session_valkey: ValkeyServer,
    cassandra_run: tuple[CassandraCluster, Path],
) -> AsyncIterator[Tiered]:
    async with tiered(tmp_path_factory.mktemp("tiered-session"), session_valkey, cassandra_run[0]) as started:
        yield started


async def test_after_a_wipe_of_the_session_store_every_answer_is_what_it_was(service: Tiered) -> None:
    ana, phone = service.person(), service.person()
    tablet = service.person(user=phone.actor.user)
    groups = [(await ana.create_group([phone.actor.user])).group for _ in range(4)]
    for group in groups:
        for body in (b"one", b"two", b"three"):
            await ana.send_to(group, body)
    await lists_all(phone, set(groups))
    await phone.mark_read(groups[0], 2)
    await phone.set_conversation_flags(groups[1], hidden=True)
    await phone.set_conversation_flags(groups[2], muted=True)
    page = await phone.pull_mailbox(limit=5)
    await phone.pull_mailbox(ack=[page.entries[-1].cursor], limit=1)

    async def all_of_it() -> tuple[object, ...]:
        mailboxes = [await device.pull_mailbox(limit=1000) for device in (phone, tablet)]
        return (
            sorted(await listed(phone, include_hidden=True), key=lambda entry: entry.conversation),
            await ids(phone),
            await phone.get_total_unread(),
            [(entry.conversation, seqs([entry])) for page in mailboxes for entry in page.entries],
        )

    before = await all_of_it()
    await service.flushed()
    await service.sessions.call("FLUSHALL")
    assert await all_of_it() == before
    assert await service.metric("qim_session_projection_user_rebuilt_total") >= 1
    assert await service.metric("qim_session_marks_written_total") >= 4


async def test_a_group_that_nobody_wrote_in_is_registered_and_its_log_is_trimmed(service: Tiered) -> None:
    ana, ben = service.person(), service.person()
    group = (await ana.create_group([ben.actor.user])).group
    await service.flushed()
    await service.sessions.call("FLUSHALL")
    assert await ids(ben) == [group]

"""A session store and dispatch logs on a real Valkey, without any service."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import pytest_asyncio
from prometheus_client import CollectorRegistry
from tests.support.dispatch import TENANT

from qim_common.errors import BackendUnavailable, MembershipVersionExpired
from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.keys import BucketKeys, PersonKeys
from qim_common.redis import Instance, Role, verify_topology
from qim_common.telemetry.metrics import SessionMetrics
from qim_common.topology import Topology
from qim_devkit.valkey import ValkeyServer
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.backends.redis_memlog import RedisMemberLog
from qim_session.backends.redis_people import RedisPeople
from qim_session.backends.redis_projection import RedisProjectionStore
from qim_session.commands.audience import Audiences
from qim_session.commands.consume import DispatchConsumer
from qim_session.commands.memlog import MemlogRegistrar
from qim_session.commands.progress import ProgressReader
from qim_session.commands.projection import Projector
from qim_session.commands.projection_lane import ProjectionLane
from qim_session.domain.membership import MembersCache, MembershipChange

BUCKETS = 8
BOUND_SECONDS = 20.0


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what a consumer in the background brings about."""
    async with asyncio.timeout(BOUND_SECONDS):
        while not await condition():  # noqa: ASYNC110  the store tells nobody
            await asyncio.sleep(0.01)


class KnownMembers:
    """A writer that answers for groups whose members the test wrote down, and that can be down."""

    def __init__(self) -> None:
        self.versions: dict[tuple[ConversationId, int], set[UserId]] = {}
        self.changes: dict[tuple[ConversationId, int], MembershipChange] = {}
        self.down = False
        self.refused = 0

    async def members(self, tenant: TenantId, conversation: ConversationId, version: int) -> set[UserId]:
        self._answer()
        if (conversation, version) not in self.versions:
            raise MembershipVersionExpired
        return set(self.versions[conversation, version])

    async def change(self, tenant: TenantId, group: ConversationId, version: int) -> MembershipChange:
        self._answer()
        return self.changes[group, version]

    def _answer(self) -> None:
        if self.down:
            self.refused += 1
            raise BackendUnavailable


@dataclass
class Store:
    """One server that is commit instance and session instance at once, with everything that works on it."""

    server: ValkeyServer
    topology: Topology
    instance: Instance
    dispatch: Instance
    projection: RedisProjectionStore
    people: RedisPeople
    members: KnownMembers
    metrics: SessionMetrics

    def consumer(self, dispatch: Instance | None = None, *, log: RedisDispatchLog | None = None) -> DispatchConsumer:
        """A new consumer as another process would have it, on a connection of its own where there are several."""
        lane = ProjectionLane(
            Projector([self.projection], self.topology),
            Audiences(self.members, MembersCache(10_000), self.metrics),
            self.memlog(),
            self.metrics,
        )
        made = log or RedisDispatchLog(dispatch or self.dispatch, self.topology.buckets_of(0))
        return DispatchConsumer(made, lane, self.metrics)

    def memlog(self) -> MemlogRegistrar:
        """A new registrar of the membership logs."""
        log = RedisMemberLog(self.instance, self.topology.buckets_of(0))
        return MemlogRegistrar(log, self.people, self.metrics)

    def progress(self) -> ProgressReader:
        """A new reader of the stored progress, as another replica would have it."""
        return ProgressReader([self.projection], self.topology.buckets_of(0))

    def partition(self, conversation: ConversationId) -> int:
        """The bucket of a conversation."""
        return self.topology.conversation_bucket(TENANT, conversation)

    async def append(self, conversation: ConversationId, *blocks: bytes, at: str = "*") -> str:
        """Write one dispatch entry of the conversation's bucket; returns its id."""
        key = BucketKeys(self.partition(conversation)).dispatch
        entry_id: bytes = await self.instance.call("XADD", key, at, "e", b"".join(blocks))
        return entry_id.decode()

    async def put_into(self, conversation: ConversationId, people: Sequence[UserId], *, at: str = "*") -> str:
        """Write one entry of the membership log, as the writer's scripts do; returns its id."""
        key = BucketKeys(self.partition(conversation)).memlog
        entry = struct.pack(">Q16sH", TENANT, conversation, len(people)) + b"".join(people)
        entry_id: bytes = await self.instance.call("XADD", key, at, "e", entry)
        return entry_id.decode()

    async def registered(self, user: UserId) -> dict[ConversationId, int]:
        """What the authority holds of a person: conversation to first_seen_at."""
        keys = PersonKeys(TENANT, user, self.topology.person_bucket(TENANT, user))
        flat = await self.instance.call("HGETALL", keys.authority)
        return {
            ConversationId(conversation): int.from_bytes(row[1:9], "big")
            for conversation, row in zip(flat[::2], flat[1::2], strict=True)
        }

    async def big(self, user: UserId) -> set[ConversationId]:
        """The conversations that were big while the person was in them."""
        keys = PersonKeys(TENANT, user, self.topology.person_bucket(TENANT, user))
        return set(map(ConversationId, await self.instance.call("SMEMBERS", keys.bigconvs)))

    async def listed(self, user: UserId) -> dict[ConversationId, int]:
        """A person's projected list: conversation to time."""
        keys = PersonKeys(TENANT, user, self.topology.person_bucket(TENANT, user))
        flat = await self.instance.call("ZRANGE", keys.convs, 0, -1, "WITHSCORES")
        return {ConversationId(member): int(float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)}


async def open_store(server: ValkeyServer) -> Store:
    """Connect to a server and make it an installation of one instance."""
    topology = Topology((server.address,), BUCKETS, "test")
    instance = Instance(server.address, name="session", instance_position=0)
    dispatch = Instance(server.address, name="dispatch", instance_position=0)
    await instance.start()
    await dispatch.start()
    await verify_topology([dispatch], topology, Role.COMMIT)
    return Store(
        server=server,
        topology=topology,
        instance=instance,
        dispatch=dispatch,
        projection=RedisProjectionStore(instance, topology),
        people=RedisPeople([instance], topology),
        members=KnownMembers(),
        metrics=SessionMetrics(CollectorRegistry()),
    )


async def close_store(store: Store) -> None:
    """Disconnect."""
    await store.dispatch.close()
    await store.instance.close()


@pytest_asyncio.fixture
async def store(valkey_session: ValkeyServer) -> AsyncIterator[Store]:
    """A store on the shared server, which the test leaves running."""
    opened = await open_store(valkey_session)
    yield opened
    await close_store(opened)


@pytest_asyncio.fixture
async def own_store(valkey: ValkeyServer) -> AsyncIterator[Store]:
    """A store on a server of the test's own, which it may kill and restart."""
    opened = await open_store(valkey)
    yield opened
    await close_store(opened)


class Running:
    """A consumer at work on all partitions; leaving the context ends it."""

    def __init__(self, consumer: DispatchConsumer) -> None:
        self._consumer = consumer

    async def __aenter__(self) -> DispatchConsumer:
        await self._consumer.check_start()
        self._consumer.hold(range(BUCKETS))
        self._task = asyncio.create_task(self._consumer.run())
        return self._consumer

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

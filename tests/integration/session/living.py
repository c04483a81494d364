"""A live stream over the logs of a store on a real Valkey, without any service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType

from tests.integration.session.conftest import BOUND_SECONDS, KnownMembers, Running, Store
from tests.support.dispatch import TENANT

from qim.common.v1 import types_pb2
from qim.session.v1 import session_pb2
from qim_common.enums import MemberState
from qim_common.identity import Actor
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId
from qim_common.positions import Position
from qim_common.redis import Instance
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.backends.redis_live import RedisClock, RedisRecent
from qim_session.backends.redis_rebuild import RedisListRestore
from qim_session.commands.live.service import LiveService, LiveStores
from qim_session.commands.live.stream import LiveLimits, LiveStream
from qim_session.commands.live.tail import LiveTail
from qim_session.commands.live.tokens import ResumeTokens
from qim_session.commands.mailbox import Mailbox
from qim_session.commands.rebuild import Rebuild
from qim_session.commands.register import Registrar
from qim_session.handlers.live_wire import LiveWire
from qim_session.storage.conversations import ConversationState, DeliveredPage, WireMessage
from qim_session.storage.dispatch import DispatchRead
from qim_session.storage.live import SignalLog


class Owner:
    """A writer that knows of each conversation the newest seq, all of it delivered to everybody.

    Attributes:
        asked: of how many conversations each question for states was.
        generation: of all of them.
    """

    generation = 0

    def __init__(self) -> None:
        self.newest: dict[ConversationId, int] = {}
        self.asked: list[int] = []

    async def before_states(self, user: UserId) -> None:
        """Replace it to hold up or to fail an answer."""

    async def before_page(self, after_seq: int) -> None:
        """Replace it to hold up or to fail an answer."""

    async def states(
        self,
        tenant: TenantId,
        user: UserId,
        read: Mapping[ConversationId, int],
        *,
        with_preview: bool,
        hidden: Mapping[ConversationId, int] = MappingProxyType({}),
    ) -> list[ConversationState]:
        self.asked.append(len(read))
        await self.before_states(user)
        return [
            ConversationState(
                conversation,
                MemberState.MEMBER,
                newest_delivered_seq=self.newest.get(conversation, 0),
                generation=self.generation,
            )
            for conversation in read
        ]

    async def delivered(
        self, tenant: TenantId, user: UserId, conversation: ConversationId, *, after_seq: int, limit: int
    ) -> DeliveredPage:
        await self.before_page(after_seq)
        newest = self.newest.get(conversation, 0)
        last = min(newest, after_seq + limit)
        entries = tuple(
            WireMessage(types_pb2.Message(conversation_id=conversation, seq=seq).SerializeToString())
            for seq in range(after_seq + 1, last + 1)
        )
        more = last < newest
        return DeliveredPage(entries, max(after_seq, last), more, self.generation, newest_delivered_seq=newest)


class Tokens:
    """Tokens that say what is in them."""

    def issue(self, method: str, tenant: int, person: bytes, conversation: bytes, payload: bytes) -> str:
        return payload.hex()

    def open(self, method: str, tenant: int, person: bytes, conversation: bytes, token: str) -> bytes:
        return bytes.fromhex(token)


class Screen:
    """One stream, and what comes out of it."""

    def __init__(self, stream: LiveStream) -> None:
        self.stream = stream
        self.events: list[tuple[int, session_pb2.SubscribeEvent]] = []

    def attach(self, number: int, person: UserId, token: str = "") -> None:
        self.stream.attach(number, Actor(TENANT, person, DeviceId(person)), token)

    async def until(self, number: int, kind: str, count: int = 1) -> list[session_pb2.SubscribeEvent]:
        """The events of one kind of an attachment, once there are so many."""
        async with asyncio.timeout(BOUND_SECONDS):
            while len(found := self.of(number, kind)) < count:
                await self.take()
        return found

    async def take(self) -> None:
        """Wait for the next events."""
        for queued in await self.stream.outbox.take(events_max=100, bytes_max=10_000_000):
            event = session_pb2.SubscribeEvent.FromString(queued.event)
            self.events += [(attachment, event) for attachment in queued.attachments]

    def of(self, number: int, kind: str) -> list[session_pb2.SubscribeEvent]:
        return [
            event for attachment, event in self.events if attachment == number and event.WhichOneof("event") == kind
        ]

    def seqs(self, number: int, conversation: ConversationId) -> list[int]:
        return [
            event.delivered.message.seq
            for event in self.of(number, "delivered")
            if event.delivered.conversation_id == conversation
        ]


class SteppedLog(RedisDispatchLog):
    """A log whose instance's clock has moved on, as if the process had stood still; `ahead_ms`: by how much."""

    ahead_ms = 0

    async def read(self, after: Mapping[int, Position], *, count: int, block_ms: int) -> DispatchRead:
        found = await super().read(after, count=count, block_ms=block_ms)
        return replace(found, time_ms=found.time_ms + self.ahead_ms)


class Live:
    """A stream over the store's logs.

    Attributes:
        members: the writer that the tail asks.
        owner: the writer that knows what was delivered.
        log: what the tail reads.
        screen: what comes out.
        tail: the connection of the tail.
        reader: the tail itself.
    """

    def __init__(
        self, store: Store, tail: Instance, signals: Sequence[SignalLog] = (), *, archived: bool = False
    ) -> None:
        self.members, self.owner, self.tail = KnownMembers(), Owner(), tail
        self.log = SteppedLog(tail, store.topology.buckets_of(0), archived=archived)
        pending = [Registrar(store.projection, store.people, store.metrics)]
        restore = RedisListRestore([store.instance], store.topology)
        service = LiveService(
            LiveStores(
                logs=[(self.log, RedisClock(store.instance))],
                signals=signals,
                recent=RedisRecent([store.instance], store.topology),
                cursors=store.people,
                source=self.members,
                conversations=self.owner,
            ),
            mailbox=Mailbox(store.people, self.owner, store.metrics, max_entries=1_000, max_age_days=30),
            rebuild=Rebuild(restore, store.people, self.owner, pending, store.topology, store.metrics),
            progress=store.progress(),
            tokens=ResumeTokens(Tokens()),
            encoder=LiveWire(),
            metrics=store.metrics,
            limits=LiveLimits(events_max=1_000, bytes_max=1_000_000, attachments_max=10, token_seconds=60.0),
        )
        self.reader = next(worker for worker in service.workers if isinstance(worker, LiveTail))
        self.workers = [worker.run for worker in service.workers]
        self.screen = Screen(service.open())


@asynccontextmanager
async def living(store: Store, signals: Sequence[SignalLog] = (), *, archived: bool = False) -> AsyncIterator[Live]:
    """A tail at work, and a consumer that keeps the projection up to date."""
    tail = Instance(store.server.address, name="tail", instance_position=0)
    await tail.start()
    made = Live(store, tail, signals, archived=archived)
    store.members.versions = made.members.versions
    made.screen.stream.start()
    log = RedisDispatchLog(store.dispatch, store.topology.buckets_of(0), archived=archived)
    async with Running(store.consumer(log=log)):
        workers = [asyncio.create_task(run()) for run in made.workers]
        try:
            yield made
        finally:
            await made.screen.stream.abort()
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)
    await tail.close()


async def attached(live: Live, person: UserId, number: int = 1) -> None:
    """Attach, and wait until everything before has come."""
    live.screen.attach(number, person)
    await live.screen.until(number, "attached")

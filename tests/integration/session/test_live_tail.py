"""The live tail on a real log: what it hands over, what waits, and what happens where entries are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType

import pytest
import pytest_asyncio
from tests.integration.session.conftest import BOUND_SECONDS, KnownMembers, Running, Store
from tests.support.dispatch import TENANT, control, group, messages, ordinary, user

from qim.common.v1 import types_pb2
from qim.session.v1 import session_pb2
from qim_common.enums import MemberState
from qim_common.identity import Actor
from qim_common.ids import ConversationId, DeviceId, MembershipOp, TenantId, UserId
from qim_common.keys import BucketKeys
from qim_common.records import Audience
from qim_common.redis import Instance
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.backends.redis_live import RedisClock, RedisRecent
from qim_session.backends.redis_rebuild import RedisListRestore
from qim_session.commands.live.service import LiveService, LiveStores
from qim_session.commands.live.stream import LiveLimits, LiveStream
from qim_session.commands.live.tokens import ResumeTokens
from qim_session.commands.mailbox import Mailbox
from qim_session.commands.rebuild import Rebuild
from qim_session.commands.register import Registrar
from qim_session.domain.entries import ProjectionEntry
from qim_session.handlers.live_wire import LiveWire
from qim_session.storage.conversations import ConversationState, DeliveredPage, WireMessage

pytestmark = pytest.mark.server
A = group(1)
ANA, BEN, CARA = user(1), user(2), user(3)


class Owner:
    """A writer that knows of each conversation the newest seq, all of it delivered to everybody."""

    def __init__(self) -> None:
        self.newest: dict[ConversationId, int] = {}

    async def states(
        self,
        tenant: TenantId,
        user: UserId,
        read: Mapping[ConversationId, int],
        *,
        with_preview: bool,
        hidden: Mapping[ConversationId, int] = MappingProxyType({}),
    ) -> list[ConversationState]:
        return [
            ConversationState(
                conversation, MemberState.MEMBER, newest_delivered_seq=self.newest.get(conversation, 0), generation=0
            )
            for conversation in read
        ]

    async def delivered(
        self, tenant: TenantId, user: UserId, conversation: ConversationId, *, after_seq: int, limit: int
    ) -> DeliveredPage:
        newest = self.newest.get(conversation, 0)
        entries = tuple(
            WireMessage(types_pb2.Message(conversation_id=conversation, seq=seq).SerializeToString())
            for seq in range(after_seq + 1, newest + 1)
        )
        return DeliveredPage(entries, max(after_seq, newest), False, 0, newest_delivered_seq=newest)


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

    def attach(self, number: int, person: UserId) -> None:
        self.stream.attach(number, Actor(TENANT, person, DeviceId(person)), "")

    async def until(self, number: int, kind: str, count: int = 1) -> list[session_pb2.SubscribeEvent]:
        """The events of one kind of an attachment, once there are so many."""
        async with asyncio.timeout(BOUND_SECONDS):
            while len(found := self.of(number, kind)) < count:
                for queued in await self.stream.outbox.take(events_max=100, bytes_max=10_000_000):
                    event = session_pb2.SubscribeEvent.FromString(queued.event)
                    self.events += [(attachment, event) for attachment in queued.attachments]
        return found

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


class Live:
    """A stream over the store's logs.

    Attributes:
        members: the writer that the tail asks.
        owner: the writer that knows what was delivered.
        screen: what comes out.
        tail: the connection of the tail.
    """

    def __init__(self, store: Store, tail: Instance) -> None:
        self.members, self.owner, self.tail = KnownMembers(), Owner(), tail
        log = RedisDispatchLog(tail, store.topology.buckets_of(0))
        pending = [Registrar(store.projection, store.people, store.metrics)]
        restore = RedisListRestore([store.instance], store.topology)
        service = LiveService(
            LiveStores(
                logs=[(log, RedisClock(store.instance))],
                signals=[],
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
        self.workers = [worker.run for worker in service.workers]
        self.screen = Screen(service.open())


@pytest_asyncio.fixture
async def live(store: Store) -> AsyncIterator[Live]:
    """A tail at work, and a consumer that keeps the projection up to date."""
    tail = Instance(store.server.address, name="tail", instance_position=0)
    await tail.start()
    made = Live(store, tail)
    store.members.versions = made.members.versions
    made.screen.stream.start()
    async with Running(store.consumer()):
        workers = [asyncio.create_task(run()) for run in made.workers]
        yield made
        await made.screen.stream.abort()
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
    await tail.close()


async def attached(live: Live, person: UserId, number: int = 1) -> None:
    live.screen.attach(number, person)
    await live.screen.until(number, "attached")


async def test_a_block_reaches_the_members_at_its_version_and_whom_it_concerns(store: Store, live: Live) -> None:
    live.members.versions[A, 3] = {ANA, BEN}
    for number, person in enumerate((ANA, BEN, CARA), 1):
        await attached(live, person, number)
    await store.append(A, messages(A, 3, 7, [ordinary(ANA)]))
    await store.append(A, messages(A, 4, 8, [control(MembershipOp.REMOVE, [BEN])]))
    await store.append(A, messages(A, 5, 9, [control(MembershipOp.JOIN, [CARA], Audience.CONCERNED)]))
    await store.append(A, messages(A, 5, 10, [ordinary(ANA)]))
    await live.screen.until(1, "delivered", 3)
    await live.screen.until(3, "delivered", 2)
    assert live.screen.seqs(1, A) == [7, 8, 10]
    assert live.screen.seqs(2, A) == [7, 8]
    assert live.screen.seqs(3, A) == [9, 10]
    assert set(live.members.versions) == {(A, 3)}, "the later versions were derived"


async def test_a_partition_that_waits_for_the_writer_holds_up_no_other_one(store: Store, live: Live) -> None:
    other = next(group(n) for n in range(2, 99) if store.partition(group(n)) != store.partition(A))
    live.members.versions |= {(A, 1): {ANA}, (other, 1): {ANA}}
    await attached(live, ANA)
    await store.append(other, messages(other, 1, 1, [ordinary(ANA)]))
    await live.screen.until(1, "delivered")
    live.members.down = True
    await store.append(A, messages(A, 1, 1, [ordinary(ANA)]))
    await store.append(A, messages(A, 1, 2, [ordinary(ANA)]))
    await store.append(other, messages(other, 1, 2, [ordinary(ANA)]))
    await live.screen.until(1, "delivered", 2)
    assert (live.screen.seqs(1, other), live.screen.seqs(1, A)) == ([1, 2], [])
    live.members.down = False
    await live.screen.until(1, "delivered", 4)
    assert live.screen.seqs(1, A) == [1, 2]


async def test_where_entries_are_gone_everybody_catches_up_and_goes_live_again(store: Store, live: Live) -> None:
    live.members.versions[A, 1] = {ANA}
    await store.people.register([ProjectionEntry(TENANT, ANA, A, 1)])
    await attached(live, ANA)
    await store.append(A, messages(A, 1, 1, [ordinary(ANA)]))
    await live.screen.until(1, "delivered")
    log = BucketKeys(store.partition(A)).dispatch
    block = messages(A, 1, 2, [ordinary(ANA)])
    # In one step, so that nobody can read the entry: as if it had been trimmed while the tail stalled.
    await store.instance.pipeline([("MULTI",), ("XADD", log, "*", "e", block), ("XTRIM", log, "MAXLEN", 0), ("EXEC",)])
    live.owner.newest[A] = 2
    live.tail.connection.close("cut by the test")
    await live.screen.until(1, "attached", 2)
    assert live.screen.seqs(1, A) == [1, 2]
    assert len(live.screen.of(1, "states_changed")) == 1
    await store.append(A, messages(A, 1, 3, [ordinary(ANA)]))
    await live.screen.until(1, "delivered", 3)
    assert live.screen.seqs(1, A) == [1, 2, 3]


async def test_where_the_members_at_a_version_are_gone_everybody_catches_up(store: Store, live: Live) -> None:
    await store.people.register([ProjectionEntry(TENANT, ANA, A, 1)])
    await attached(live, ANA)
    live.owner.newest[A] = 5
    await store.append(A, messages(A, 9, 5, [ordinary(ANA)]))
    await live.screen.until(1, "attached", 2)
    assert live.screen.seqs(1, A) == [1, 2, 3, 4, 5]


async def test_while_nobody_is_attached_the_log_is_not_read_and_nothing_is_missed_later(
    store: Store, live: Live
) -> None:
    live.members.versions[A, 1] = {ANA}
    await attached(live, ANA)
    live.screen.stream.detach(1)
    await live.screen.until(1, "detached")
    await store.append(A, messages(A, 1, 1, [ordinary(ANA)]))
    live.owner.newest[A] = 1
    await store.people.register([ProjectionEntry(TENANT, ANA, A, 1)])
    live.screen.events.clear()
    await attached(live, ANA)
    await store.append(A, messages(A, 1, 2, [ordinary(ANA)]))
    await live.screen.until(1, "delivered", 2)
    assert live.screen.seqs(1, A) == [1, 2]

"""Records that are archived and old leave Redis; what lists and leavers see of them, and every count, stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry
from tests.support.archiving import with_archive
from tests.support.chat import ANA, BEN, CARA, DAN, Chat, user
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.ids import ConversationId
from qim_common.telemetry.metrics import ArchiverMetrics
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.eviction import RedisHotRecords
from qim_writer.backends.redis.outbox import RedisOutbox
from qim_writer.commands.archive.evicting import Evictor
from qim_writer.commands.archive.holding import Holding
from qim_writer.domain.archive_rounds import gather
from qim_writer.domain.policy import Limits
from qim_writer.storage_outbox import ArchiveLease, Evicted

pytestmark = pytest.mark.server
HOUR_MS = 3_600_000


@dataclass
class Place:
    stores: RedisStores
    outbox: RedisOutbox
    hot: RedisHotRecords
    chat: Chat

    async def archive(self) -> None:
        """What an archiver notes once everything is in the archive."""
        state = await self.outbox.state()
        read = await self.outbox.read(state.archived, max_bytes=2**30)
        rounds = [gather(bucket, state.archived[bucket], entries) for bucket, entries in read.entries.items()]
        assert await self.outbox.note(rounds) == frozenset()

    async def left(self, group: ConversationId) -> list[int]:
        """The seqs whose records are still there."""
        return sorted(int(seq) for seq in await self.stores.call("HKEYS", self.stores.keys(group).msgrec))

    async def evict(self, group: ConversationId, age_ms: int = 0) -> int:
        """Everything of a group that may go; how many records did."""
        removed, more = 0, True
        while more:
            step = await self.hot.evict(self.chat.of(group), age_ms)
            removed, more = removed + step.records, step.more
        return removed

    async def is_hot(self, group: ConversationId) -> bool:
        bucket = self.stores.store.place(self.chat.tenant, group).bucket
        return self.chat.of(group) in await self.hot.due(bucket, -HOUR_MS, 100)


@pytest.fixture
async def place(valkey_session: ValkeyServer) -> AsyncIterator[Place]:
    async with redis_stores(valkey_session, buckets=4) as stores:
        outbox = await with_archive(stores)
        hot = RedisHotRecords(stores.store.instances[0], stores.store.topology)
        yield Place(stores, outbox, hot, Chat(stores, limits=Limits(broadcast_max_members=5)))


async def test_only_archived_records_leave(place: Place) -> None:
    group = await place.chat.create(ANA, BEN)
    await place.chat.send_many(10, ANA, group)
    assert await place.evict(group) == 0
    await place.archive()
    await place.chat.send_many(5, ANA, group)

    assert await place.evict(group) == 10
    assert await place.left(group) == [11, 12, 13, 14, 15]


async def test_the_newest_that_reached_everybody_and_all_above_it_stay(place: Place) -> None:
    group = await place.chat.create(ANA, BEN)
    await place.chat.send_many(10, ANA, group)
    await place.archive()
    assert await place.evict(group) == 9
    assert await place.left(group) == [10]

    await place.chat.add(group, *[user(number) for number in range(50, 60)])  # 12 members: CONCERNED
    await place.chat.remove(group, CARA)
    await place.archive()
    await place.evict(group)
    assert await place.left(group) == [10, 11]


async def test_records_at_and_right_before_a_control_seq_stay(place: Place) -> None:
    group = await place.chat.create(ANA, BEN, CARA)
    await place.chat.send_many(5, ANA, group)
    await place.chat.remove(group, BEN)  # 6
    await place.chat.send_many(4, ANA, group)
    await place.chat.leave(CARA, group)  # 11
    await place.chat.add(group, DAN)  # 12
    await place.chat.send_many(5, ANA, group)
    await place.archive()

    assert await place.evict(group) == 11
    assert await place.left(group) == [5, 6, 10, 11, 12, 17]


async def test_a_control_seq_right_after_what_goes_keeps_its_neighbour(place: Place) -> None:
    group = await place.chat.create(ANA, BEN)
    await place.chat.send_many(1_000, ANA, group)
    await place.chat.remove(group, BEN)  # 1001: the first step ends right before it
    await place.chat.send_many(3, ANA, group)
    await place.archive()

    first = await place.hot.evict(place.chat.of(group), 0)
    assert first == Evicted(999, more=True)
    assert await place.evict(group) == 2
    assert await place.left(group) == [1_000, 1_001, 1_004]


async def test_young_records_stay_and_the_oldest_decides_when_to_look(place: Place) -> None:
    group = await place.chat.create(ANA, BEN)
    await place.chat.send_many(20, ANA, group)
    await place.archive()
    bucket = place.stores.store.place(place.chat.tenant, group).bucket

    assert await place.hot.due(bucket, HOUR_MS, 100) == []
    assert await place.hot.evict(place.chat.of(group), HOUR_MS) == Evicted(0, more=False)
    assert await place.left(group) == list(range(1, 21))
    assert await place.hot.due(bucket, 0, 100) == [place.chat.of(group)]


async def test_the_next_message_makes_a_conversation_hot_again(place: Place) -> None:
    group = await place.chat.create(ANA, BEN)
    await place.chat.send_many(5, ANA, group)
    await place.archive()
    assert await place.is_hot(group)
    await place.evict(group)
    assert not await place.is_hot(group)

    await place.chat.send_many(2, ANA, group)
    await place.archive()
    assert await place.is_hot(group)
    assert await place.evict(group) == 2
    assert await place.left(group) == [7]


async def test_a_conversation_without_messages_or_that_is_gone_is_left_alone(place: Place) -> None:
    empty = await place.chat.create(ANA, BEN)
    await place.archive()
    assert not await place.is_hot(empty)
    assert await place.evict(empty) == 0
    assert await place.evict(ConversationId(b"\x02" + bytes(15))) == 0


async def test_counts_stay_exact_where_everything_has_left(place: Place) -> None:
    group = await place.chat.create(ANA, BEN)
    await place.chat.send_many(30, ANA, group)
    await place.chat.add(group, CARA)
    await place.chat.send_many(30, BEN, group)
    await place.archive()
    before = await place.stores.hash(place.stores.keys(group).grpmeta)

    await place.evict(group)

    keys = place.stores.keys(group)
    after = await place.stores.hash(keys.grpmeta)
    assert {name: value for name, value in after.items() if name != b"evicted"} == before
    assert await place.stores.call("ZCARD", keys.msgctl) == 1
    assert await place.stores.call("STRLEN", keys.msgsnd(0)) == 3 * 61
    assert await place.chat.head(group) == 61


class Held:
    """A lease that is always had."""

    async def hold(self) -> bool:
        return True

    async def release(self) -> None:
        return None


async def test_a_look_finds_every_conversation_that_is_due(place: Place) -> None:
    groups = [await place.chat.create(ANA, BEN) for _ in range(130)]
    for group in groups:
        await place.chat.send_many(3, ANA, group)
    await place.archive()
    metrics = ArchiverMetrics(CollectorRegistry())
    lease: ArchiveLease = Held()
    evictor = Evictor(place.hot, Holding(lease, metrics), metrics, hours=0)

    assert await evictor.look() == 260
    assert metrics.evicted._value.get() == 260
    assert [await place.left(group) for group in groups] == [[3]] * 130
    assert await evictor.look() == 0

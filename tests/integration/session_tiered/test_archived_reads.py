"""With the acknowledgement level `archived`, readers of a dispatch log get no entry that the archive does not hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.integration.session.conftest import Running, Store, until
from tests.integration.session.living import Live, attached, living
from tests.support.dispatch import TENANT, group, messages, ordinary, user

from qim_common.ids import ConversationId
from qim_common.keys import BucketKeys
from qim_common.positions import LOG_START, Position
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.commands.consume import DispatchConsumer
from qim_session.domain.entries import ProjectionEntry

pytestmark = pytest.mark.server
A, ANA = group(1), user(1)


def log_of(store: Store) -> RedisDispatchLog:
    return RedisDispatchLog(store.dispatch, store.topology.buckets_of(0), archived=True)


async def say(store: Store, seq: int, conversation: ConversationId = A) -> Position:
    """A message; nobody has archived it."""
    return Position.parse(await store.append(conversation, messages(conversation, 1, seq, [ordinary(ANA)])))


async def archive(store: Store, upto: Position, conversation: ConversationId = A) -> None:
    """What the archiver leaves in the bucket."""
    await store.instance.call("HSET", BucketKeys(store.partition(conversation)).meta, "arch", str(upto))


async def from_start(store: Store, log: RedisDispatchLog, *, count: int = 16) -> tuple[list[Position], bool]:
    """What one read brings of the conversation's partition, and whether the rest waits for the archive."""
    partition = store.partition(A)
    read = await log.read({partition: LOG_START}, count=count, block_ms=20)
    return [entry.position for entry in read.entries.get(partition, [])], partition in read.behind


async def test_a_read_ends_where_the_archive_does(store: Store) -> None:
    log = log_of(store)
    first, second, third = [await say(store, seq) for seq in (1, 2, 3)]
    assert await from_start(store, log) == ([], True)
    await archive(store, second)
    assert await from_start(store, log) == ([first, second], True)
    assert await from_start(store, log, count=2) == ([first, second], False), "what follows is not known yet"
    await archive(store, third)
    assert await from_start(store, log) == ([first, second, third], False)


async def test_where_the_archive_has_everything_nothing_is_behind(store: Store) -> None:
    log = log_of(store)
    position = await say(store, 1)
    await archive(store, position)
    read = await log.read({part: Position(position.ms, 99) for part in log.partitions}, count=16, block_ms=1)
    assert (read.entries, read.behind) == ({}, frozenset())
    assert read.time_ms >= position.ms


async def test_a_read_wakes_up_for_the_archive_and_for_other_partitions(store: Store) -> None:
    log = log_of(store)
    other = next(group(n) for n in range(2, 99) if store.partition(group(n)) != store.partition(A))
    position = await say(store, 1)
    after = {store.partition(A): LOG_START, store.partition(other): LOG_START}
    assert (await log.read(after, count=16, block_ms=1)).behind == {store.partition(A)}

    reading = asyncio.create_task(log.read(after, count=16, block_ms=10_000))
    elsewhere = await say(store, 1, other)
    await archive(store, elsewhere, other)
    read = await reading
    assert (list(read.entries), list(read.behind)) == ([store.partition(other)], [store.partition(A)])

    reading = asyncio.create_task(log.read({store.partition(A): LOG_START}, count=16, block_ms=10_000))
    await archive(store, position)
    read = await reading
    assert ([entry.position for entry in read.entries[store.partition(A)]], read.behind) == ([position], frozenset())


async def test_a_reader_that_goes_back_gets_again_what_it_had(store: Store) -> None:
    log = log_of(store)
    first, _ = await say(store, 1), await say(store, 2)
    await archive(store, first)
    partition = store.partition(A)
    assert await from_start(store, log) == ([first], True)
    assert (await log.read({partition: first}, count=16, block_ms=1)).entries == {}
    assert await from_start(store, log) == ([first], True)


async def test_waiting_for_the_archive_is_no_busy_loop(store: Store) -> None:
    log = log_of(store)
    await say(store, 1)
    await store.instance.call("CONFIG", "RESETSTAT")
    for _ in range(3):
        assert await from_start(store, log) == ([], True)
    read = await log.read({store.partition(A): LOG_START}, count=16, block_ms=300)
    assert read.entries == {}
    stats = (await store.instance.call("INFO", "commandstats")).decode()
    calls = {line.partition(":")[0]: line for line in stats.splitlines() if line.startswith("cmdstat_")}
    reads = int(calls["cmdstat_xread"].partition("calls=")[2].partition(",")[0])
    looks = int(calls["cmdstat_hget"].partition("calls=")[2].partition(",")[0])
    assert reads == 1, "who waits for the archive reads the log no more"
    assert looks < 100


async def test_the_bounds_say_where_a_tail_begins(store: Store) -> None:
    log = log_of(store)
    partition = store.partition(A)
    first, second = await say(store, 1), await say(store, 2)
    (bounds,) = await log.bounds([partition])
    assert (bounds.last, bounds.delivered, bounds.open_end) == (second, LOG_START, LOG_START)
    await archive(store, first)
    assert (await log.bounds([partition]))[0].delivered == first
    await archive(store, second)
    (bounds,) = await log.bounds([partition])
    assert (bounds.delivered, bounds.open_end) == (second, None)
    (empty,) = await log.bounds([(partition + 1) % 8])
    assert (empty.delivered, empty.open_end) == (LOG_START, None)


@pytest_asyncio.fixture
async def consumer(store: Store) -> AsyncIterator[DispatchConsumer]:
    made = store.consumer(log=log_of(store))
    async with Running(made) as running:
        yield running


async def test_the_projection_and_its_progress_wait_for_the_archive(store: Store, consumer: DispatchConsumer) -> None:
    store.members.versions[A, 1] = {ANA}
    partition = store.partition(A)
    position = await say(store, 1)

    async def others_have_passed() -> bool:
        stored = await store.projection.progress()
        return all(ms > position.ms for part, ms in stored.items() if part != partition) and len(stored) >= 7

    await until(others_have_passed)
    assert await store.listed(ANA) == {}
    assert consumer.progress[partition] <= position.ms
    assert (await store.projection.progress()).get(partition, 0) <= position.ms

    await archive(store, position)

    async def passed() -> bool:
        return (await store.projection.progress()).get(partition, 0) > position.ms

    await until(passed)
    assert await store.listed(ANA) == {A: position.ms}


@pytest_asyncio.fixture
async def live(store: Store) -> AsyncIterator[Live]:
    async with living(store, archived=True) as made:
        yield made


async def test_live_streams_get_what_the_archive_holds_also_what_was_committed_before_they_began(
    store: Store, live: Live
) -> None:
    live.members.versions[A, 1] = {ANA}
    await store.people.register([ProjectionEntry(TENANT, ANA, A, 1)])
    first = await say(store, 1)
    live.screen.attach(1, ANA)

    await live.reader.positioned()
    assert live.screen.seqs(1, A) == [], "its owner does not show it either"
    assert live.reader.settled_ms <= first.ms
    await archive(store, first)
    live.owner.newest[A] = 1
    await live.screen.until(1, "attached")
    second = await say(store, 2)
    await archive(store, second)
    await live.screen.until(1, "delivered", 2)
    assert live.screen.seqs(1, A) == [1, 2]


async def test_at_the_other_levels_nothing_is_asked_of_the_archive(store: Store) -> None:
    log = RedisDispatchLog(store.dispatch, store.topology.buckets_of(0))
    position = await say(store, 1)
    await store.instance.call("CONFIG", "RESETSTAT")
    assert await from_start(store, log) == ([position], False)
    stats = (await store.instance.call("INFO", "commandstats")).decode()
    assert "cmdstat_hget:calls=1," in stats, "the log's identity, and nothing else"


async def test_attaching_before_the_archive_reaches_the_log_s_end_is_not_yet_complete(store: Store, live: Live) -> None:
    await attached(live, ANA)
    position = await say(store, 1)
    live.screen.attach(2, user(2))
    await archive(store, position)
    await live.screen.until(2, "attached")

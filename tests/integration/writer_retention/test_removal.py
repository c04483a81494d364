"""The removal of what lies at or below a floor: in steps, by anybody, never left undone, and seen by nobody."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from tests.integration.writer_retention.conftest import NOW_MS, Keeper, ago
from tests.support.chat import ANA, BEN, CARA, DAN, TENANT, Chat
from tests.support.redis_stores import RedisStores, redis_stores
from tests.support.valkey import connected_again
from tests.support.writers import ANA as WIRE_ANA
from tests.support.writers import TENANT as WIRE_TENANT
from tests.support.writers import Writers, until

from qim_common.ids import ConversationId, uuid7
from qim_devkit.valkey import ValkeyServer
from qim_writer.commands.delivered import Withheld
from qim_writer.commands.states import ConversationQuery

pytestmark = pytest.mark.server

SEGMENT = 65_536


@asynccontextmanager
async def working(keeper: Keeper) -> AsyncIterator[None]:
    """The keeper's removals go on in the background."""
    task = asyncio.create_task(keeper.trimmer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def restarted(keeper: Keeper) -> Keeper:
    """Another writer on the same store, which knows nothing of what the first one meant to do."""
    later = Keeper(Chat(keeper.stores), keeper.stores)
    await later.trimmer.find_left()
    return later


async def left(keeper: Keeper, group: ConversationId) -> bool:
    """Whether somebody still has to remove something."""
    bucket = keeper.stores.store.place(TENANT, group).bucket
    return keeper.chat.of(group) in await keeper.states.untrimmed_groups(bucket)


async def gone(keeper: Keeper, group: ConversationId) -> bool:
    """Whether nobody has to remove anything."""
    return not await left(keeper, group)


async def seen(keeper: Keeper, group: ConversationId, *people: Any) -> list[Any]:
    """What everybody's list, mailbox and history say; bodies of own events, which go with their records, left out."""
    sights: list[Any] = []
    for person in people:
        for read in (0, 3, 7):
            query = ConversationQuery(group, read)
            ((_, state),) = await keeper.people.conversations(TENANT, person, [query], with_preview=True)
            assert state is not None
            sights.append((state.unread, state.head, state.newest_delivered, state.last_activity_ms, state.visible))
        seqs: list[int] = []
        after, more = 0, True
        while more:
            page = await keeper.delivered.page(TENANT, person, group, after, 5)
            for entry in page.entries:
                seqs += range(entry.first, entry.last + 1) if isinstance(entry, Withheld) else [entry.seq]
            after, more = page.next_after, page.more
        sights.append(seqs)
        sights.append(await keeper.chat.read(person, group))
    return sights


async def test_nobody_sees_the_removal(keeper: Keeper, chat: Chat) -> None:
    group = await keeper.create()
    await chat.send_many(2, BEN, group)
    await chat.add(group, CARA, DAN)
    await chat.send_many(2, ANA, group)
    await chat.leave(DAN, group)
    await chat.send_many(3, CARA, group)
    await chat.remove(group, CARA)
    await chat.add(group, CARA)
    head = await chat.head(group)
    for floor in range(1, head + 1):
        await keeper.groups.clear_group(chat.operator, uuid7(), group, floor)
        before = await seen(keeper, group, ANA, BEN, CARA, DAN)
        await keeper.trim(group)
        assert await keeper.stored(group) == list(range(floor + 1, head + 1))
        assert await seen(keeper, group, ANA, BEN, CARA, DAN) == before, f"floor {floor}"


async def test_control_seqs_outlive_their_records(keeper: Keeper, chat: Chat, stores: RedisStores) -> None:
    group = await keeper.create()
    await chat.add(group, CARA)
    await chat.send(ANA, group)
    await chat.remove(group, CARA)
    members = await stores.call("ZRANGE", stores.keys(group).msgctl, 0, -1)
    times = [record.time_ms for record in await keeper.records(group, 3)]
    await keeper.groups.clear_group(chat.operator, uuid7(), group, 0)
    await keeper.trim(group)
    assert await keeper.stored(group) == []
    assert await stores.call("ZRANGE", stores.keys(group).msgctl, 0, -1) == members
    for seq in (1, 3):
        event = await stores.messages.event(chat.of(group), seq)
        assert event is not None
        assert event.time_ms == times[seq - 1]
    assert await stores.messages.event(chat.of(group), 2) is None


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_a_removal_that_was_interrupted_is_completed_after_a_restart(
    keeper: Keeper, chat: Chat, steps: int
) -> None:
    group = await keeper.create(days=0)
    for _ in range(13):
        await chat.send_many(200, ANA, group)
    await keeper.groups.clear_group(chat.operator, uuid7(), group, 2_500)
    for _ in range(steps):
        assert await keeper.states.trim(chat.of(group))
    assert await left(keeper, group)
    later = await restarted(keeper)
    async with working(later):
        await until(partial(gone, later, group))
    assert await keeper.stored(group) == list(range(2_501, 2_601))
    assert not await keeper.states.trim(chat.of(group)), "nothing is left"


async def test_a_writer_that_was_killed_between_floor_and_removal_takes_it_up(writers: Writers) -> None:
    ana = writers.user(WIRE_ANA)
    created = await ana.create_group()
    sent = [await ana.send_to(created.group, b"%d" % n) for n in range(5)]
    instance, keys, bucket = writers.keys(created.group)
    # The floor has moved and the process that moved it is gone.
    instance.hset(keys.grpmeta, "floor", sent[2].seq)
    instance.sadd(bucket.untrimmed, struct.pack(">Q16s", WIRE_TENANT, created.group))
    async with writers.another():
        await until(lambda: not instance.sismember(bucket.untrimmed, struct.pack(">Q16s", WIRE_TENANT, created.group)))
    assert sorted(map(int, instance.hkeys(keys.msgrec))) == [4, 5]


async def test_an_instance_that_is_lost_is_told_of_once(valkey: ValkeyServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with redis_stores(valkey, buckets=16) as stores:
        keeper = Keeper(Chat(stores), stores)
        valkey.kill()
        for _ in range(3):
            await keeper.trimmer.find_left()
            await keeper.retention.round()
        valkey.start()
        await connected_again(stores.store.instances[0])
        await keeper.trimmer.find_left()
        await keeper.retention.round()
    told = [record.getMessage() for record in caplog.records if record.name.endswith("trimming")]
    assert [line.partition(": BACKEND")[0] for line in told] == [
        "instance 0: removals may be left",
        "instance 0: retention leaves it out",
        "instance 0: the removals that are left can be read again",
        "instance 0: retention goes on",
    ]


async def test_two_processes_at_once_do_no_harm(keeper: Keeper, chat: Chat, valkey_session: ValkeyServer) -> None:
    groups = [await keeper.create() for _ in range(3)]
    for group in groups:
        for _ in range(12):
            await chat.send_many(200, ANA, group)
        await keeper.groups.clear_group(chat.operator, uuid7(), group, 2_345)
    async with redis_stores(valkey_session, buckets=keeper.stores.buckets) as others:
        other = Keeper(Chat(others), others)
        await other.trimmer.find_left()
        async with working(keeper), working(other):
            for group in groups:
                await until(partial(gone, keeper, group))
    for group in groups:
        assert await keeper.stored(group) == list(range(2_346, 2_401))
        assert await chat.read(BEN, group) == list(range(2_346, 2_401))


async def test_a_floor_that_moves_during_the_removal_is_reached(keeper: Keeper, chat: Chat) -> None:
    group = await keeper.create()
    for _ in range(15):
        await chat.send_many(200, ANA, group)
    await keeper.groups.clear_group(chat.operator, uuid7(), group, 1_500)
    assert await keeper.states.trim(chat.of(group))
    await keeper.groups.clear_group(chat.operator, uuid7(), group, 2_800)
    await keeper.trim(group)
    assert await keeper.stored(group) == list(range(2_801, 3_001))
    assert not await left(keeper, group)


async def test_a_message_may_come_between_floor_and_removal(keeper: Keeper, chat: Chat) -> None:
    group = await keeper.create()
    await chat.send_many(3, ANA, group)
    await keeper.groups.clear_group(chat.operator, uuid7(), group, 0)
    await chat.send(BEN, group)
    await keeper.trim(group)
    assert await chat.read(ANA, group) == [4]


@pytest.mark.parametrize("floor", [SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT + 5])
async def test_segments_of_the_sender_column_are_freed_and_unread_stays_exact(
    keeper: Keeper, chat: Chat, stores: RedisStores, floor: int
) -> None:
    group = await keeper.create(days=0)
    head = 3 * SEGMENT + 10
    keys = stores.keys(group)
    columns = [senders(head, segment) for segment in range(4)]
    for segment, column in enumerate(columns):
        await stores.call("SET", keys.msgsnd(segment), column)
    await stores.call("SET", keys.msgcseq, head)
    await keeper.groups.clear_group(chat.operator, uuid7(), group, floor)
    before = await unread(keeper, group)
    await keeper.trim(group)
    kept = [bool(await stores.call("EXISTS", keys.msgsnd(segment))) for segment in range(4)]
    assert kept == [segment >= floor // SEGMENT for segment in range(4)]
    assert await unread(keeper, group) == before
    everything = b"".join(columns)
    others = [seq for seq in range(floor + 1, head + 1) if everything[3 * seq - 3 : 3 * seq] != b"\0\0\1"]
    assert before[0] == len(others)


def senders(head: int, segment: int) -> bytes:
    """A column in which Ana and Ben take turns at random."""
    chance = random.Random(segment)  # noqa: S311  no secret
    count = min(head - segment * SEGMENT, SEGMENT)
    return b"".join(chance.choice((b"\0\0\1", b"\0\0\2")) for _ in range(count))


async def unread(keeper: Keeper, group: ConversationId) -> list[int]:
    """Of Ana, from her whole stay and from a late cursor."""
    counts = []
    for read in (0, 3 * SEGMENT + 1):
        query = ConversationQuery(group, read)
        ((_, state),) = await keeper.people.conversations(TENANT, ANA, [query], with_preview=False)
        assert state is not None
        counts.append(state.unread)
    return counts


async def test_samples_of_removed_seqs_are_removed_with_them(keeper: Keeper, stores: RedisStores) -> None:
    group = await keeper.create(days=0)
    times = [ago(100) + hour * 3_600_000 for hour in range(400)]
    await keeper.write(group, times)
    assert await stores.call("ZCARD", stores.keys(group).msgts) == 400
    await keeper.groups.clear_group(keeper.chat.operator, uuid7(), group, 390)
    await keeper.trim(group)
    assert await stores.call("ZRANGE", stores.keys(group).msgts, 0, -1) == [b"%d" % seq for seq in range(391, 401)]
    cut = await keeper.states.age_cut(keeper.chat.of(group), times[394])
    assert cut is not None
    assert cut.seq == 395


async def test_nothing_is_removed_where_no_floor_has_moved(keeper: Keeper, chat: Chat) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(1), NOW_MS])
    assert not await left(keeper, group)
    assert not await keeper.states.trim(chat.of(group))
    assert await keeper.stored(group) == [1, 2]

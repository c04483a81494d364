"""Removal below a floor with an archive: Redis first, then whole buckets of the archive, whatever ends it early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.writer_retention.conftest import NOW_MS
from tests.integration.writer_tiered.conftest import CuttableCassandra, TieredKeeper
from tests.support.chat import ANA, BEN, TENANT, Chat
from tests.support.writers import until

from qim_common.errors import BackendUnavailable
from qim_common.ids import ConversationId, uuid7
from qim_writer.backends.redis.archive_removals import RedisArchiveRemovals
from qim_writer.commands.archive_removal import BUCKETS_AT_ONCE, ArchiveRemoval
from qim_writer.commands.states import ConversationQuery
from qim_writer.commands.trimming import MS_PER_DAY, Trimmer
from qim_writer.domain.answers_window import WINDOW_MS
from qim_writer.domain.seq_buckets import SEQS_PER_BUCKET
from qim_writer.storage import Conversation
from qim_writer.storage_archive import ArchiveHead, ArchiveRow, RemovalState

pytestmark = pytest.mark.server


async def long_group(chat: Chat, messages: int = 2_600) -> ConversationId:
    """Ana's messages, which Ben reads."""
    group = await chat.create(ANA, BEN)
    for _ in range(messages // 200):
        await chat.send_many(200, ANA, group)
    return group


async def clear(keeper: TieredKeeper, group: ConversationId, floor: int, *, archived: bool = True) -> None:
    """An operator raises the floor, and the archive knows it; what lies below it stays for now."""
    await keeper.groups.clear_group(keeper.chat.operator, uuid7(), group, floor)
    if archived:
        await keeper.note_archived(group)


@asynccontextmanager
async def working(keeper: TieredKeeper) -> AsyncIterator[None]:
    """The keeper's removals go on in the background."""
    task = asyncio.create_task(keeper.trimmer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("evicted", [False, True])
@pytest.mark.parametrize(("floor", "left"), [(999, 1), (1_000, 1_001), (1_001, 1_001), (2_500, 2_001), (2_600, 2_001)])
async def test_whole_buckets_go_and_the_one_with_the_floor_stays(
    keeper: TieredKeeper, chat: Chat, floor: int, left: int, *, evicted: bool
) -> None:
    group = await long_group(chat)
    await keeper.archive_all(group)
    if evicted:
        await keeper.evict(group)
    await clear(keeper, group, floor)
    assert await keeper.open_removal(group)

    await keeper.trimmer.remove(chat.of(group))
    assert await keeper.archived(group, 2_600) == list(range(left, 2_601))
    assert await chat.read(BEN, group) == list(range(floor + 1, 2_601))
    assert await keeper.meta(group, "trimmed") == floor
    assert await keeper.meta(group, "agone") == floor // SEQS_PER_BUCKET
    assert not await keeper.open_removal(group)
    assert all(seq > floor for seq in await keeper.stored(group))


async def test_records_that_a_lagging_archiver_writes_later_stay_deleted(keeper: TieredKeeper, chat: Chat) -> None:
    group = await long_group(chat, 1_200)
    keys = keeper.stores.keys(group)
    late = [ArchiveRow(int(seq), record) for seq, record in (await keeper.stores.hash(keys.msgrec)).items()]
    await keeper.archive_all(group)
    await clear(keeper, group, 1_100)
    await keeper.trimmer.remove(chat.of(group))
    assert not await keeper.open_removal(group)

    await keeper.archive.append(chat.of(group), sorted(late, key=lambda row: row.seq))
    assert await keeper.archived(group, 1_200) == list(range(1_001, 1_201))
    assert await chat.read(BEN, group) == list(range(1_101, 1_201))


async def test_without_cassandra_redis_is_cleared_and_the_archive_waits(
    keeper: TieredKeeper, chat: Chat, cuttable: CuttableCassandra
) -> None:
    group = await long_group(chat)
    await keeper.archive_all(group)
    await clear(keeper, group, 2_100)
    cuttable.down = True
    with pytest.raises(BackendUnavailable):
        await keeper.trimmer.remove(chat.of(group))
    assert await keeper.stored(group) == list(range(2_101, 2_601))
    assert await keeper.meta(group, "agone") == 0
    assert await keeper.open_removal(group)

    cuttable.down = False
    later = TieredKeeper(chat, keeper.stores, cassandra=cuttable)
    await later.trimmer.find_left()

    async def cleared() -> bool:
        return not await later.open_removal(group)

    async with working(later):
        await until(cleared)
    assert await keeper.archived(group, 2_600) == list(range(2_001, 2_601))


async def test_an_archive_that_hangs_holds_nothing_up_in_redis(
    keeper: TieredKeeper, chat: Chat, cuttable: CuttableCassandra
) -> None:
    first, second = await long_group(chat, 1_200), await long_group(chat, 1_200)
    for group in (first, second):
        await keeper.archive_all(group)
        await clear(keeper, group, 1_100)
    cuttable.flows.clear()

    async def cleared_here() -> bool:
        return all([(await keeper.stored(group))[0] == 1_101 for group in (first, second)])

    async def cleared_everywhere() -> bool:
        return not any([await keeper.open_removal(group) for group in (first, second)])

    async with working(keeper):
        await until(cleared_here)
        assert await keeper.open_removal(first)
        cuttable.flows.set()
        await until(cleared_everywhere)
    assert await keeper.archived(second, 1_200) == list(range(1_001, 1_201))


async def test_a_removal_that_breaks_off_goes_on_where_it_was(
    keeper: TieredKeeper, chat: Chat, cuttable: CuttableCassandra
) -> None:
    group = await long_group(chat, 200)
    # A line that is long without its messages: all that the removal asks for.
    buckets = 2 * BUCKETS_AT_ONCE + 50
    keys = keeper.stores.keys(group)
    floor = buckets * SEQS_PER_BUCKET + 7
    await keeper.stores.call("HSET", keys.grpmeta, "floor", floor)
    await keeper.stores.call("SET", keys.msgcseq, floor + 1)
    await keeper.note_archived(group)
    cuttable.answers_left = 2 + BUCKETS_AT_ONCE + 3
    with pytest.raises(BackendUnavailable):
        await keeper.removal.remove(chat.of(group))
    assert await keeper.meta(group, "agone") == BUCKETS_AT_ONCE

    cuttable.answers_left, cuttable.down, cuttable.asked = None, False, 0
    await keeper.removal.remove(chat.of(group))
    assert await keeper.meta(group, "agone") == buckets
    assert cuttable.asked == 2 + buckets - BUCKETS_AT_ONCE


async def test_a_floor_that_rises_during_the_removal_keeps_it_open(keeper: TieredKeeper, chat: Chat) -> None:
    group = await long_group(chat)
    await keeper.archive_all(group)
    await clear(keeper, group, 1_100)
    await keeper.trim(group)
    await clear(keeper, group, 2_300)
    await keeper.removal.remove(chat.of(group))
    assert await keeper.open_removal(group), "the rest of Redis is still there"

    await keeper.trimmer.remove(chat.of(group))
    assert not await keeper.open_removal(group)
    assert (await keeper.stored(group))[0] == 2_301


async def test_the_note_never_goes_back_and_looking_changes_nothing(keeper: TieredKeeper, chat: Chat) -> None:
    group = await long_group(chat)
    await keeper.archive_all(group)
    await clear(keeper, group, 2_100)
    state = RemovalState(0, 2_100, trimmed=0, archived=True, generation=0, archived_seq=2_600, newest=2_600)
    assert await keeper.removals.removed(chat.of(group)) == state
    assert await keeper.removals.removed(chat.of(group), 2) == replace(state, gone=2)
    assert await keeper.removals.removed(chat.of(group), 1) == replace(state, gone=2)
    assert await keeper.open_removal(group), "Redis still has what lies below the floor"
    unknown = chat.of(ConversationId(b"\x02" + b"u" * 15))
    assert await keeper.removals.removed(unknown) == RemovalState(0, 0, 0, False, 0, 0, 0)


class CountedLooks(RedisArchiveRemovals):
    """How often somebody looked how a removal stands."""

    looks = 0

    async def removed(self, conversation: Conversation, buckets: int = 0) -> RemovalState:
        """As RedisArchiveRemovals."""
        self.looks += 1
        return await super().removed(conversation, buckets)


async def test_what_is_not_archived_yet_stays_and_goes_soon_after_it_is(
    keeper: TieredKeeper, chat: Chat, cuttable: CuttableCassandra
) -> None:
    group = await long_group(chat, 1_200)
    await keeper.archive_all(group)
    await chat.send_many(200, ANA, group)
    await clear(keeper, group, 1_350, archived=False)
    await keeper.trim(group)
    assert await keeper.stored(group) == list(range(1_201, 1_401))
    assert await keeper.meta(group, "trimmed") == 1_200
    cuttable.asked = 0
    await keeper.trimmer.remove(chat.of(group))
    assert cuttable.asked == 0, "the archive is not touched before it knows of the floor"

    async def cleared() -> bool:
        return not await keeper.open_removal(group)

    removals = CountedLooks(keeper.stores.store)
    removal = ArchiveRemoval(keeper.archive, removals, clock=keeper.removal_clock.seconds)
    keeper.trimmer = Trimmer(keeper.states, 4, removal, soon_seconds=0.05)
    keeper.trimmer.floor_moved(chat.of(group))
    async with working(keeper):
        await until(lambda: removals.looks > 2)
        assert await keeper.open_removal(group)
        await keeper.archive_all(group)
        await until(cleared)
    assert await keeper.stored(group) == list(range(1_351, 1_401))
    assert await keeper.archived(group, 1_400) == list(range(1_001, 1_401))


@pytest.mark.parametrize("name", ["aseq", "arev"])
async def test_neither_messages_nor_changes_may_be_behind(keeper: TieredKeeper, chat: Chat, name: str) -> None:
    group = await long_group(chat, 1_200)
    await keeper.archive_all(group)
    await clear(keeper, group, 1_100)
    now = await keeper.meta(group, name)
    await keeper.stores.call("HSET", keeper.stores.keys(group).grpmeta, name, 0)
    await keeper.trimmer.remove(chat.of(group))
    assert await keeper.open_removal(group)

    await keeper.stores.call("HSET", keeper.stores.keys(group).grpmeta, name, now)
    await keeper.trimmer.remove(chat.of(group))
    assert not await keeper.open_removal(group)


async def test_buckets_stay_as_long_as_requests_in_them_have_answers(keeper: TieredKeeper, chat: Chat) -> None:
    group = await keeper.create(days=0)
    # So old that the clock of the machine that deletes is behind all of them.
    begun = NOW_MS - 300 * MS_PER_DAY
    times = [begun + seq * 1_000 for seq in range(1, 4_201)]
    await keeper.write(group, times)
    await keeper.archive_all(group)
    await clear(keeper, group, 4_100)

    for age_ms, gone in (
        (-WINDOW_MS, 0),
        (0, 0),
        (999_999, 0),
        (1_000_001, 1),
        (3_000_000, 2),
        (3_000_001, 3),
        (9_999_999, 4),
    ):
        keeper.removal_clock.ms = begun + WINDOW_MS + age_ms
        await keeper.trimmer.remove(chat.of(group))
        assert await keeper.meta(group, "agone") == gone, f"{age_ms} ms after the window of the first message"
        assert await keeper.archived(group, 4_200) == list(range(gone * SEQS_PER_BUCKET + 1, 4_201))
        assert await keeper.open_removal(group) == (gone < 4)
        assert await chat.read(BEN, group) == list(range(4_101, 4_201))


async def test_the_head_is_noted_before_anything_is_deleted(
    keeper: TieredKeeper, chat: Chat, cuttable: CuttableCassandra
) -> None:
    group = await long_group(chat)
    await keeper.archive_all(group)
    await clear(keeper, group, 2_100)
    # The look at the records, the head; no deletion any more.
    cuttable.answers_left = 2
    with pytest.raises(BackendUnavailable):
        await keeper.trimmer.remove(chat.of(group))
    cuttable.answers_left, cuttable.down = None, False
    assert await keeper.archive.head(chat.of(group)) == ArchiveHead(0, 2_600)
    assert await keeper.archived(group, 2_600) == list(range(1, 2_601))


async def test_the_newest_message_that_reached_everybody_stays_wherever_the_floor_is(
    keeper: TieredKeeper, chat: Chat
) -> None:
    group = await long_group(chat, 2_000)
    await keeper.archive_all(group)
    await clear(keeper, group, 0)
    await keeper.trimmer.remove(chat.of(group))
    assert await keeper.stored(group) == []
    assert await keeper.archived(group, 2_000) == list(range(1_001, 2_001))
    assert await keeper.open_removal(group)

    await chat.send(BEN, group)
    await keeper.archive_all(group)
    await keeper.trimmer.remove(chat.of(group))
    assert await keeper.archived(group, 2_001) == [2_001]
    assert not await keeper.open_removal(group)


async def test_two_removals_at_once_do_no_harm(keeper: TieredKeeper, chat: Chat) -> None:
    group = await long_group(chat)
    await keeper.cool(group)
    await clear(keeper, group, 2_200)
    await asyncio.gather(*(keeper.trimmer.remove(chat.of(group)) for _ in range(3)))
    assert not await keeper.open_removal(group)
    assert await keeper.archived(group, 2_600) == list(range(2_001, 2_601))
    assert await chat.read(BEN, group) == list(range(2_201, 2_601))


async def test_lists_stay_exact_when_everything_that_was_cold_is_removed(keeper: TieredKeeper, chat: Chat) -> None:
    group = await long_group(chat, 1_200)
    await chat.remove(group, BEN)

    async def listed() -> list[Any]:
        found = []
        for person in (ANA, BEN):
            ((_, state),) = await keeper.people.conversations(
                TENANT, person, [ConversationQuery(group, 10)], with_preview=False
            )
            assert state is not None
            found.append((state.last_activity_ms, state.newest_delivered))
        return found

    before = await listed()
    await keeper.cool(group)
    await clear(keeper, group, 0)
    await keeper.trimmer.remove(chat.of(group))
    assert await keeper.stored(group) == []
    assert await listed() == before

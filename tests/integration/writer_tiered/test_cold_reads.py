"""Reading across the border between Redis and the archive: nobody sees where it is, nor that it moves."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.integration.writer_tiered.conftest import CuttableCassandra, TieredKeeper
from tests.support.chat import ANA, BEN, CARA, DAN, EVE, TENANT, Chat, acting
from tests.support.writers import until

from qim_common.cassandra import CassandraSession
from qim_common.enums import LeaverHistory, NewcomerPolicy, RejoinHistory
from qim_common.errors import BackendUnavailable
from qim_common.ids import ConversationId, uuid7
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.commands.delivered import Withheld
from qim_writer.commands.history import Direction
from qim_writer.commands.states import ConversationQuery

pytestmark = pytest.mark.server

PEOPLE = (ANA, BEN, CARA, DAN, EVE)


async def busy_group(chat: Chat, *, rounds: int = 6, each: int = 40) -> ConversationId:
    """Messages and comings and goings of every kind: left, removed with and without a view, and back."""
    group = await chat.create(
        ANA,
        BEN,
        CARA,
        newcomer=NewcomerPolicy.LAST_N,
        last_n=15,
        rejoin=RejoinHistory.ALL_STAYS,
    )
    for number in range(rounds):
        await chat.send_many(each, ANA, group)
        await chat.add(group, DAN)
        await chat.send_many(each, BEN, group)
        if number % 2:
            await chat.leave(CARA, group)
        else:
            await chat.remove(group, CARA, leaver=LeaverHistory.NONE if number == 2 else LeaverHistory.UNTIL_LEFT)
        await chat.send_many(3, ANA, group)
        await chat.remove(group, DAN)
        await chat.add(group, CARA)
    await chat.leave(CARA, group)
    await chat.send_many(5, BEN, group)
    return group


async def seen(keeper: TieredKeeper, group: ConversationId) -> list[Any]:
    """All that everybody is told of the group: bodies, lists, mailboxes, and the operators' timeline."""
    sights: list[Any] = []
    for person in PEOPLE[:4]:
        for direction in Direction:
            start = 1 if direction is Direction.NEWER else await keeper.chat.head(group)
            while start:
                page = await keeper.chat.history.page(acting(person), group, start, direction, 97)
                sights.append([(record.seq, record.tail, record.time_ms, record.prev) for record in page.messages])
                start = page.next_from
        for read in (0, 150):
            ((_, state),) = await keeper.people.conversations(
                TENANT, person, [ConversationQuery(group, read)], with_preview=True
            )
            sights.append(state)
        after, more = 0, True
        while more:
            mailbox = await keeper.delivered.page(TENANT, person, group, after, 83)
            sights += [entry for entry in mailbox.entries if isinstance(entry, Withheld)]
            sights += [(entry.seq, entry.tail) for entry in mailbox.entries if not isinstance(entry, Withheld)]
            after, more = mailbox.next_after, mailbox.more
    sights.append((await keeper.explain.timeline(keeper.chat.operator, group, b"", 1000, "")).changes)
    return sights


async def test_everybody_is_told_the_same_wherever_the_border_lies(keeper: TieredKeeper, chat: Chat) -> None:
    group = await busy_group(chat)
    before = await seen(keeper, group)
    await keeper.archive_all(group)
    assert await seen(keeper, group) == before
    assert await keeper.evict(group) > 400
    assert keeper.cassandra.asked
    assert await seen(keeper, group) == before
    stored = await keeper.stored(group)
    assert len(stored) < 60, "only what lists show stays in Redis"


async def test_named_messages_come_from_both_sides(keeper: TieredKeeper, chat: Chat) -> None:
    group = await busy_group(chat)
    await keeper.cool(group)
    await chat.send_many(4, ANA, group)
    head = await chat.head(group)
    wanted = [head, 1, 2, 200, head - 1, 90, 17, head + 1]
    named = await chat.history.named(acting(BEN), group, wanted)
    assert [record.seq for record in named.messages] == sorted(seq for seq in wanted if seq <= head)


async def test_pages_are_whole_while_the_border_moves_over_them(keeper: TieredKeeper, chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    for _ in range(12):
        await chat.send_many(200, ANA, group)
    await keeper.archive_all(group)
    await keeper.date(group, [1_000_000 + seq for seq in range(1, 2_401)])
    chance = random.Random(7)  # noqa: S311  no secret
    now_ms = await keeper.stores.now_ms()
    done = asyncio.Event()

    async def move() -> None:
        for border in range(0, 2_400, 23):
            await keeper.evict(group, older_than_ms=now_ms - (1_000_000 + border))
            await asyncio.sleep(0)
        await keeper.evict(group)
        done.set()

    async def read() -> int:
        pages = 0
        while not done.is_set():
            start, limit = chance.randrange(1, 2_401), chance.randrange(1, 400)
            direction = chance.choice(list(Direction))
            page = await chat.history.page(acting(BEN), group, start, direction, limit)
            wanted = (
                range(start, min(start + limit, 2_401))
                if direction is Direction.NEWER
                else range(start, max(start - limit, 0), -1)
            )
            assert [record.seq for record in page.messages] == list(wanted)
            assert all(record.tail.body == b"%d" % ((record.seq - 1) % 200) for record in page.messages)
            pages += 1
        return pages

    *pages, _ = await asyncio.gather(read(), read(), read(), move())
    assert all(pages)
    assert await keeper.stored(group) == [2_400]


async def test_without_cassandra_only_what_is_cold_is_unavailable(
    keeper: TieredKeeper, chat: Chat, cuttable: CuttableCassandra
) -> None:
    group = await busy_group(chat)
    before = [
        await keeper.people.conversations(TENANT, person, [ConversationQuery(group, 9)], with_preview=True)
        for person in PEOPLE
    ]
    await keeper.cool(group)
    cuttable.down = True
    after = [
        await keeper.people.conversations(TENANT, person, [ConversationQuery(group, 9)], with_preview=True)
        for person in PEOPLE
    ]
    assert after == before, "lists, their unread and previews need no archive"

    await chat.send_many(20, ANA, group)
    head = await chat.head(group)
    page = await chat.history.page(acting(BEN), group, head, Direction.OLDER, 20)
    assert len(page.messages) == 20
    mailbox = await keeper.delivered.page(TENANT, BEN, group, head - 20, 50)
    assert len(mailbox.entries) == 20
    assert (await chat.history.range(acting(BEN), group))[3]

    with pytest.raises(BackendUnavailable):
        await chat.history.page(acting(BEN), group, 1, Direction.NEWER, 20)
    with pytest.raises(BackendUnavailable):
        await chat.history.named(acting(BEN), group, [3, head])
    with pytest.raises(BackendUnavailable):
        await keeper.delivered.page(TENANT, BEN, group, 0, 50)
    with pytest.raises(BackendUnavailable):
        await keeper.stores.messages.records_of_many(TENANT, [(group, [head]), (group, [3])])

    cuttable.down = False
    assert len((await chat.history.page(acting(BEN), group, 1, Direction.NEWER, 20)).messages) == 20


async def test_what_lies_below_the_floor_is_gone_from_both_sides_for_every_reader(
    keeper: TieredKeeper, chat: Chat, cuttable: CuttableCassandra
) -> None:
    group = await busy_group(chat, rounds=2)
    await keeper.cool(group)
    # The archive keeps the seqs of a bucket until the floor has passed it, but nobody is told of them.
    await keeper.groups.clear_group(chat.operator, uuid7(), group, 100)
    await keeper.trimmer.remove(chat.of(group))
    assert await keeper.archived(group, 100) == list(range(1, 101))
    cuttable.asked = 0
    assert await keeper.stores.messages.records(chat.of(group), range(1, 101)) == []
    assert cuttable.asked == 0
    mailbox = await keeper.delivered.page(TENANT, BEN, group, 0, 50)
    assert mailbox.entries[0] == Withheld(1, 100)
    assert (await chat.read(BEN, group))[0] == 101


async def test_a_bucket_that_goes_while_a_page_is_read_leaves_the_rest_of_it(
    keeper: TieredKeeper, chat: Chat, cuttable: CuttableCassandra, cassandra_session: CassandraSession
) -> None:
    group = await chat.create(ANA, BEN)
    for _ in range(6):
        await chat.send_many(200, ANA, group)
    await keeper.cool(group)
    facts_before = await chat.history.range(acting(BEN), group)
    assert len(facts_before[3].ranges) == 1

    # The read is on its way to the archive while the floor rises over the bucket, which goes then.
    cuttable.flows.clear()
    cuttable.asked = 0
    read = asyncio.create_task(keeper.stores.messages.records(chat.of(group), range(990, 1_011)))

    async def asked() -> bool:
        return cuttable.asked > 0

    await until(asked)
    await keeper.groups.clear_group(chat.operator, uuid7(), group, 1_000)
    await CassandraArchive(cassandra_session, installation_id="tests", buckets=4).remove_buckets(chat.of(group), [0])
    cuttable.flows.set()
    assert [record.seq for record in await read] == list(range(1_001, 1_011))


@pytest.mark.parametrize("lost", ["a partition", "the keyspace"])
async def test_messages_that_the_archive_has_lost_are_an_error_and_not_a_shorter_page(
    keeper: TieredKeeper, chat: Chat, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    group = await chat.create(ANA, BEN)
    for _ in range(6):
        await chat.send_many(200, ANA, group)
    whole = await chat.create(ANA, BEN)
    await chat.send_many(20, ANA, whole)
    await keeper.cool(whole)
    await keeper.cool(group)
    await keeper.archive.remove_buckets(chat.of(group), [0] if lost == "a partition" else [0, 1])
    counted = missing_so_far()
    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            await chat.history.page(acting(BEN), group, 991, Direction.NEWER, 10)
    with pytest.raises(BackendUnavailable):
        await chat.history.named(acting(BEN), group, [3, 1_200])
    with pytest.raises(BackendUnavailable):
        await keeper.delivered.page(TENANT, BEN, group, 900, 50)
    with pytest.raises(BackendUnavailable):
        await keeper.stores.messages.records_of_many(TENANT, [(whole, [2]), (group, [5, 6])])
    assert missing_so_far() - counted == 10 + 10 + 1 + 50 + 2
    (told,) = [entry.getMessage() for entry in caplog.records if "the archive does not have" in entry.getMessage()]
    assert bytes(group).hex() in told
    assert "seq 991-1000" in told

    # What is there is read as ever: hot messages, other conversations, and the other partition.
    assert [record.seq for record in (await chat.history.named(acting(BEN), group, [1_200])).messages] == [1_200]
    assert await chat.read(BEN, whole) == list(range(1, 21))
    if lost == "a partition":
        assert len((await chat.history.page(acting(BEN), group, 1_001, Direction.NEWER, 200)).messages) == 200

    # Below a floor nobody misses anything.
    await keeper.groups.clear_group(chat.operator, uuid7(), group, 1_199)
    assert await chat.read(BEN, group) == [1_200]


def missing_so_far() -> float:
    """Records that were read and should have been in the archive."""
    return REGISTRY.get_sample_value("qim_writer_archive_missing_total") or 0.0


async def test_seqs_that_never_were_are_not_asked_of_the_archive(
    keeper: TieredKeeper, chat: Chat, cuttable: CuttableCassandra
) -> None:
    group = await busy_group(chat, rounds=1)
    cuttable.down = True
    head = await chat.head(group)
    assert await keeper.stores.messages.records(chat.of(group), [0, head + 1, 2**53 - 1]) == []
    nowhere = ConversationId(b"\x02" + b"x" * 15)
    assert await keeper.stores.messages.records_of_many(TENANT, [(nowhere, [1, 2]), (group, [])]) == [[], []]


async def test_a_page_costs_one_read_of_each_partition_and_not_one_a_message(
    keeper: TieredKeeper, chat: Chat, cuttable: CuttableCassandra
) -> None:
    group = await chat.create(ANA, BEN)
    for _ in range(6):
        await chat.send_many(200, ANA, group)
    await keeper.cool(group)
    cuttable.asked = 0
    page = await chat.history.page(acting(BEN), group, 901, Direction.NEWER, 100)
    assert len(page.messages) == 100
    assert cuttable.asked == 1
    page = await chat.history.page(acting(BEN), group, 951, Direction.NEWER, 100)
    assert len(page.messages) == 100
    assert cuttable.asked == 3

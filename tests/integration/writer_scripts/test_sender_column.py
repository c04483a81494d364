"""The sender column in segments of 65,536 seqs, and the hint that the writer has of them."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.writer_scripts.conftest import move_head
from tests.support.chat import ANA, BEN, TENANT, Chat, Outcomes, Sent
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.ids import ConversationId, UserId, uuid7
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.messages import UNREAD_SEQS_PER_CALL
from qim_writer.domain.visible import UnreadSpan

pytestmark = pytest.mark.server

SEGMENT = 65_536


async def column(stores: RedisStores, group: ConversationId, first: int, last: int) -> list[int]:
    """The ordinals of the senders of these seqs."""
    found = []
    for seq in range(first, last + 1):
        key = stores.keys(group).msgsnd((seq - 1) // SEGMENT)
        at = (seq - 1) % SEGMENT * 3
        found.append(int.from_bytes(await stores.call("GETRANGE", key, at, at + 2), "big"))
    return found


async def lengths(stores: RedisStores, group: ConversationId, segments: int) -> list[int]:
    """Seqs in each segment."""
    return [await stores.call("STRLEN", stores.keys(group).msgsnd(k)) // 3 for k in range(segments)]


async def unread(chat: Chat, group: ConversationId, person: UserId, lower: int, upper: int) -> int:
    facts = await chat.stores.membership.facts(chat.of(group), person)
    assert facts is not None
    assert facts.person is not None
    (count,) = await chat.stores.messages.unread(TENANT, [(group, UnreadSpan(lower, upper), facts.person.ordinal)])
    assert count is not None
    return count


async def test_the_column_names_the_sender_of_each_seq(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    await chat.outcomes((ANA, group, {}), (BEN, group, {}), (BEN, group, {}), (ANA, group, {}))
    await chat.leave(BEN, group)
    await chat.send(ANA, group)
    assert await column(stores, group, 1, 6) == [1, 2, 2, 1, 0, 1]
    assert await lengths(stores, group, 2) == [6, 0]


@pytest.mark.parametrize("head", [SEGMENT - 6, SEGMENT - 1, SEGMENT, 2 * SEGMENT - 4])
async def test_a_run_that_crosses_a_segment_is_split_there(stores: RedisStores, chat: Chat, head: int) -> None:
    group = await chat.create(ANA, BEN)
    await move_head(stores, group, head)
    outcomes = await chat.outcomes(*(((ANA, BEN)[n % 2], group, {}) for n in range(12)))
    assert [outcome.seq for outcome in outcomes if isinstance(outcome, Sent)] == list(range(head + 1, head + 13))
    assert await column(stores, group, head + 1, head + 12) == [1, 2] * 6
    filled, rest = divmod(head + 12, SEGMENT)
    assert await lengths(stores, group, filled + 2) == [SEGMENT] * filled + [rest, 0]
    assert await unread(chat, group, ANA, head, head + 12) == 6
    assert await unread(chat, group, BEN, head - 5, head + 11) == 5 + 6


@pytest.mark.parametrize("head", [SEGMENT - 1, SEGMENT, SEGMENT + 1, 5 * SEGMENT - 1, 5 * SEGMENT])
async def test_membership_events_find_their_segment(stores: RedisStores, chat: Chat, head: int) -> None:
    group = await chat.create(ANA)
    await move_head(stores, group, head)
    assert (await chat.add(group, BEN)).seq == head + 1
    assert (await chat.remove(group, BEN)).seq == head + 2
    assert await column(stores, group, head + 1, head + 2) == [0, 0]
    assert await unread(chat, group, ANA, head, head + 2) == 0


@pytest.mark.parametrize("head", [2 * SEGMENT, 2 * SEGMENT + 7, 40 * SEGMENT + 7])
async def test_a_writer_that_does_not_know_the_segment_asks_once_and_keeps_the_order(
    stores: RedisStores, chat: Chat, head: int
) -> None:
    group, other = await chat.create(ANA, BEN), await chat.create(ANA)
    await stores.call("SET", stores.keys(group).msgcseq, head)
    outcomes = await chat.outcomes(*((ANA, (group, other)[n % 2], {"body": b"%d" % n}) for n in range(40)))
    seqs = [outcome.seq for outcome in outcomes if isinstance(outcome, Sent)]
    assert seqs[::2] == list(range(head + 1, head + 21))
    assert seqs[1::2] == list(range(1, 21))
    assert (await chat.record(group, head + 20)).tail.body == b"38"


async def test_an_id_twice_in_a_call_that_has_to_ask_takes_one_seq(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    await stores.call("SET", stores.keys(group).msgcseq, 9 * SEGMENT)
    again = {"message_id": uuid7()}
    first, second, third = await chat.outcomes((ANA, group, again), (ANA, group, again), (ANA, group, {}))
    assert first == second
    assert isinstance(first, Sent)
    assert isinstance(third, Sent)
    assert (first.seq, third.seq) == (9 * SEGMENT + 1, 9 * SEGMENT + 2)


@pytest.mark.parametrize("back", [1, 9, 10, 255, 256, 257])
async def test_calls_in_flight_with_an_old_hint_are_all_refused_or_none(
    stores: RedisStores, chat: Chat, back: int
) -> None:
    # The hint (segment 0) is one behind, and the first call would run into the segment after the next one: a shorter
    # second call must not be taken before it.
    group = await chat.create(ANA, BEN)
    head = 2 * SEGMENT - back
    await stores.call("SET", stores.keys(group).msgcseq, head)
    sink = Outcomes(266)
    chat.stores.commits.submit([chat.prepared(sink, index, ANA, group) for index in range(266)])
    outcomes = await sink.wait()
    seqs = [outcome.seq for outcome in outcomes if isinstance(outcome, Sent)]
    assert seqs == list(range(head + 1, head + 267))


async def test_a_newer_hint_waits_for_calls_with_the_older_one(valkey_session: ValkeyServer) -> None:
    repeated = uuid7()
    async with redis_stores(valkey_session) as before:
        chat = Chat(before)
        group = await chat.create(ANA, BEN)
        await before.call("SET", before.keys(group).msgcseq, 2 * SEGMENT + 99)
        assert (await chat.send(ANA, group, message_id=repeated)).seq == 2 * SEGMENT + 100
        await before.call("SET", before.keys(group).msgcseq, 3 * SEGMENT)
    async with redis_stores(valkey_session) as after:
        # As after a restart. The first call is answered from an entry and tells a newer segment, while the second, with
        # the old hint, is on its way to be refused.
        chat, sink = Chat(after), Outcomes(4)
        first, *later = (
            chat.prepared(sink, index, ANA, group, message_id=repeated if index == 0 else uuid7()) for index in range(4)
        )
        for send in (first, later[0]):
            after.commits.submit([send])
            await asyncio.sleep(0)  # the call is written in this turn of the loop
        after.commits.submit(later[1:])
        outcomes = await sink.wait()
    seqs = [outcome.seq for outcome in outcomes if isinstance(outcome, Sent)]
    assert seqs == [2 * SEGMENT + 100, 3 * SEGMENT + 1, 3 * SEGMENT + 2, 3 * SEGMENT + 3]


async def test_membership_changes_leave_the_hint_of_sends_alone(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA)
    await stores.call("SET", stores.keys(group).msgcseq, 7 * SEGMENT)
    await chat.add(group, BEN)
    assert stores.store.place(TENANT, group).segment == 0, "a call on its way carries it"


async def test_unread_over_many_segments_is_counted_in_calls_of_bounded_length(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    head = 3 * SEGMENT + 10
    await move_head(stores, group, head)
    await chat.send_many(5, ANA, group)
    await stores.call("CONFIG", "RESETSTAT")
    assert await unread(chat, group, ANA, 0, head + 5) == head
    assert await unread(chat, group, BEN, 0, head + 5) == head + 5
    stats = await stores.call("INFO", "commandstats")
    (line,) = [line for line in stats.decode().splitlines() if line.startswith("cmdstat_evalsha:")]
    calls = 2 + 2 * -(-(head + 5) // UNREAD_SEQS_PER_CALL)
    assert f"calls={calls}," in line, "two for the facts, then as many as the bound asks for"

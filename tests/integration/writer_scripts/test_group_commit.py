"""Group commit: few calls, the order of each conversation, and what happens when the instance forgets or goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import redis
from tests.support.chat import ANA, BEN, CARA, Chat, Outcomes, Sent
from tests.support.redis_stores import RedisStores, redis_stores
from tests.support.valkey import connected_again

from qim_common.errors import BackendUnavailable, Overloaded, QimError
from qim_common.ids import ConversationId, uuid7
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.group_commit import QUEUE_SENDS

pytestmark = pytest.mark.server


@pytest_asyncio.fixture
async def own(valkey: ValkeyServer) -> AsyncIterator[RedisStores]:
    """Stores on a server of the test's own."""
    async with redis_stores(valkey) as opened:
        yield opened


async def calls_of_scripts(stores: RedisStores) -> int:
    """How often EVALSHA ran since the last reset."""
    stats = await stores.call("INFO", "commandstats")
    lines = [line for line in stats.decode().splitlines() if line.startswith("cmdstat_evalsha:")]
    return int(lines[0].partition("calls=")[2].partition(",")[0]) if lines else 0


def seqs(outcomes: list[Sent | QimError]) -> list[int]:
    """Of outcomes that are all commits."""
    assert all(isinstance(outcome, Sent) for outcome in outcomes), outcomes
    return [outcome.seq for outcome in outcomes if isinstance(outcome, Sent)]


@pytest.mark.parametrize(("sends", "calls"), [(1, 1), (256, 1), (257, 2), (1000, 4)])
async def test_what_waits_goes_in_calls_of_256(stores: RedisStores, chat: Chat, sends: int, calls: int) -> None:
    groups = [await chat.create(ANA) for _ in range(5)]
    await stores.call("CONFIG", "RESETSTAT")
    outcomes = await chat.outcomes(*((ANA, groups[n % 5], {}) for n in range(sends)))
    assert len(seqs(outcomes)) == sends
    assert await calls_of_scripts(stores) == calls


async def test_frames_that_arrive_together_share_a_call(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA)
    await stores.call("CONFIG", "RESETSTAT")
    sinks = [Outcomes(4) for _ in range(20)]
    for sink in sinks:
        stores.commits.submit([chat.prepared(sink, index, ANA, group) for index in range(4)])
    assert [seq for sink in sinks for seq in seqs(await sink.wait())] == list(range(1, 81))
    assert await calls_of_scripts(stores) == 1


async def test_one_call_appends_one_dispatch_entry_per_bucket(stores: RedisStores, chat: Chat) -> None:
    groups = [await chat.create(ANA) for _ in range(12)]
    buckets = {stores.bucket(group).dispatch for group in groups}
    before = {name: await stores.call("XLEN", name) for name in buckets}
    await chat.outcomes(*((ANA, groups[n % 12], {}) for n in range(96)))
    assert {name: await stores.call("XLEN", name) - before[name] for name in buckets} == dict.fromkeys(buckets, 1)
    for group in groups:
        _, block = (await stores.dispatched(group))[-1]
        assert len(block.items) == 8  # type: ignore[union-attr]


async def test_each_conversation_keeps_the_order_of_submission_over_many_calls(chat: Chat) -> None:
    groups = [await chat.create(ANA, BEN, CARA) for _ in range(4)]
    sinks: list[tuple[Outcomes, list[int]]] = []
    number = 0
    for frame in range(150):
        size = 1 + frame * 7 % 23
        sink, where = Outcomes(size), [(number + n) * n % 4 for n in range(size)]
        sends = [
            chat.prepared(sink, n, (ANA, BEN, CARA)[n % 3], groups[where[n]], body=b"%d" % (number + n))
            for n in range(size)
        ]
        chat.stores.commits.submit(sends)
        sinks.append((sink, where))
        number += size
        if frame % 5 == 0:
            await asyncio.sleep(0)
    by_group: list[list[int]] = [[], [], [], []]
    for sink, where in sinks:
        for at, seq in zip(where, seqs(await sink.wait()), strict=True):
            by_group[at].append(seq)
    for found in by_group:
        assert found == list(range(1, len(found) + 1))


async def _load(chat: Chat, groups: list[ConversationId], frames: int) -> AsyncIterator[Outcomes]:
    for frame in range(frames):
        sink = Outcomes(len(groups) * 3)
        sends = [
            chat.prepared(sink, n, ANA, groups[n % len(groups)], body=b"%d" % (frame * 3 + n // len(groups)))
            for n in range(len(groups) * 3)
        ]
        chat.stores.commits.submit(sends)
        yield sink


async def test_a_script_flush_under_load_repeats_what_was_not_executed_once_and_in_order(
    valkey_session: ValkeyServer, stores: RedisStores, chat: Chat
) -> None:
    groups = [await chat.create(ANA) for _ in range(3)]
    by_group: list[list[int]] = [[], [], []]
    waiting: list[Outcomes] = []
    with redis.Redis(host=valkey_session.host, port=valkey_session.port, protocol=2) as another_client:
        async for sink in _load(chat, groups, 200):
            waiting.append(sink)
            if len(waiting) % 20 == 10:
                another_client.script_flush()
            if len(waiting) % 3 == 0:
                await asyncio.sleep(0)
            if len(waiting) % 50 == 0:
                await sink.wait()
        another_client.script_flush()
        for sink in waiting:
            for n, seq in enumerate(seqs(await sink.wait())):
                by_group[n % 3].append(seq)
    for group, found in zip(groups, by_group, strict=True):
        assert found == list(range(1, 601)), "each once, in the order of submission"
        records = await stores.messages.records(chat.of(group), found)
        assert [record.tail.body for record in records] == [b"%d" % n for n in range(600)]


async def test_every_script_is_loaded_again_after_a_flush(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    for act in (
        lambda: chat.send(ANA, group),
        lambda: chat.add(group, CARA),
        lambda: chat.create(ANA),
        lambda: chat.read(ANA, group),
        lambda: chat.present(ANA, group),
        lambda: chat.at(group, 1),
        lambda: chat.leave(CARA, group),
    ):
        await stores.call("SCRIPT", "FLUSH", "SYNC")
        await act()
    assert await chat.head(group) == 3


async def test_more_than_the_bound_waiting_is_overloaded_at_once(chat: Chat) -> None:
    group = await chat.create(ANA)
    sink = Outcomes(QUEUE_SENDS + 5)
    one = chat.prepared(sink, 0, ANA, group)
    sends = []
    for index in range(QUEUE_SENDS + 5):
        # As `prepare_send` makes them, without its cost 32,768 times.
        key = type(one.key)(index.to_bytes(16, "big"), one.key.digest, 0)
        sends.append(type(one)(one.conversation, ANA, key, one.tail, 0, (), sink, index))
    chat.stores.commits.submit(sends)
    assert sorted(sink.answers) == list(range(QUEUE_SENDS, QUEUE_SENDS + 5)), "before anything else happened"
    outcomes = await sink.wait()
    assert seqs(outcomes[:QUEUE_SENDS]) == list(range(1, QUEUE_SENDS + 1))
    assert all(isinstance(outcome, Overloaded) for outcome in outcomes[QUEUE_SENDS:])
    assert (await chat.send(ANA, group)).seq == QUEUE_SENDS + 1, "there is room again"


async def test_what_nobody_waits_for_any_more_is_not_sent(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA)
    gone, there = Outcomes(3), Outcomes(2)
    stores.commits.submit([chat.prepared(gone, index, ANA, group) for index in range(3)])
    stores.commits.submit([chat.prepared(there, index, ANA, group) for index in range(2)])
    gone.expired = True
    assert seqs(await there.wait()) == [1, 2]
    assert await chat.head(group) == 2
    assert not gone.answers


async def test_a_call_of_which_nobody_waits_for_anything_is_not_made(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA)
    await stores.call("CONFIG", "RESETSTAT")
    gone = Outcomes(300)
    stores.commits.submit([chat.prepared(gone, index, ANA, group) for index in range(300)])
    gone.expired = True
    await asyncio.sleep(0)
    assert await calls_of_scripts(stores) == 0
    assert (await chat.send(ANA, group)).seq == 1


async def test_an_instance_that_goes_away_answers_unavailable_and_later_goes_on_without_a_gap(
    valkey: ValkeyServer, own: RedisStores
) -> None:
    chat = Chat(own)
    group = await chat.create(ANA)
    ids = [uuid7() for _ in range(600)]
    acknowledged: dict[int, bytes] = {}
    sink = Outcomes(600)
    own.commits.submit(
        [chat.prepared(sink, index, ANA, group, message_id=message_id) for index, message_id in enumerate(ids)]
    )
    await asyncio.sleep(0)
    valkey.kill()
    outcomes = await sink.wait()
    assert any(isinstance(outcome, BackendUnavailable) for outcome in outcomes)
    assert all(isinstance(outcome, Sent | BackendUnavailable) for outcome in outcomes)
    acknowledged = {o.seq: ids[n] for n, o in enumerate(outcomes) if isinstance(o, Sent)}
    with pytest.raises(BackendUnavailable):
        await chat.send(ANA, group)
    valkey.start()
    await connected_again(own.store.instances[0])
    again = await chat.outcomes(*((ANA, group, {"message_id": message_id}) for message_id in ids))
    assert sorted(seqs(again)) == list(range(1, 601)), "a repeat with the same ids: each once, no gap"
    for seq, message_id in acknowledged.items():
        assert (await chat.record(group, seq)).tail.client_message_id == message_id
    assert await chat.read(ANA, group) == list(range(1, 601))

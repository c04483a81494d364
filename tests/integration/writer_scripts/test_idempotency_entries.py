"""Idempotency entries: two generations are read, rotated by stored stamps; what is too old is never executed
(contracts.md, "Idempotency")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.chat import ANA, BEN, CARA, DAN, Chat
from tests.support.redis_stores import RedisStores

from qim_common.errors import IdempotencyKeyReused, QimError, RequestTooOld
from qim_common.ids import ConversationId, direct_conversation_id, group_conversation_id, uuid7

pytestmark = pytest.mark.server

DAY_MS = 86_400_000
GRACE_MS = 600_000
FULL = 10_000
RAW = bytes(range(16))
GROUP = group_conversation_id(RAW)


def id_of(time_ms: int) -> bytes:
    """A UUIDv7 that was made at this time."""
    return time_ms.to_bytes(6, "big") + uuid7()[6:]


async def rotation(stores: RedisStores) -> dict[str, int]:
    """The stamps of the group's bucket."""
    found = await stores.hash(stores.bucket(GROUP).meta)
    return {name: int(found[name.encode()]) for name in ("g", "s", "low")}


async def fill(stores: RedisStores, generation: int, count: int = FULL) -> None:
    """Entries of other requests, until the generation holds `count`."""
    key = stores.bucket(GROUP).idem[generation % 3]
    missing = count - await stores.call("HLEN", key)
    for start in range(0, missing, 1000):
        pairs = [part for n in range(start, min(start + 1000, missing)) for part in (b"other %d" % n, b"x" * 30)]
        await stores.call("HSET", key, *pairs)


async def make_due(stores: RedisStores) -> None:
    """The present generation is a day old and full, as long traffic would make it."""
    await fill(stores, (await rotation(stores))["g"])
    await stores.call("HSET", stores.bucket(GROUP).meta, "s", await stores.now_ms() - DAY_MS)


Do = Callable[[Chat, bytes], Awaitable[object]]


async def sends(chat: Chat, request_id: bytes) -> object:
    return await chat.send(ANA, GROUP, message_id=request_id)


async def adds(chat: Chat, request_id: bytes) -> object:
    return await chat.add(GROUP, CARA, request_id=request_id)


async def removes(chat: Chat, request_id: bytes) -> object:
    return await chat.remove(GROUP, CARA, request_id=request_id)


async def leaves(chat: Chat, request_id: bytes) -> object:
    return await chat.leave(BEN, GROUP, request_id=request_id)


async def creates(chat: Chat, request_id: bytes) -> object:
    return await chat.create_with_answer(ANA, BEN, group_id=GROUP, request_id=request_id)


CHANGES = [sends, adds, removes, leaves]


@pytest.mark.parametrize(
    ("age_ms", "entries", "rotates"),
    [
        (DAY_MS, FULL, True),
        (30 * DAY_MS, FULL, True),
        (DAY_MS - 60_000, FULL, False),
        (30 * DAY_MS, FULL - 1, False),
        (-30 * DAY_MS, 3 * FULL, False),
    ],
    ids=["due", "long due", "too young", "too few", "the clock jumped back"],
)
async def test_a_generation_ends_when_it_is_both_old_and_full(
    stores: RedisStores, chat: Chat, age_ms: int, entries: int, rotates: bool
) -> None:
    await chat.create(ANA, BEN, group_id=GROUP)
    await fill(stores, 0, entries)
    started = await stores.now_ms() - age_ms
    await stores.call("HSET", stores.bucket(GROUP).meta, "s", started)
    await chat.send(ANA, GROUP)
    stamps = await rotation(stores)
    assert stamps["g"] == rotates
    assert (stamps["s"] != started) == rotates
    assert stamps["low"] == 0, "nothing was dropped yet"
    first, second, third = stores.bucket(GROUP).idem
    sizes = [await stores.call("HLEN", key) for key in (first, second, third)]
    assert sizes == ([entries, 1, 0] if rotates else [entries + 1, 0, 0])


@pytest.mark.parametrize("do", [*CHANGES, creates])
async def test_an_answer_is_found_through_one_rotation(stores: RedisStores, chat: Chat, do: Do) -> None:
    if do is not creates:
        await chat.create(ANA, BEN, group_id=GROUP)
    request_id = uuid7()
    first = await do(chat, request_id)
    await make_due(stores)
    await chat.send(ANA, GROUP)
    assert (await rotation(stores))["g"] == 1
    head = await chat.head(GROUP)
    assert await do(chat, request_id) == first
    assert await chat.head(GROUP) == head


@pytest.mark.parametrize("do", CHANGES)
async def test_the_call_that_rotates_still_finds_the_answer(stores: RedisStores, chat: Chat, do: Do) -> None:
    await chat.create(ANA, BEN, group_id=GROUP)
    request_id = uuid7()
    first = await do(chat, request_id)
    await make_due(stores)
    assert await do(chat, request_id) == first


async def test_an_older_answer_is_found_before_a_plan_is_refused(stores: RedisStores, chat: Chat) -> None:
    await chat.create(ANA, BEN, group_id=GROUP, member_limit=3)
    request_id = uuid7()
    first = await chat.add(GROUP, CARA, request_id=request_id)
    await make_due(stores)
    await chat.remove(GROUP, CARA)
    await chat.add(GROUP, DAN)
    assert (await rotation(stores))["g"] == 1
    assert await chat.add(GROUP, CARA, request_id=request_id) == first


@pytest.mark.parametrize("do", [*CHANGES, creates])
async def test_what_two_rotations_dropped_is_too_old_and_not_executed(stores: RedisStores, chat: Chat, do: Do) -> None:
    if do is not creates:
        await chat.create(ANA, BEN, group_id=GROUP)
    old = id_of(await stores.now_ms() - DAY_MS - GRACE_MS - 60_000)
    first = await do(chat, old)
    for _ in range(2):
        assert await do(chat, old) == first
        await make_due(stores)
        await chat.send(ANA, GROUP)
    stamps = await rotation(stores)
    assert stamps["g"] == 2
    assert 0 < stamps["low"] <= await stores.now_ms() - DAY_MS
    head, version = await chat.head(GROUP), await chat.version(GROUP)
    with pytest.raises(RequestTooOld):
        await do(chat, old)
    assert (await chat.head(GROUP), await chat.version(GROUP)) == (head, version)


async def test_the_start_of_the_older_kept_generation_is_what_counts(stores: RedisStores, chat: Chat) -> None:
    await chat.create(ANA, group_id=GROUP)
    starts = []
    for _ in range(4):
        await make_due(stores)
        starts.append((await rotation(stores))["s"])
        await chat.send(ANA, GROUP)
        stamps = await rotation(stores)
        assert stamps["low"] == (starts[-1] if len(starts) > 1 else 0)
    assert stamps["g"] == 4


@pytest.mark.parametrize(
    ("age_ms", "too_old"), [(GRACE_MS - 1, False), (GRACE_MS, False), (GRACE_MS + 1, True), (30 * DAY_MS, True)]
)
async def test_ids_up_to_ten_minutes_before_the_kept_generations_are_executed(
    stores: RedisStores, chat: Chat, age_ms: int, too_old: bool
) -> None:
    await chat.create(ANA, group_id=GROUP)
    low = await stores.now_ms()
    await stores.call("HSET", stores.bucket(GROUP).meta, "low", low)
    request_id = id_of(low - age_ms)
    if too_old:
        for do in (sends, adds):
            with pytest.raises(RequestTooOld):
                await do(chat, request_id)
        assert await chat.head(GROUP) == 0
    else:
        await sends(chat, request_id)
        await adds(chat, request_id)
        assert await chat.head(GROUP) == 2


async def test_ids_that_tell_no_time_are_never_too_old(stores: RedisStores, chat: Chat) -> None:
    await chat.create(ANA, group_id=GROUP)
    await stores.call("HSET", stores.bucket(GROUP).meta, "low", await stores.now_ms())
    for request_id in (b"\x01" * 16, bytes.fromhex("018f0000000040008000000000000001")):
        await sends(chat, request_id)
        await adds(chat, request_id)


async def test_a_known_id_is_answered_however_old_it_is(stores: RedisStores, chat: Chat) -> None:
    await chat.create(ANA, group_id=GROUP)
    old = id_of(await stores.now_ms() - 30 * DAY_MS)
    first = await sends(chat, old)
    await stores.call("HSET", stores.bucket(GROUP).meta, "low", await stores.now_ms())
    assert await sends(chat, old) == first


async def test_too_old_is_said_before_a_refusal_that_would_deny_what_happened(stores: RedisStores, chat: Chat) -> None:
    await chat.create(ANA, BEN, group_id=GROUP, member_limit=3)
    old = id_of(await stores.now_ms() - 30 * DAY_MS)
    await chat.add(GROUP, CARA, request_id=old)
    await chat.remove(GROUP, CARA)
    await chat.add(GROUP, DAN)
    for key in stores.bucket(GROUP).idem:
        await stores.call("DEL", key)
    await stores.call("HSET", stores.bucket(GROUP).meta, "low", await stores.now_ms())
    with pytest.raises(RequestTooOld):
        await chat.add(GROUP, CARA, request_id=old)


async def test_a_rotation_drops_what_is_no_longer_read(stores: RedisStores, chat: Chat) -> None:
    await chat.create(ANA, group_id=GROUP)
    for _ in range(3):
        await make_due(stores)
        await chat.send(ANA, GROUP)
    sizes = [await stores.call("HLEN", key) for key in stores.bucket(GROUP).idem]
    assert sizes == [1, 0, FULL]


async def test_a_refused_call_stores_nothing(stores: RedisStores, chat: Chat) -> None:
    await chat.create(ANA, group_id=GROUP, member_limit=1)
    before = await stores.call("HLEN", stores.bucket(GROUP).idem[0])
    refused: list[tuple[Do, bytes]] = [(adds, uuid7()), (leaves, uuid7()), (creates, uuid7())]
    for do, request_id in refused:
        with pytest.raises(QimError):
            await do(chat, request_id)
    assert await stores.call("HLEN", stores.bucket(GROUP).idem[0]) == before


@pytest.mark.parametrize("in_one_batch", [True, False])
async def test_one_id_of_a_direct_conversation_takes_one_seq(chat: Chat, in_one_batch: bool) -> None:
    again: dict[str, Any] = {"peer": BEN, "message_id": uuid7()}
    if in_one_batch:
        outcomes = await chat.outcomes((ANA, b"", again), (ANA, b"", again))
    else:
        outcomes = [await chat.send(ANA, **again), await chat.send(ANA, **again)]
    assert outcomes[0] == outcomes[1]
    conversation: ConversationId = direct_conversation_id(chat.tenant, ANA, BEN)
    assert await chat.head(conversation) == 1
    with pytest.raises(IdempotencyKeyReused):
        await chat.send(ANA, peer=BEN, message_id=again["message_id"], body=b"other")

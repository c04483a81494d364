"""The clock of an instance jumps, forwards and back, while it serves: no first answer is forgotten, nothing is executed
twice, times do not fall and the logs keep what their readers need (docs/decisions/0005-clock-jumps.md)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
import pytest_asyncio
from tests.support.chat import ANA, BEN, CARA, DAN, Chat, acting, user
from tests.support.redis_stores import RedisStores, redis_stores
from tests.support.shifted_clock import DAY, HOUR, ShiftedClock
from tests.support.valkey import connected_again

from qim_common.errors import IdempotencyKeyReused, RequestTooOld
from qim_common.ids import ConversationId, direct_conversation_id, uuid7
from qim_writer.backends.redis.group_state import RedisGroupStateStore
from qim_writer.commands.clear_history import OwnClear

pytestmark = pytest.mark.server

FULL = 10_000
GRACE_MS = 600_000
JUMPS: Sequence[Sequence[int]] = (
    (25 * HOUR,),
    (30 * DAY,),
    (-2 * DAY,),
    (25 * HOUR, -25 * HOUR, 25 * HOUR),
    (-2 * DAY, 32 * DAY, -30 * DAY),
    (30 * DAY, -60 * DAY, 30 * DAY, 30 * DAY),
)


@pytest_asyncio.fixture
async def stores(shifted: ShiftedClock) -> AsyncIterator[RedisStores]:
    """Stores on the server whose clock can be moved; everything lives in one bucket."""
    async with redis_stores(shifted.server, buckets=1) as opened:
        yield opened


@pytest.fixture
def chat(stores: RedisStores) -> Chat:
    """The writer's commands."""
    return Chat(stores)


@pytest_asyncio.fixture
async def group(chat: Chat) -> ConversationId:
    """Ana's group with Ben."""
    return await chat.create(ANA, BEN)


def id_of(time_ms: int) -> bytes:
    """A UUIDv7 that was made at this time."""
    return time_ms.to_bytes(6, "big") + uuid7()[6:]


async def generation(stores: RedisStores, group: ConversationId) -> int:
    """How often the entries of the bucket were rotated."""
    return int(await stores.call("HGET", stores.bucket(group).meta, "g"))


async def fill(stores: RedisStores, group: ConversationId, count: int = FULL) -> None:
    """Entries of other requests, until the newest generation holds `count`."""
    key = stores.bucket(group).idem[await generation(stores, group) % 3]
    missing = count - int(await stores.call("HLEN", key))
    pairs = [part for _ in range(missing) for part in (uuid7(), b"x" * 30)]
    for start in range(0, len(pairs), 2_000):
        await stores.call("HSET", key, *pairs[start : start + 2_000])


Do = Callable[[Chat, RedisStores, ConversationId, bytes], Awaitable[object]]


async def sends(chat: Chat, _: RedisStores, group: ConversationId, request_id: bytes) -> object:
    return await chat.send(ANA, group, message_id=request_id)


async def sends_directly(chat: Chat, _: RedisStores, __: ConversationId, request_id: bytes) -> object:
    return await chat.send(ANA, peer=BEN, message_id=request_id)


async def adds(chat: Chat, _: RedisStores, group: ConversationId, request_id: bytes) -> object:
    return await chat.add(group, CARA, request_id=request_id)


async def creates(chat: Chat, _: RedisStores, __: ConversationId, request_id: bytes) -> object:
    return await chat.create_with_answer(DAN, request_id=request_id)


async def clears(chat: Chat, stores: RedisStores, group: ConversationId, request_id: bytes) -> object:
    own = OwnClear(chat.stores.membership, RedisGroupStateStore(stores.store))
    return await own(acting(ANA), request_id, group, 0)


@pytest.mark.parametrize("full", [False, True], ids=["little traffic", "a full generation before each jump"])
@pytest.mark.parametrize("jumps", JUMPS, ids=lambda jumps: " ".join(f"{jump // HOUR:+d}h" for jump in jumps))
async def test_a_retry_finds_its_first_answer_after_jumps(
    shifted: ShiftedClock, stores: RedisStores, chat: Chat, group: ConversationId, jumps: Sequence[int], full: bool
) -> None:
    calls: list[tuple[Do, bytes]] = [(do, uuid7()) for do in (sends, sends_directly, adds, creates, clears)]
    first = [await do(chat, stores, group, request_id) for do, request_id in calls]
    heads = await chat.head(group), await chat.version(group)
    for jump in jumps[:1] if full else jumps:
        if full:
            await fill(stores, group)
        shifted.jump(jump)
        assert [await do(chat, stores, group, request_id) for do, request_id in calls] == first
    assert (await chat.head(group), await chat.version(group)) == heads, "no second effect"
    with pytest.raises(IdempotencyKeyReused):
        await chat.send(ANA, group, message_id=calls[0][1], body=b"other")


async def test_the_clock_going_to_and_fro_ends_one_generation_at_most(
    shifted: ShiftedClock, stores: RedisStores, chat: Chat, group: ConversationId
) -> None:
    request_id = uuid7()
    first = await chat.send(ANA, group, message_id=request_id)
    for offset in (30 * DAY, 0, 30 * DAY, -2 * DAY, 30 * DAY, 0):
        await fill(stores, group)
        shifted.set(offset)
        await chat.send(BEN, group)
        assert await chat.send(ANA, group, message_id=request_id) == first
    assert await generation(stores, group) == 1


@pytest.mark.parametrize(
    ("ahead", "entries", "rotated"),
    [
        (25 * HOUR, FULL - 1, False),
        (30 * DAY, FULL - 1, False),
        (23 * HOUR, FULL, False),
        (-25 * HOUR, FULL, False),
        (25 * HOUR, FULL, True),
        (30 * DAY, FULL, True),
    ],
)
async def test_a_generation_ends_after_a_day_and_ten_thousand_entries(
    shifted: ShiftedClock,
    stores: RedisStores,
    chat: Chat,
    group: ConversationId,
    ahead: int,
    entries: int,
    rotated: bool,
) -> None:
    await fill(stores, group, entries)
    shifted.jump(ahead)
    await chat.send(ANA, group)
    assert await generation(stores, group) == rotated


async def test_what_was_dropped_is_too_old_and_never_executed(
    shifted: ShiftedClock, stores: RedisStores, chat: Chat, group: ConversationId
) -> None:
    dropped = uuid7()
    await chat.send(ANA, group, message_id=dropped)
    for _ in range(2):
        await fill(stores, group)
        shifted.jump(25 * HOUR)
        await chat.send(ANA, group, message_id=id_of(await stores.now_ms()))
    assert await generation(stores, group) == 2
    start_of_older = int(await stores.call("HGET", stores.bucket(group).meta, "low"))
    head, version = await chat.head(group), await chat.version(group)
    for too_old in (dropped, id_of(start_of_older - GRACE_MS - 1)):
        with pytest.raises(RequestTooOld):
            await chat.send(ANA, group, message_id=too_old)
        with pytest.raises(RequestTooOld):
            await chat.add(group, CARA, request_id=too_old)
    assert (await chat.head(group), await chat.version(group)) == (head, version)
    sent = await chat.send(ANA, group, message_id=id_of(start_of_older - GRACE_MS + 1))
    assert sent.seq == head + 1


async def test_after_a_wrong_future_fresh_requests_are_executed_and_generations_end_again(
    shifted: ShiftedClock, stores: RedisStores, chat: Chat, group: ConversationId
) -> None:
    shifted.set(30 * DAY)
    for _ in range(2):
        await fill(stores, group)
        shifted.jump(25 * HOUR)
        await chat.send(ANA, group, message_id=id_of(await stores.now_ms()))
    shifted.set(0)
    now = await stores.now_ms()
    head = await chat.head(group)
    assert (await chat.send(ANA, group, message_id=id_of(now))).seq == head + 1
    with pytest.raises(RequestTooOld):
        await chat.send(ANA, group, message_id=id_of(now - 2 * GRACE_MS))
    # The stamp lies a month ahead, yet its generation ends a day after the clock came back.
    rotations = await generation(stores, group)
    await fill(stores, group)
    shifted.set(23 * HOUR)
    await chat.send(ANA, group, message_id=id_of(await stores.now_ms()))
    assert await generation(stores, group) == rotations
    shifted.set(25 * HOUR)
    await chat.send(ANA, group, message_id=id_of(await stores.now_ms()))
    assert await generation(stores, group) == rotations + 1


async def test_times_never_fall_within_a_conversation(
    shifted: ShiftedClock, stores: RedisStores, chat: Chat, group: ConversationId
) -> None:
    direct = direct_conversation_id(chat.tenant, ANA, BEN)
    people = iter(range(50, 100))
    for offset in (0, 30 * DAY, -2 * DAY, 0, 31 * DAY, 1):
        shifted.set(offset)
        for _ in range(2):
            await chat.send(ANA, group)
            await chat.add(group, user(next(people)))
            await chat.send(BEN, peer=ANA)
        lost = asyncio.Event()
        stores.store.instances[0].on_lost = [lost.set]
        shifted.server.restart()
        await lost.wait()
        await connected_again(stores.store.instances[0])
        for conversation in (group, direct):
            await chat.send(ANA, conversation)
    for conversation in (group, direct):
        head = await chat.head(conversation)
        records = await stores.messages.records(chat.of(conversation), range(1, head + 1))
        assert [record.seq for record in records] == list(range(1, head + 1))
        times = [record.time_ms for record in records]
        assert times == sorted(times)


async def entries(stores: RedisStores, group: ConversationId) -> list[bytes]:
    """The ids of the dispatch log."""
    return [entry for entry, _ in await stores.call("XRANGE", stores.bucket(group).dispatch, "-", "+")]


async def test_the_dispatch_log_outlives_jumps(
    shifted: ShiftedClock, stores: RedisStores, chat: Chat, group: ConversationId
) -> None:
    for _ in range(300):
        await chat.send(ANA, group)
    await chat.add(group, CARA)
    unread = await entries(stores, group)
    for offset in (30 * DAY, 0, 30 * DAY, -30 * DAY, 60 * DAY, 0, 90 * DAY):
        shifted.set(offset)
        for _ in range(30):
            await chat.send(ANA, group)
        assert (await entries(stores, group))[: len(unread)] == unread, "nobody has read them yet"
    await chat.add(group, DAN)
    assert await chat.at(group, 1) == sorted([ANA, BEN], key=lambda u: (stores.store.shard(chat.tenant, u), u)), (
        "the version of an entry that is still there"
    )


async def test_the_dispatch_log_keeps_a_day_and_not_much_more(
    shifted: ShiftedClock, stores: RedisStores, chat: Chat, group: ConversationId
) -> None:
    an_hour = 10
    kept: list[int] = []
    for hour in range(0, 72, 3):
        shifted.set(hour * HOUR)
        for _ in range(3 * an_hour):
            await chat.send(ANA, group)
        ids = await entries(stores, group)
        kept.append(len(ids))
        oldest = int(ids[0].partition(b"-")[0])
        assert hour < 24 or oldest <= await stores.now_ms() - DAY * 1000, "a day's entries are all there"
    assert max(kept) <= (24 + 3 + 3) * an_hour + 100, "an eighth more, the present hours, and a block of the stream"
    assert sum(later < earlier for earlier, later in itertools.pairwise(kept)) > 1, "it goes on for ever"

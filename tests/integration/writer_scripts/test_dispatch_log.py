"""What consumers read: the blocks of the dispatch log and the entries of the membership log."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from tests.support.chat import ANA, BEN, CARA, DAN, EVE, TENANT, Chat, user
from tests.support.redis_stores import RedisStores

from qim_common.ids import (
    ZERO_ID,
    ConversationId,
    MembershipOp,
    direct_conversation_id,
    group_conversation_id,
    membership_event_message_id,
    parse_control_body,
)
from qim_common.records import (
    Audience,
    Block,
    BlockFlags,
    MessageBlock,
    RecordType,
    StateBlock,
    StateChange,
)

pytestmark = pytest.mark.server


async def blocks(stores: RedisStores, conversation: ConversationId) -> list[Block]:
    return [block for _, block in await stores.dispatched(conversation)]


async def message_blocks(stores: RedisStores, conversation: ConversationId) -> list[MessageBlock]:
    return [block for block in await blocks(stores, conversation) if isinstance(block, MessageBlock)]


async def test_creation_is_a_state_entry_with_revision_1(stores: RedisStores, chat: Chat) -> None:
    group, answer = await chat.create_with_answer(ANA, BEN)
    ((time, block),) = await stores.dispatched(group)
    assert block == StateBlock(TENANT, group, BlockFlags.NONE, 0, 1, 1, 0, StateChange.CREATED, b"")
    assert time == answer.time_ms


async def test_a_run_of_messages_is_one_block_with_the_records_tails(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    sent = await chat.send_many(3, ANA, group)
    _, (time, block) = await stores.dispatched(group)
    assert isinstance(block, MessageBlock)
    assert (block.flags, block.generation, block.version, block.revision) == (BlockFlags.NONE, 0, 1, 1)
    assert [(item.seq, item.prev, item.audience) for item in block.items] == [
        (1, 0, Audience.BROADCAST),
        (2, 1, Audience.BROADCAST),
        (3, 2, Audience.BROADCAST),
    ]
    for item in block.items:
        record = await chat.record(group, item.seq)
        assert (item.tail, item.prev) == (record.tail, record.prev)
    assert {each.time_ms for each in sent} == {time}


async def test_a_body_that_is_too_large_is_left_to_the_record(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA)
    room = 4096 - 50  # the longest tail that is copied; a tail without its body
    await chat.outcomes(
        (ANA, group, {"body": b"a" * room}), (ANA, group, {"body": b"b" * (room + 1)}), (ANA, group, {"body": b"c"})
    )
    (block,) = await message_blocks(stores, group)
    inlined = [None if item.tail is None else item.tail.body[:1] for item in block.items]
    assert inlined == [b"a", None, b"c"]
    assert (await chat.record(group, 2)).tail.body == b"b" * (room + 1)


async def test_an_event_is_a_block_of_the_version_that_it_makes(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    answer = await chat.add(group, DAN, CARA)
    left = await chat.leave(BEN, group)
    joined, departed = await message_blocks(stores, group)
    assert (joined.version, joined.revision, departed.version, departed.revision) == (2, 2, 3, 3)
    assert (answer.seq, left.left_at) == (1, 2)
    (item,) = joined.items
    assert item.tail is not None
    assert (item.seq, item.prev, item.audience) == (1, 0, Audience.BROADCAST)
    assert (item.tail.type, item.tail.sender) == (RecordType.CONTROL, ANA)
    assert bytes(item.tail.device) == bytes(ANA), "user and device are one for operators"
    assert item.tail.custom_type == "qim.membership.v1"
    assert parse_control_body(item.tail.body) == (MembershipOp.JOIN, ZERO_ID, (CARA, DAN))
    assert item.tail.client_message_id == membership_event_message_id(
        TENANT, group, MembershipOp.JOIN, ZERO_ID, 1, [CARA, DAN]
    )
    (item,) = departed.items
    assert item.tail is not None
    assert item.tail.sender == BEN
    assert parse_control_body(item.tail.body) == (MembershipOp.LEAVE, BEN, (BEN,))
    assert item.prev == 1


async def test_concerned_events_carry_a_predecessor_and_do_not_become_one(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA, BEN, CARA, DAN, EVE)
    await chat.send(ANA, group)
    await chat.add(group, user(6))  # the sixth: above the bound of five
    await chat.send_many(2, BEN, group)
    await chat.add(group, user(7))
    await chat.remove(group, user(7))
    await chat.remove(group, user(6))  # five again
    await chat.send(ANA, group)
    found = [
        (item.seq, item.prev, item.audience.name[0], block.version)
        for block in await message_blocks(stores, group)
        for item in block.items
    ]
    assert found == [
        (1, 0, "B", 1),
        (2, 1, "C", 2),
        (3, 1, "B", 2),
        (4, 3, "B", 2),
        (5, 4, "C", 3),
        (6, 4, "C", 4),
        (7, 4, "B", 5),
        (8, 7, "B", 5),
    ]


async def test_blocks_say_whether_the_group_is_big_and_which_change_made_it_so(stores: RedisStores, chat: Chat) -> None:
    people = [user(number) for number in range(2, 9)]
    group = await chat.create(ANA, *people)  # eight: the bound
    await chat.send(ANA, group)
    await chat.add(group, user(9))  # nine: above it
    await chat.send(ANA, group)
    await chat.remove(group, user(9), *people[:4])  # four: half of it
    await chat.send(ANA, group)
    await chat.remove(group, people[4])  # three
    await chat.send(ANA, group)
    await chat.add(group, *people[:4], user(9), user(10))  # nine: big once more
    await chat.add(group, people[4])
    flags = [block.flags for block in await message_blocks(stores, group)]
    none, big, begun = BlockFlags.NONE, BlockFlags.BIG, BlockFlags.BIG | BlockFlags.BIG_BEGAN
    assert flags == [none, begun, big, big, big, none, none, begun, big]


async def test_a_lowered_bound_makes_a_group_big_with_its_next_change(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA, BEN, CARA, DAN)
    later = Chat(stores, limits=replace(chat.limits, fanout_max_members=2))
    await later.send(ANA, group)
    await later.add(group, BEN)  # a member already: nothing is changed
    await later.remove(group, DAN)
    flags = [block.flags for block in await message_blocks(stores, group)]
    assert flags == [BlockFlags.NONE, BlockFlags.BIG | BlockFlags.BIG_BEGAN]


async def test_a_group_that_is_big_from_the_start_says_so_in_its_first_entry(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA, *(user(number) for number in range(2, 10)))
    (created,) = await blocks(stores, group)
    assert created.flags == BlockFlags.BIG | BlockFlags.BIG_BEGAN
    await chat.send(ANA, group)
    await chat.add(group, user(20))
    assert [block.flags for block in await message_blocks(stores, group)] == [BlockFlags.BIG, BlockFlags.BIG]


async def test_a_direct_conversation_begins_with_its_state_entry(stores: RedisStores, chat: Chat) -> None:
    conversation = direct_conversation_id(TENANT, ANA, BEN)
    sent = await chat.send(BEN, peer=ANA)
    await chat.send(ANA, peer=BEN)
    (first, created), (second, message), (_, later) = await stores.dispatched(conversation)
    assert created == StateBlock(TENANT, conversation, BlockFlags.NONE, 0, 1, 1, 0, StateChange.CREATED, b"")
    assert first == second == sent.time_ms
    assert isinstance(message, MessageBlock)
    assert isinstance(later, MessageBlock)
    assert [(block.version, block.revision, block.items[0].seq) for block in (message, later)] == [(1, 1, 1), (1, 1, 2)]


async def test_runs_of_conversations_of_one_bucket_stand_in_one_entry(stores: RedisStores, chat: Chat) -> None:
    numbers = (group_conversation_id(number.to_bytes(16, "big")) for number in range(1, 5000))
    first = await chat.create(ANA, group_id=next(numbers))
    neighbour = await chat.create(
        ANA, group_id=next(each for each in numbers if stores.bucket(each) == stores.bucket(first))
    )
    await chat.outcomes((ANA, first, {}), (ANA, neighbour, {}), (ANA, first, {}))
    (own,), (others,) = await message_blocks(stores, first), await message_blocks(stores, neighbour)
    assert [item.seq for item in own.items] == [1, 2]
    assert [item.seq for item in others.items] == [1]
    entries = await stores.call("XREVRANGE", stores.bucket(first).dispatch, "+", "-", "COUNT", 1)
    assert first in entries[0][1][1]
    assert neighbour in entries[0][1][1]


async def memlog(stores: RedisStores, conversation: ConversationId) -> list[tuple[int, bytes, list[bytes]]]:
    """Tenant, conversation and people of each entry: tenant u64, conversation 16, n u16, n times user 16."""
    found = []
    for _, fields in await stores.call("XRANGE", stores.bucket(conversation).memlog, "-", "+"):
        tenant, of, count = struct.unpack_from(">Q16sH", fields[1])
        people = [fields[1][at : at + 16] for at in range(26, len(fields[1]), 16)]
        assert len(people) == count
        if of == conversation:
            found.append((tenant, of, people))
    return found


async def test_the_membership_log_names_who_was_put_into_which_conversation(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    await chat.add(group, DAN, CARA)
    await chat.leave(BEN, group)
    await chat.remove(group, CARA)
    await chat.add(group, ANA)
    await chat.add(group, CARA)
    direct = direct_conversation_id(TENANT, ANA, BEN)
    await chat.send(BEN, peer=ANA)
    await chat.send(ANA, peer=BEN)
    notes = direct_conversation_id(TENANT, EVE, EVE)
    await chat.send(EVE, peer=EVE)
    assert await memlog(stores, group) == [
        (TENANT, group, [ANA, BEN]),
        (TENANT, group, [CARA, DAN]),
        (TENANT, group, [CARA]),
    ]
    assert await memlog(stores, direct) == [(TENANT, direct, [ANA, BEN])]
    assert await memlog(stores, notes) == [(TENANT, notes, [EVE])]


async def test_the_change_log_lets_go_of_a_few_changes_at_a_time(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA)
    for _ in range(5):
        await chat.add(group, BEN)
        await chat.remove(group, BEN)
    keys = stores.keys(group)
    assert await stores.call("XLEN", keys.grpchg) == 10
    await stores.forget_dispatch(group)
    # Of versions 2 to 11, made before what is left of the log, four go with each change; 11 is still to be derived.
    for expected in ([*range(6, 13)], [*range(10, 14)], [*range(12, 15)], [*range(12, 16)]):
        await (chat.add if expected[-1] % 2 == 0 else chat.remove)(group, BEN)
        found = [int(entry.partition(b"-")[0]) for entry, _ in await stores.call("XRANGE", keys.grpchg, "-", "+")]
        assert found == expected
        assert int(await stores.call("HGET", keys.grpmeta, "chglow")) == expected[0] - 1


async def test_no_change_goes_while_the_dispatch_log_holds_all(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA)
    for _ in range(20):
        await chat.add(group, BEN)
        await chat.remove(group, BEN)
    keys = stores.keys(group)
    assert await stores.call("XLEN", keys.grpchg) == 40
    assert await stores.call("HGET", keys.grpmeta, "chglow") == b"1"


async def test_times_are_sampled_at_first_every_1000_seqs_and_after_an_hour(stores: RedisStores, chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    keys = stores.keys(group)
    first = await chat.send(ANA, group)
    for start in range(1, 1001, 250):
        await chat.send_many(250, ANA, group)
        assert await stores.call("ZCARD", keys.msgts) == (1 if start + 250 < 1000 else 2)
    sampled = await stores.call("ZRANGE", keys.msgts, 0, -1, "WITHSCORES")
    assert (sampled[0], int(sampled[1])) == (b"1", first.time_ms)
    assert sampled[2] == b"1001"
    await stores.call("HINCRBY", keys.grpmeta, "ts", -3_600_001)
    await chat.add(group, CARA)
    await chat.send(ANA, group)
    assert (await stores.call("ZRANGE", keys.msgts, 0, -1))[-1] == b"1002"
    await stores.call("HINCRBY", keys.grpmeta, "ts", -3_600_001)
    await chat.send(ANA, group)
    assert (await stores.call("ZRANGE", keys.msgts, 0, -1))[-1] == b"1004"

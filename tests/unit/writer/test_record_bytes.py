"""Records and dispatch entries as bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qim_common.ids import ConversationId, DeviceId, TenantId, UserId
from qim_common.records import (
    EVENT_NOT_INLINED,
    NOT_INLINED,
    Audience,
    Block,
    BlockFlags,
    DispatchItem,
    MessageBlock,
    Record,
    RecordType,
    StateBlock,
    StateChange,
    Tail,
    pack_tail,
    unpack_blocks,
    unpack_record,
    unpack_tail,
)

U48 = 2**48 - 1
ids = st.binary(min_size=16, max_size=16)
u48s = st.integers(0, U48)
tails = st.builds(
    Tail,
    st.sampled_from(RecordType),
    ids.map(UserId),
    ids.map(DeviceId),
    ids,
    st.text(max_size=32).filter(lambda text: len(text.encode()) <= 128),
    st.binary(max_size=300),
)


def packed(tail: Tail) -> bytes:
    return pack_tail(tail.type, tail.sender, tail.device, tail.client_message_id, tail.custom_type.encode(), tail.body)


def u48(number: int) -> bytes:
    return number.to_bytes(6, "big")


@given(tails)
def test_a_tail_comes_back(tail: Tail) -> None:
    assert unpack_tail(packed(tail)) == tail


@given(st.integers(1, 2**53 - 1), st.sampled_from(Audience), u48s, u48s, u48s, st.integers(0, 2**32 - 1), tails)
def test_a_record_comes_back(
    seq: int, audience: Audience, version: int, time: int, prev: int, generation: int, tail: Tail
) -> None:
    header = bytes((1, audience)) + u48(version) + u48(time) + u48(prev) + struct.pack(">I", generation)
    assert unpack_record(seq, header + packed(tail)) == Record(seq, audience, version, time, prev, generation, tail)


def test_a_record_of_another_version_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="record version 2 of seq 9"):
        unpack_record(9, b"\x02" + bytes(100))


def test_a_tail_that_is_cut_short_is_an_error() -> None:
    with pytest.raises(struct.error):
        unpack_tail(bytes(49))


CONVERSATIONS = st.tuples(st.integers(1, 2**64 - 1).map(TenantId), ids.map(ConversationId))


@st.composite
def message_blocks(draw: st.DrawFn) -> MessageBlock:
    tenant, conversation = draw(CONVERSATIONS)
    first, prev = draw(st.integers(1, 2**40)), draw(st.integers(0, 2**40))
    items = []
    for number in range(draw(st.integers(1, 5))):
        audience = draw(st.sampled_from(Audience))
        tail = draw(st.none() | tails)
        record_type = draw(st.sampled_from(RecordType)) if tail is None else tail.type
        items.append(DispatchItem(first + number, prev, audience, record_type, tail))
        if audience is Audience.BROADCAST:
            prev = first + number
    flags, generation = draw(st.sampled_from(list(BlockFlags))), draw(st.integers(0, 2**32 - 1))
    return MessageBlock(tenant, conversation, flags, generation, draw(u48s), draw(u48s), tuple(items))


@st.composite
def state_blocks(draw: st.DrawFn) -> StateBlock:
    tenant, conversation = draw(CONVERSATIONS)
    change, payload = draw(st.sampled_from(StateChange)), draw(st.binary(max_size=40))
    return StateBlock(tenant, conversation, BlockFlags.NONE, 0, draw(u48s), draw(u48s), draw(u48s), change, payload)


def pack_block(block: Block) -> bytes:
    """A block as the scripts pack it, written down a second time from the layout in qim_common.records."""
    if isinstance(block, MessageBlock):
        kind, prev, first, count = 1, block.items[0].prev, block.items[0].seq, len(block.items)
        items = b""
        for item in block.items:
            if item.tail is None:
                marker = NOT_INLINED if item.type is RecordType.ORDINARY else EVENT_NOT_INLINED
                items += struct.pack(">BI", item.audience, marker)
            else:
                tail = packed(item.tail)
                items += struct.pack(">BI", item.audience, len(tail)) + tail
    else:
        kind, prev, first, count = 2, 0, block.head, 1
        items = struct.pack(">BI", block.change, len(block.payload)) + block.payload
    head = struct.pack(">BQ16sBI", kind, block.tenant, block.conversation, block.flags, block.generation)
    numbers = (block.version, block.revision, prev, first)
    return head + b"".join(map(u48, numbers)) + struct.pack(">H", count) + items


@given(st.lists(message_blocks() | state_blocks(), max_size=4))
def test_the_blocks_of_a_dispatch_entry_come_back_in_order(blocks: list[Block]) -> None:
    assert list(unpack_blocks(b"".join(map(pack_block, blocks)))) == blocks


def test_a_concerned_event_has_a_predecessor_and_becomes_none() -> None:
    conversation, kind = (TenantId(7), ConversationId(bytes(16))), RecordType.CONTROL
    items = tuple(
        DispatchItem(seq, prev, audience, kind, None)
        for seq, prev, audience in [
            (5, 4, Audience.BROADCAST),
            (6, 5, Audience.CONCERNED),
            (7, 5, Audience.CONCERNED),
            (8, 5, Audience.BROADCAST),
            (9, 8, Audience.BROADCAST),
        ]
    )
    block = MessageBlock(*conversation, BlockFlags.NONE, 0, 1, 1, items)
    (found,) = unpack_blocks(pack_block(block))
    assert found == block

"""Answers stay within the transport's limits whatever they are about, and what is left over is asked for again."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.writer_methods import method
from tests.support.writers import ANA, BEN, SECONDS, Writers, person

from qim.writer.v1 import writer_pb2
from qim_client.values import Direction, Outgoing
from qim_common.ids import ConversationId
from qim_common.records import MessageBlock, unpack_blocks

pytestmark = pytest.mark.server

LARGE = 65_536
COUNT = 50
ANSWER_BYTES = 2 * 1024 * 1024 + LARGE


@pytest.fixture(scope="module")
async def large(writers: Writers) -> ConversationId:
    """A group with 50 messages of 64 KiB, seqs 1 to 50."""
    ana = writers.user(ANA)
    group = (await ana.create_group([BEN])).group
    async with writers.gateway_client.open_stream() as stream:
        items = [Outgoing(ana.actor, bytes([n]) * LARGE, conversation=group) for n in range(COUNT)]
        outcomes = await stream.send(items)
    assert [each.sent.seq for each in outcomes if each.sent] == list(range(1, COUNT + 1))
    return group


@pytest.mark.parametrize(("direction", "order"), [(Direction.OLDER, -1), (Direction.NEWER, 1)])
async def test_a_history_of_large_messages_comes_in_several_answers(
    writers: Writers, large: ConversationId, direction: Direction, order: int
) -> None:
    ben = writers.user(BEN)
    seen: list[int] = []
    from_seq, pages = 0, 0
    while True:
        page = await ben.pull_history(large, from_seq=from_seq, direction=direction, limit=1000)
        assert sum(len(each.body) for each in page.messages) <= ANSWER_BYTES
        assert all(each.body == bytes([each.seq - 1]) * LARGE for each in page.messages)
        seen += [each.seq for each in page.messages]
        pages += 1
        if not page.next_from_seq:
            break
        from_seq = page.next_from_seq
        assert page.messages
    assert seen == list(range(1, COUNT + 1))[::order]
    assert pages == 2


async def test_named_large_messages_come_in_several_answers(writers: Writers, large: ConversationId) -> None:
    ben = writers.user(BEN)
    left: tuple[int, ...] = tuple(range(COUNT + 50, 0, -1))
    seen: list[int] = []
    while left:
        found = await ben.get_messages(large, left)
        assert sum(len(each.body) for each in found.messages) <= ANSWER_BYTES
        seen += [each.seq for each in found.messages]
        left = found.remaining_seqs
    assert seen == list(range(1, COUNT + 1))


async def test_delivered_large_messages_come_in_several_answers(writers: Writers, large: ConversationId) -> None:
    called = method("DeliveredPage")
    request = called.request(large)
    request.user_id, request.limit = BEN, 1000
    seen: list[int] = []
    while True:
        page = await called.call(writers.caller("session"), request)
        assert sum(len(entry.message.body) for entry in page.entries) <= ANSWER_BYTES
        seen += [entry.message.seq for entry in page.entries]
        if not page.more:
            break
        request.after_seq = page.next_after_seq
    assert seen == list(range(1, COUNT + 1))


async def test_large_messages_are_committed_in_several_calls(writers: Writers, large: ConversationId) -> None:
    """One call of all of them would hold the store, and every other sender, while 3 MiB are written and synced."""
    instance, _, bucket = writers.keys(large)
    blocks = [
        block
        for _, fields in instance.xrange(bucket.dispatch)
        for block in unpack_blocks(fields[b"e"])
        if isinstance(block, MessageBlock) and block.conversation == large
    ]
    assert [len(block.items) for block in blocks] == [16, 16, 16, 2]


async def test_a_page_is_as_long_as_asked_and_says_where_to_go_on(writers: Writers) -> None:
    ana = writers.user(ANA)
    group = (await ana.create_group()).group
    async with writers.gateway_client.open_stream() as stream:
        for _ in range(5):
            await stream.send([Outgoing(ana.actor, b"x", conversation=group) for _ in range(201)])
    newest = await ana.pull_history(group, limit=1000)
    assert [each.seq for each in newest.messages] == list(range(1005, 5, -1))
    assert newest.next_from_seq == 5
    rest = await ana.pull_history(group, from_seq=5, limit=1000)
    assert ([each.seq for each in rest.messages], rest.next_from_seq) == ([5, 4, 3, 2, 1], 0)
    exact = await ana.pull_history(group, limit=5, direction=Direction.NEWER, from_seq=1001)
    assert ([each.seq for each in exact.messages], exact.next_from_seq) == ([1001, 1002, 1003, 1004, 1005], 0)
    for from_seq, direction in ((1006, Direction.NEWER), (2**53 - 1, Direction.NEWER)):
        beyond = await ana.pull_history(group, from_seq=from_seq, direction=direction)
        assert (beyond.messages, beyond.next_from_seq, beyond.head_seq) == ((), 0, 1005)
    assert len((await ana.pull_history(group, from_seq=2**53 - 1, limit=10)).messages) == 10


async def test_an_empty_conversation_has_an_empty_history(writers: Writers) -> None:
    group = (await writers.user(ANA).create_group()).group
    page = await writers.user(ANA).pull_history(group)
    assert (page.messages, page.next_from_seq, page.earliest_available_seq, page.head_seq) == ((), 0, 1, 0)


async def test_a_long_log_of_large_changes_comes_in_several_answers(writers: Writers) -> None:
    """A page of 1,000 changes of 1,000 people each would be 18 MB: more than one message of gRPC may carry."""
    ana = writers.user(ANA)
    group = (await ana.create_group()).group
    crowd = [person(number) for number in range(1000)]
    for _ in range(80):
        await asyncio.gather(writers.change(group, crowd), writers.change(group, crowd, remove=True))
    current = (await ana.get_visible_range(group)).membership_version
    request = writer_pb2.MembersSinceRequest(group_id=group, membership_version=1, limit=1000)
    called = method("MembersSince", "gateway")
    versions: list[int] = []
    while request.membership_version < current:
        answer = await called.call(writers.caller("gateway"), request, timeout=SECONDS)
        assert answer.ByteSize() <= ANSWER_BYTES
        assert answer.current_membership_version == current
        versions += [change.version for change in answer.changes]
        request.membership_version = answer.membership_version
    assert versions == list(range(2, current + 1))

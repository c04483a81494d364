"""A store that forgets its scripts, or stands still: calls succeed or end with a named error, each exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import grpc
import pytest
from tests.support.load import IMPATIENT, load
from tests.support.refusals import failure, of_status
from tests.support.writer_methods import frame, message, method
from tests.support.writers import ANA, BEN, Writers, acting, as_actor, running_writers, until

from qim.writer.v1 import writer_pb2
from qim_common.ids import ConversationId

pytestmark = pytest.mark.server

BATCHES = "qim_writer_commit_batch_size_count"


@pytest.fixture(scope="module")
async def own(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Writers]:
    """A suite with one Valkey that these tests may pause."""
    async with running_writers(tmp_path_factory.mktemp("pauses") / "suite", valkeys=1) as running:
        yield running


@pytest.fixture
async def group(own: Writers) -> ConversationId:
    return (await own.user(ANA).create_group([BEN])).group


@contextmanager
def paused(writers: Writers) -> Iterator[None]:
    """The Valkey stands still (SIGSTOP)."""
    pid = writers.suite.pid("valkey-0")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_store_that_forgets_its_scripts_under_load_is_not_noticed(own: Writers, group: ConversationId) -> None:
    instance, _, _ = own.keys(group)
    async with load(own, policy=IMPATIENT) as running:
        for _ in range(15):
            await running.more(40)
            await asyncio.to_thread(instance.script_flush)
            page = await own.user(ANA).members_page(group)
            assert page.member_count == 2
        assert instance.script_exists("0" * 40) == [False]


@pytest.mark.parametrize("name", ["CreateGroup", "AdminChangeMembers", "SendMessage", "LeaveGroup", "PullHistory"])
async def test_the_first_call_after_a_flush_succeeds(own: Writers, group: ConversationId, name: str) -> None:
    called = method(name)
    metadata = as_actor(acting(BEN)) if called.role == "gateway" else called.identity()
    own.keys(group)[0].script_flush()
    await called.call(own.caller(called.role), called.request(group), metadata=metadata)


async def test_a_pause_shorter_than_the_deadlines_only_delays(own: Writers) -> None:
    async with load(own, policy=IMPATIENT) as running:
        for _ in range(3):
            await running.more(100)
            with paused(own):
                # Long enough that every sender waits: the store answers nothing meanwhile.
                await asyncio.sleep(0.3)
        await running.more(100)
    assert running.unnamed == []


async def test_a_deadline_that_passes_in_a_pause_leaves_the_first_answer_for_the_retry(
    own: Writers, group: ConversationId
) -> None:
    send, leave = method("SendMessage"), method("LeaveGroup")
    sent = writer_pb2.SendMessageRequest(message=message(group))
    left = leave.request(group)
    gateway, ben = own.caller("gateway"), as_actor(acting(BEN))
    with paused(own):
        errors = await asyncio.gather(
            failure(send.call(gateway, sent, timeout=0.3)),
            failure(leave.call(gateway, left, metadata=ben, timeout=0.3)),
        )
        # By name where the machine is fast enough to say so before the caller gives up.
        assert {error.code() for error in errors} <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
    answers = [(await send.call(gateway, sent), await leave.call(gateway, left, metadata=ben)) for _ in range(2)]
    assert answers[0] == answers[1]
    assert sorted([answers[0][0].seq, answers[0][1].members[0].left_at_conversation_seq]) == [1, 2]
    assert (await own.user(ANA).get_visible_range(group)).head_seq == 2


async def test_a_frame_whose_time_passes_is_answered_with_a_name_and_the_stream_goes_on(
    own: Writers, group: ConversationId
) -> None:
    stream = own.caller("gateway").writer.SendMessages()
    messages = [message(group) for _ in range(3)]
    with paused(own):
        await stream.write(frame(*messages, frame_number=1, timeout_ms=200))
        answer = await stream.read()
        assert isinstance(answer, writer_pb2.SendMessagesResponse)
        assert sorted(result.index for result in answer.results) == [0, 1, 2]
        refused = {of_status(result.status).name for result in answer.results}
        assert refused == {("UNAVAILABLE", "BACKEND_UNAVAILABLE")}
    await stream.write(frame(*messages, frame_number=2))
    again = await stream.read()
    assert isinstance(again, writer_pb2.SendMessagesResponse)
    assert [(result.index, result.seq) for result in again.results] == [(0, 1), (1, 2), (2, 3)]
    await stream.done_writing()
    assert (await own.user(ANA).get_visible_range(group)).head_seq == 3


async def test_more_sends_than_may_wait_are_refused_as_overloaded_and_take_no_seq(
    own: Writers, group: ConversationId
) -> None:
    # One stream alone is not read on before this many wait.
    streams = [own.caller("gateway").writer.SendMessages() for _ in range(2)]
    frames = 75
    committed, overloaded = 0, 0
    with paused(own):
        for stream in streams:
            for number in range(frames):
                await stream.write(
                    frame(*(message(group, body=b"") for _ in range(256)), frame_number=number, timeout_ms=60_000)
                )
        first = await streams[1].read()
        assert isinstance(first, writer_pb2.SendMessagesResponse)
        refused = of_status(first.results[-1].status)
        assert refused.name == ("RESOURCE_EXHAUSTED", "OVERLOADED")
        assert refused.retry
    answers = [first]
    for stream, missing in zip(streams, (frames, frames - 1), strict=True):
        for _ in range(missing):
            answer = await stream.read()
            assert isinstance(answer, writer_pb2.SendMessagesResponse)
            answers.append(answer)
        await stream.done_writing()
    seqs = []
    for answer in answers:
        for result in answer.results:
            if result.seq:
                committed += 1
                seqs.append(result.seq)
            else:
                assert of_status(result.status).reason == "OVERLOADED"
                overloaded += 1
    assert committed + overloaded == 2 * frames * 256
    assert overloaded > 0
    assert sorted(seqs) == list(range(1, committed + 1))
    assert (await own.user(ANA).get_visible_range(group)).head_seq == committed


async def test_a_store_that_stands_still_for_long_is_given_up_and_found_again(
    own: Writers, group: ConversationId
) -> None:
    """Connections of the store are cut by it: the outcome is unknown, and a retry finds it out."""
    instance, _, _ = own.keys(group)
    ana = own.user(ANA)

    async def cut() -> None:
        instance.client_kill_filter(skipme=True)

    for number in range(5):
        sending = asyncio.ensure_future(ana.send_to(group, b"%d" % number))
        await cut()
        assert (await sending).seq == number + 1
    bodies = [each.body async for each in ana.history(group)]
    assert bodies == [b"%d" % number for number in range(4, -1, -1)]

    async def serves() -> bool:
        return bool(await ana.get_visible_range(group))

    await until(serves)


@pytest.mark.parametrize("head", [2 * 65_536 - 2, 3 * 65_536 - 300, 65_536 - 2])
async def test_calls_in_flight_keep_their_order_where_the_writer_does_not_know_how_far_the_conversation_is(
    own: Writers, group: ConversationId, head: int
) -> None:
    """As after a restart, or when another writer took most seqs: the first call would end in a segment of the sender
    column that the writer does not expect, the second, already in flight, would not."""
    instance, keys, _ = own.keys(group)
    instance.set(keys.msgcseq, head)
    stream = own.caller("gateway").writer.SendMessages()
    counts = (256, 1, 256, 3)
    before = await calls_made(own)
    with paused(own):
        for number, count in enumerate(counts):
            await stream.write(frame(*(message(group) for _ in range(count)), frame_number=number, timeout_ms=60_000))

        async def two_calls_wait() -> bool:
            return await calls_made(own) >= before + 2

        await until(two_calls_wait)
    seqs: dict[tuple[int, int], int] = {}
    for _ in counts:
        answer = await stream.read()
        assert isinstance(answer, writer_pb2.SendMessagesResponse)
        seqs |= {(answer.frame_number, result.index): result.seq for result in answer.results}
    await stream.done_writing()
    assert [seqs[at] for at in sorted(seqs)] == list(range(head + 1, head + 517))


async def calls_made(writers: Writers) -> float:
    """How many calls the writer has sent to its stores, answered or not."""
    text = await asyncio.to_thread(_metrics, writers.suite.metrics_address("writer"))
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(BATCHES))


def _metrics(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        return str(answer.read().decode())

"""SendMessages: what a fault of an item, of a frame and of the stream means, order, age and drain."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.plain_stream import play
from tests.support.refusals import failure, of_status, refusal
from tests.support.writer_methods import frame, message, method
from tests.support.writers import (
    ANA,
    BEN,
    CARA,
    DAN,
    FORBIDDEN_TENANT,
    OTHER_TENANT,
    Caller,
    Writers,
    acting,
)

from qim.common.v1 import identity_pb2
from qim.writer.v1 import writer_pb2
from qim_common.ids import ConversationId, uuid7

pytestmark = pytest.mark.server

Answer = writer_pb2.SendMessagesResponse
ACTOR = identity_pb2.AuthenticatedActor


async def read(stream: Any) -> Answer:
    answer = await stream.read()
    assert isinstance(answer, Answer), answer
    return answer


async def read_all(stream: Any) -> list[Answer]:
    """The answers up to the end with OK."""
    answers: list[Answer] = []
    while (answer := await stream.read()) is not grpc.aio.EOF:
        answers.append(answer)
    assert await stream.code() is grpc.StatusCode.OK
    return answers


BAD_ACTORS: list[tuple[str, identity_pb2.AuthenticatedActor, tuple[str, ...]]] = [
    ("TENANT_NOT_ALLOWED", acting(ANA, FORBIDDEN_TENANT).to_message(), ()),
    ("INVALID_ARGUMENT", ACTOR(user_id=ANA), ("actors[1].tenant_id",)),
    ("INVALID_ARGUMENT", ACTOR(tenant_id=1), ("actors[1].user_id",)),
    ("INVALID_ARGUMENT", ACTOR(tenant_id=1, user_id=bytes(16)), ("actors[1].user_id",)),
    ("INVALID_ARGUMENT", ACTOR(tenant_id=1, user_id=ANA, device_id=b"d"), ("actors[1].device_id",)),
    ("PERMISSION_DENIED", acting(ANA, OTHER_TENANT).to_message(), ()),
    ("PERMISSION_DENIED", acting(DAN).to_message(), ()),
]


@pytest.mark.parametrize(("reason", "actor", "fields"), BAD_ACTORS)
async def test_a_fault_of_an_actor_refuses_its_items_only(
    writers: Writers,
    group: ConversationId,
    reason: str,
    actor: identity_pb2.AuthenticatedActor,
    fields: tuple[str, ...],
) -> None:
    sent = frame(
        message(group),
        message(group, actor_index=1),
        message(group, actor_index=2),
        frame_number=9,
        actors=[acting(ANA).to_message(), actor],
    )
    (answer,) = await method("SendMessages").call(writers.caller("gateway"), sent)
    results = sorted(answer.results, key=lambda result: result.index)
    assert (results[0].seq, results[0].HasField("status")) == (2, False)
    refused = of_status(results[1].status)
    assert (refused.reason, refused.fields) == (reason, fields)
    beyond = of_status(results[2].status)
    assert (beyond.reason, beyond.fields) == ("INVALID_ARGUMENT", ("actor_index",))


MALFORMED: list[tuple[str, str, dict[str, Any]]] = [
    ("INVALID_ARGUMENT", "messages", {"messages": []}),
    ("INVALID_ARGUMENT", "actors", {"actors": []}),
    ("INVALID_ARGUMENT", "timeout_ms", {"timeout_ms": 60_001}),
    ("TOO_MANY_ITEMS", "messages", {"messages": [message(b"\x02" * 16)] * 257}),
    ("TOO_MANY_ITEMS", "actors", {"actors": [acting(ANA).to_message()] * 257}),
]


@pytest.mark.parametrize(("reason", "field", "fields"), MALFORMED)
async def test_a_malformed_frame_ends_the_stream_after_the_answers_to_the_frames_before_it(
    writers: Writers, group: ConversationId, reason: str, field: str, fields: dict[str, Any]
) -> None:
    good = [frame(message(group), frame_number=number) for number in range(20)]
    bad = frame(message(group), frame_number=20)
    for name, value in fields.items():
        if isinstance(value, list):
            bad.ClearField(name)  # type: ignore[arg-type]
            getattr(bad, name).extend(value)
        else:
            setattr(bad, name, value)
    ended = await play(writers.address, writers.suite.gateway_files(), [*good, bad, *good])
    assert ended.refusal is not None
    assert (ended.code, ended.refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, reason)
    assert ended.refusal.fields == ((field,) if reason == "INVALID_ARGUMENT" else ())
    assert sorted(each.frame_number for each in ended.answers) == list(range(20))
    assert all(result.seq for each in ended.answers for result in each.results)
    assert (await writers.user(ANA).get_visible_range(group)).head_seq == 21


async def test_garbage_ends_the_stream_after_the_answers_to_the_frames_before_it(
    writers: Writers, group: ConversationId
) -> None:
    channel: Any = writers.caller("gateway").provider.channel
    good = frame(message(group), frame_number=1).SerializeToString()
    # Nothing follows the garbage: a write that meets the stream's end would hide how the server ended it.
    stream = channel.stream_stream(method("SendMessages").path)(iter([good, b"\xff\xff"]))
    assert Answer.FromString(await stream.read()).frame_number == 1
    answer = await refusal(stream.read())
    assert (answer.reason, answer.fields) == ("INVALID_ARGUMENT", ("request",))


async def test_a_stream_without_a_frame_ends_with_ok(writers: Writers) -> None:
    assert await read_all(writers.caller("gateway").writer.SendMessages(iter([]))) == []


async def test_the_largest_frame_is_taken(writers: Writers, group: ConversationId) -> None:
    actors = [acting(user).to_message() for user in [ANA, BEN, CARA] + [DAN] * 253]
    largest = {"body": bytes(65_536), "custom_type": "t" * 128}
    messages = [message(group, actor_index=number % 3, **largest) for number in range(256)]
    sent = frame(*messages, actors=actors, frame_number=2**64 - 1, timeout_ms=60_000)
    (answer,) = await method("SendMessages").call(writers.caller("gateway"), sent)
    assert answer.frame_number == 2**64 - 1
    assert sorted((result.index, result.seq) for result in answer.results) == [(n, n + 2) for n in range(256)]


async def test_items_of_one_conversation_keep_their_order_over_many_frames_and_conversations(
    writers: Writers,
) -> None:
    ana = writers.user(ANA)
    groups = [(await ana.create_group()).group for _ in range(7)]
    frames = [
        frame(
            *(message(groups[(number * 31 + n) % 7], body=b"%d" % (number * 40 + n)) for n in range(40)),
            frame_number=number,
        )
        for number in range(100)
    ]
    await read_all(writers.caller("gateway").writer.SendMessages(iter(frames)))
    total = 0
    for group in groups:
        bodies = [int(each.body) async for each in ana.history(group)]
        assert bodies == sorted(bodies, reverse=True)
        total += len(bodies)
    assert total == 4000


async def test_many_streams_at_once_lose_nothing_and_leave_no_gap(writers: Writers) -> None:
    ana = writers.user(ANA)
    group = (await ana.create_group()).group
    callers = [Caller(writers.address, writers.suite.gateway_files()) for _ in range(4)]

    async def send(number: int) -> list[int]:
        frames = [frame(*(message(group) for _ in range(16)), frame_number=n) for n in range(10)]
        answers = await read_all(callers[number % 4].writer.SendMessages(iter(frames)))
        return [result.seq for answer in answers for result in answer.results]

    seqs = [seq for mine in await asyncio.gather(*(send(number) for number in range(60))) for seq in mine]
    assert sorted(seqs) == list(range(1, 60 * 160 + 1))
    await asyncio.gather(*(caller.provider.close() for caller in callers))


async def test_a_caller_that_does_not_read_its_answers_is_not_read_without_end(
    writers: Writers, group: ConversationId
) -> None:
    """Else the writer would keep the answers of a caller that never takes them, without a bound."""
    caller = Caller(writers.address, writers.suite.gateway_files())
    stream = caller.writer.SendMessages()
    padding = [message(b"", body=bytes(1000), client_message_id=uuid7()) for _ in range(256)]
    most = 1000
    written = 0
    pending: asyncio.Future[Any] | None = None
    while written < most:
        # Each frame is refused item by item; its answer is large enough to fill the flow control's window soon.
        pending = asyncio.ensure_future(stream.write(frame(*padding, frame_number=written)))
        done, _ = await asyncio.wait([pending], timeout=2)
        if not done:
            break
        written += 1
    assert written < most
    assert pending is not None
    answers = [await read(stream) for _ in range(written)]
    await pending
    answers.append(await read(stream))
    assert sorted(each.frame_number for each in answers) == list(range(written + 1))
    await stream.done_writing()
    assert await read_all(stream) == []
    await caller.provider.close()


async def test_callers_that_do_not_read_their_answers_cost_the_writer_little(
    writers: Writers, group: ConversationId
) -> None:
    """Neither the bodies of refused messages stay, nor does the number of streams multiply what does."""
    refused = frame(*(message(group, type=2, body=bytes(16_000)) for _ in range(128)))

    async def flood(stream: Any) -> None:
        """Until the writer takes no more, or has been sent more than enough."""
        for _ in range(24):
            if (await asyncio.wait([asyncio.ensure_future(stream.write(refused))], timeout=2))[1]:
                return

    async with writers.another() as flooded:
        callers = [Caller(flooded.address, writers.suite.gateway_files()) for _ in range(4)]
        before = resident_bytes(flooded.pid)
        streams = [caller.writer.SendMessages() for caller in callers for _ in range(6)]
        await asyncio.gather(*(flood(stream) for stream in streams))
        assert resident_bytes(flooded.pid) - before < 400 * 1024 * 1024
        # A caller that does read is served, though the others hold the whole budget.
        frames = [frame(message(group), frame_number=number) for number in range(20)]
        answers = await read_all(callers[0].writer.SendMessages(iter(frames)))
        assert sorted(each.frame_number for each in answers) == list(range(20))
        await asyncio.gather(*(caller.provider.close() for caller in callers))


def resident_bytes(pid: int) -> int:
    """What a process has in memory."""
    (line,) = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


async def test_a_client_that_goes_away_leaves_the_stream_of_others_alone(
    writers: Writers, group: ConversationId
) -> None:
    caller = writers.caller("gateway")
    staying, leaving = caller.writer.SendMessages(), caller.writer.SendMessages()
    await leaving.write(frame(message(group), frame_number=1))
    leaving.cancel()
    for number in range(5):
        await staying.write(frame(message(group), frame_number=number))
        assert (await read(staying)).frame_number == number
    await staying.done_writing()
    assert await read_all(staying) == []


async def test_a_stream_with_a_deadline_ends_at_it(writers: Writers, group: ConversationId) -> None:
    stream = writers.caller("gateway").writer.SendMessages(timeout=0.5)
    await stream.write(frame(message(group), frame_number=1))
    assert (await read(stream)).results[0].seq == 2
    assert (await failure(stream.read())).code() is grpc.StatusCode.DEADLINE_EXCEEDED

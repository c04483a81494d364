"""How streams end: at their age, when the writer drains, and what the client library makes of it."""

from __future__ import annotations

import asyncio
import itertools
import urllib.request
from collections.abc import Iterator

import grpc
import pytest
from tests.support.plain_stream import play
from tests.support.writer_methods import frame, message
from tests.support.writers import ANA, AnotherWriter, Writers, acting, until

from qim.writer.v1 import writer_pb2
from qim_client.retry import RetryPolicy
from qim_client.values import Outgoing
from qim_common.errors import RemoteError
from qim_common.ids import ConversationId

pytestmark = pytest.mark.server


async def test_a_stream_that_reached_its_age_answers_what_it_read_and_ends_with_ok(
    writers: Writers, group: ConversationId
) -> None:
    async with writers.another(QIM_STREAM_MAX_AGE_SECONDS="0.5") as aged:
        endless = (frame(message(group), frame_number=number) for number in itertools.count())
        ended = await play(aged.address, writers.suite.gateway_files(), endless)
    assert ended.code is grpc.StatusCode.OK
    assert sorted(each.frame_number for each in ended.answers) == list(range(len(ended.answers)))
    assert all(result.seq for each in ended.answers for result in each.results)
    assert (await writers.user(ANA).get_visible_range(group)).head_seq == 1 + len(ended.answers)


async def test_the_typed_client_goes_on_over_the_end_of_many_streams(writers: Writers, group: ConversationId) -> None:
    async with (
        writers.another(QIM_STREAM_MAX_AGE_SECONDS="0.1") as aged,
        writers.client(aged.address) as client,
        client.open_stream() as stream,
    ):
        enough = asyncio.Event()

        async def speak(number: int) -> list[int]:
            """The seqs of one task's messages; the answer to one is awaited before the next."""
            seqs: list[int] = []
            while not enough.is_set():
                item = Outgoing(acting(ANA), b"%d %d" % (number, len(seqs)), conversation=group)
                (outcome,) = await stream.send([item])
                assert outcome.sent is not None, outcome.error
                seqs.append(outcome.sent.seq)
            return seqs

        async def several_streams() -> bool:
            return await streams_served(aged) >= 8

        speaking = [asyncio.ensure_future(speak(number)) for number in range(16)]
        await until(several_streams)
        enough.set()
        played = await asyncio.gather(*speaking)
    history = {each.seq: each.body async for each in writers.user(ANA).history(group) if each.seq > 1}
    told = {seq: b"%d %d" % (number, n) for number, seqs in enumerate(played) for n, seq in enumerate(seqs)}
    assert history == told
    assert all(seqs == sorted(seqs) for seqs in played)


async def test_a_client_that_writes_while_the_stream_ends_may_try_again(
    writers: Writers, group: ConversationId
) -> None:
    """Grpc's client reports INTERNAL then, which is not retried; the client library knows better."""
    async with (
        writers.another(QIM_STREAM_MAX_AGE_SECONDS="0.2") as aged,
        writers.client(aged.address) as client,
    ):
        stream = client.open_frames()

        async def pour() -> None:
            for number in itertools.count():
                await stream.write(frame(message(group), frame_number=number))
                await asyncio.sleep(0)

        pouring = asyncio.ensure_future(pour())
        try:
            while await stream.read():
                pass
        except RemoteError as error:
            assert RetryPolicy().is_retryable(error)  # noqa: PT017  it may also end with OK
        with pytest.raises(RemoteError):
            await pouring


async def streams_served(process: AnotherWriter) -> int:
    """How many SendMessages streams a writer has ended."""
    url = f"http://{process.metrics}/metrics"
    text = await asyncio.to_thread(_get, url)
    return int(
        sum(
            float(line.rpartition(" ")[2]) for line in text.splitlines() if "SendMessages" in line and "_total{" in line
        )
    )


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  loopback
        return str(answer.read().decode())


async def test_sigterm_while_streams_are_open_answers_everything_that_was_read(writers: Writers) -> None:
    ana = writers.user(ANA)
    groups = [(await ana.create_group()).group for _ in range(3)]
    heads = [(instance, keys.msgcseq) for instance, keys, _ in map(writers.keys, groups)]

    def endless(group: ConversationId) -> Iterator[writer_pb2.SendMessagesRequest]:
        for number in itertools.count():
            yield frame(*(message(group) for _ in range(20)), frame_number=number)

    # The pause is what load balancers get; it lets the ends of the streams arrive before the connections are closed.
    async with writers.another(QIM_DRAIN_PAUSE_SECONDS="0.5") as ending:
        files = writers.suite.gateway_files()
        playing = [asyncio.ensure_future(play(ending.address, files, endless(group))) for group in groups]
        await until(lambda: all(int(instance.get(head) or 0) > 100 for instance, head in heads))
        stopping = asyncio.ensure_future(ending.stop())
        ended = await asyncio.gather(*playing)
        assert await stopping
    assert [each.details for each in ended] == [""] * 3
    assert {each.code for each in ended} == {grpc.StatusCode.OK}
    for group, each in zip(groups, ended, strict=True):
        assert sorted(answer.frame_number for answer in each.answers) == list(range(len(each.answers)))
        told = {result.seq: result.client_message_id for answer in each.answers for result in answer.results}
        assert {message.seq: message.client_message_id async for message in ana.history(group)} == told

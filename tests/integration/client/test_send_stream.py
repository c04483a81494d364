"""The stream of batches against the real writer: outcomes per item, many frames in flight, and no loss at its ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from qim.writer.v1 import writer_pb2, writer_pb2_grpc
from qim_client import Direction, GatewayClient, Outgoing, SendOutcome, SendStream, actor, convert
from qim_client.connection import Connection
from qim_client.names import user_id
from qim_common import errors
from qim_common.channels import ChannelProvider
from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.tls import PemFiles
from qim_devkit.pki import CertFiles
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server

TENANT = TenantId(1)
ANA, BEN = user_id("ana"), user_id("ben")
NOWHERE = ConversationId(b"\x02" + bytes(14) + b"\x09")
SECONDS = 30.0


def item(group: ConversationId, body: bytes, sender: UserId = ANA) -> Outgoing:
    return Outgoing(actor(TENANT, sender), body, conversation=group)


async def bodies(gateway: GatewayClient, group: ConversationId) -> list[bytes]:
    ana = gateway.as_actor(TENANT, ANA)
    return [message.body async for message in ana.history(group, direction=Direction.NEWER)]


async def test_items_of_several_people_keep_their_order(gateway: GatewayClient) -> None:
    group = (await gateway.as_actor(TENANT, ANA).create_group([BEN])).group
    async with gateway.open_stream() as stream:
        outcomes = await stream.send([item(group, b"%d" % at, BEN if at % 2 else ANA) for at in range(20)])
    assert [outcome.result().seq for outcome in outcomes] == list(range(1, 21))
    assert await bodies(gateway, group) == [b"%d" % at for at in range(20)]


async def test_a_bad_item_is_refused_alone_with_its_reason(gateway: GatewayClient) -> None:
    group = (await gateway.as_actor(TENANT, ANA).create_group()).group
    forged = Outgoing(actor(TENANT, ANA), b"", conversation=group, custom_type="qim.membership.v1")
    foreign = Outgoing(actor(TenantId(9), ANA), b"x", conversation=group)
    items = [item(group, b"1"), item(NOWHERE, b"x"), forged, foreign, item(group, b"2")]
    async with gateway.open_stream() as stream:
        outcomes = await stream.send(items)
    assert [reason_of(outcome) for outcome in outcomes] == [
        "",
        "PERMISSION_DENIED",
        "INVALID_ARGUMENT",
        "TENANT_NOT_ALLOWED",
        "",
    ]
    assert [outcome.client_message_id for outcome in outcomes] == [sent.client_message_id for sent in items]
    assert [outcomes[0].result().seq, outcomes[4].result().seq] == [1, 2]


async def test_the_same_object_twice_in_one_batch_takes_one_seq(gateway: GatewayClient) -> None:
    group = (await gateway.as_actor(TENANT, ANA).create_group()).group
    twice = item(group, b"once")
    async with gateway.open_stream() as stream:
        one, other = await stream.send([twice, twice])
    assert one.result() == other.result()
    assert await bodies(gateway, group) == [b"once"]


@pytest.mark.parametrize("count", [0, 257])
async def test_a_batch_has_1_to_256_items(gateway: GatewayClient, count: int) -> None:
    async with gateway.open_stream() as stream:
        with pytest.raises((errors.InvalidArgument, errors.TooManyItems)):
            await stream.send([item(NOWHERE, b"x")] * count)


async def test_a_batch_that_no_server_would_take_is_not_sent(gateway: GatewayClient) -> None:
    async with gateway.open_stream() as stream:
        with pytest.raises(errors.MessageTooLarge):
            await stream.send([item(NOWHERE, bytes(65 * 1024))] * 256)


async def test_a_stream_outlives_the_servers_maximum_age(gateway: GatewayClient) -> None:
    group = (await gateway.as_actor(TENANT, ANA).create_group()).group
    sent: list[bytes] = []
    loop = asyncio.get_running_loop()
    begin = loop.time()
    async with gateway.open_stream(max_frames=4) as stream:
        # The writer ends a stream after one second.
        while loop.time() - begin < 2.5:
            batch = [item(group, b"%d" % (len(sent) + at)) for at in range(8)]
            for outcome in await stream.send(batch):
                outcome.result()
            sent += [message.body for message in batch]
    assert await bodies(gateway, group) == sent


async def test_many_tasks_share_a_stream_beyond_its_bound(gateway: GatewayClient) -> None:
    groups = [(await gateway.as_actor(TENANT, ANA).create_group()).group for _ in range(10)]
    async with gateway.open_stream(max_frames=2) as stream, asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(stream.send([item(group, b"%d" % at) for at in range(10)])) for group in groups]
    for done in running:
        assert [outcome.result().seq for outcome in done.result()] == list(range(1, 11))


async def test_a_writer_that_is_killed_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    async with Suite(tmp_path / "suite", valkeys=1, services=("writer",)) as suite:
        writer = suite.addresses["writer"]
        async with GatewayClient(writer, writer, suite.gateway_files(), timeout=SECONDS) as gateway:
            group = (await gateway.as_actor(TENANT, ANA).create_group()).group
            async with gateway.open_stream(max_frames=8) as stream:
                frames = [[item(group, b"%d-%d" % (frame, at)) for at in range(5)] for frame in range(200)]
                running = [asyncio.create_task(stream.send(frame)) for frame in frames]
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                await suite.kill("writer")
                await suite.restart("writer")
                outcomes = [outcome for frame in await asyncio.gather(*running) for outcome in frame]
            seqs = [outcome.result().seq for outcome in outcomes]
            assert sorted(seqs) == list(range(1, len(outcomes) + 1))
            assert len(await bodies(gateway, group)) == len(outcomes)


async def test_without_a_writer_the_outcome_is_unknown_by_the_deadline(tmp_path: Path) -> None:
    async with Suite(tmp_path / "suite", valkeys=1, services=("writer",)) as suite:
        writer = suite.addresses["writer"]
        async with GatewayClient(writer, writer, suite.gateway_files()) as gateway:
            await suite.kill("writer")
            async with gateway.open_stream() as stream:
                (outcome,) = await stream.send([item(NOWHERE, b"x")], timeout=0.5)
    assert outcome.error is not None
    assert outcome.error.code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


async def test_a_stream_moves_to_the_channel_of_a_renewed_certificate(
    gateway: GatewayClient, writer_suite: Suite, tmp_path: Path
) -> None:
    group = (await gateway.as_actor(TENANT, ANA).create_group()).group
    files = PemFiles(tmp_path / "gateway.crt", tmp_path / "gateway.key", (writer_suite.pki.services_ca,))
    copy_identity(writer_suite.pki.issue("gateway", "dev-gateway"), files)
    channels = ChannelProvider(writer_suite.addresses["writer"], files, interval=0.0, grace=0.0)
    connection = Connection(channels, writer_pb2_grpc.WriterStub, timeout=SECONDS)
    async with SendStream(connection) as stream:
        await stream.send([item(group, b"before")])
        copy_identity(writer_suite.pki.issue("gateway", "dev-gateway", dns=("renewed",)), files)
        first = connection.stub()
        outcomes = [await stream.send([item(group, b"after")]) for _ in range(3)]
        assert connection.stub() is first
    await channels.close()
    assert [outcome.result().seq for (outcome,) in outcomes] == [2, 3, 4]


async def test_a_role_that_may_not_send_is_told_so_and_the_stream_does_not_try_on(writer_suite: Suite) -> None:
    writer = writer_suite.addresses["writer"]
    files = writer_suite.pki.issue("session", "session-0")
    async with GatewayClient(writer, writer, files) as session, session.open_stream() as stream:
        for _ in range(2):
            (outcome,) = await stream.send([item(NOWHERE, b"x")], timeout=SECONDS)
            assert reason_of(outcome) == "ROLE_NOT_ALLOWED"


async def test_a_closed_stream_sends_nothing(gateway: GatewayClient) -> None:
    stream = gateway.open_stream()
    await stream.close()
    (outcome,) = await stream.send([item(NOWHERE, b"x")])
    assert outcome.error is not None
    assert outcome.error.code is grpc.StatusCode.CANCELLED


async def test_bare_frames_go_in_and_out(gateway: GatewayClient) -> None:
    group = (await gateway.as_actor(TENANT, ANA).create_group()).group
    stream = gateway.open_frames()
    for number in (7, 8):
        message = convert.outgoing_to_wire(item(group, b"%d" % number))
        await stream.write(
            writer_pb2.SendMessagesRequest(
                frame_number=number, actors=[actor(TENANT, ANA).to_message()], messages=[message]
            )
        )
    answers = [await stream.read(), await stream.read()]
    assert sorted(answer.frame_number for answer in answers if answer) == [7, 8]
    await stream.done_writing()
    assert await stream.read() is None
    with pytest.raises(errors.RemoteError):
        await stream.write(writer_pb2.SendMessagesRequest())


def copy_identity(source: CertFiles, target: PemFiles) -> None:
    target.key.write_bytes(source.key.read_bytes())
    target.cert.write_bytes(source.cert.read_bytes())


def reason_of(outcome: SendOutcome) -> str:
    return "" if outcome.error is None else str(outcome.error.reason)

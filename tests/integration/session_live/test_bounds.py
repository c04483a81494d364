"""Bounds of one stream: slow readers, many attachments, what a mailbox keeps, and the end of its time."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.integration.session_live.conftest import TENANT
from tests.support.live import BOUND_SECONDS, LiveReader
from tests.support.valkey import require_valkey

from qim.session.v1 import session_pb2
from qim_client import (
    ActorClient,
    Attached,
    Delivered,
    Detached,
    DeviceCursor,
    GatewayClient,
    Outgoing,
    ResyncRequired,
    StatesChanged,
)
from qim_client.frames import LiveFrames
from qim_common.errors import Reason, from_status
from qim_common.ids import ConversationId, DeviceId, UserId, uuid7
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server
QUEUE_EVENTS = 100
ATTACHMENTS = 3
MAILBOX_ENTRIES = 5_000


@pytest_asyncio.fixture(scope="module")
async def small(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    """A session service with small bounds."""
    require_valkey()
    overrides = {
        "QIM_SUBSCRIBE_QUEUE_EVENTS": str(QUEUE_EVENTS),
        "QIM_SUBSCRIBE_ATTACHMENTS_MAX": str(ATTACHMENTS),
        "QIM_MAILBOX_MAX_ENTRIES": str(MAILBOX_ENTRIES),
    }
    directory = tmp_path_factory.mktemp("live-bounds")
    async with Suite(directory, services=("writer", "session"), env_overrides=overrides) as running:
        yield running


@pytest_asyncio.fixture
async def gateway(small: Suite) -> AsyncIterator[GatewayClient]:
    async with GatewayClient(
        small.addresses["writer"], small.addresses["session"], small.gateway_files(), timeout=10.0
    ) as client:
        yield client


def new(gateway: GatewayClient) -> ActorClient:
    return gateway.as_actor(TENANT, UserId(uuid7()), DeviceId(uuid7()))


async def send_many(gateway: GatewayClient, ana: ActorClient, group: ConversationId, count: int, body: bytes) -> None:
    async with gateway.open_stream() as stream:
        for start in range(0, count, 64):
            items = [Outgoing(ana.actor, body, conversation=group) for _ in range(min(64, count - start))]
            for outcome in await stream.send(items):
                outcome.result()


async def attached(frames: LiveFrames, client: ActorClient) -> None:
    """Attach as number 1 and read up to where it is live."""
    attach = session_pb2.SubscribeRequest.Attach(attachment=1, actor=client.actor.to_message())
    await frames.write(session_pb2.SubscribeRequest(attach=[attach]))
    while True:
        response = await frames.read()
        assert response is not None
        if any(event.HasField("attached") for event in response.events):
            return


async def overloads(suite: Suite) -> float:
    """How often the service has ended an attachment with OVERLOADED."""
    url = f"http://{suite.metrics_address('session')}/metrics"
    text = (await asyncio.to_thread(urllib.request.urlopen, url)).read().decode()
    found = re.search(r'^qim_session_detached_total{reason="OVERLOADED"} (\S+)', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest_asyncio.fixture
async def narrow(small: Suite) -> AsyncIterator[GatewayClient]:
    """A gateway whose connection takes no more than it reads."""
    options = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))
    writer, session = small.addresses["writer"], small.addresses["session"]
    async with GatewayClient(writer, session, small.gateway_files(), timeout=10.0, options=options) as client:
        yield client


async def test_a_slow_reader_is_told_to_resume_and_gets_everything_then(
    small: Suite, gateway: GatewayClient, narrow: GatewayClient
) -> None:
    ana, ben = new(gateway), new(gateway)
    group = (await ana.create_group([ben.actor.user])).group
    frames = narrow.open_live_frames()
    await attached(frames, ben)
    sent, before = 0, await overloads(small)
    async with asyncio.timeout(BOUND_SECONDS):
        while await overloads(small) == before:
            # Until the queue, the connection's windows and the pages between them are full.
            await send_many(gateway, ana, group, 64, b"x" * 4_000)
            sent += 64
    came: list[int] = []
    token, generation = "", 0
    async with asyncio.timeout(BOUND_SECONDS):
        while not token:
            response = await frames.read()
            assert response is not None
            for event in response.events:
                assert list(event.attachments) == [1]
                if event.HasField("detached"):
                    assert from_status(event.detached.status).reason == Reason.OVERLOADED
                    token = event.detached.resume_token
                elif event.HasField("delivered"):
                    assert not token, "nothing of an attachment follows its end"
                    came.append(event.delivered.message.seq)
                    generation = event.delivered.generation
    frames.cancel()
    assert came == list(range(1, len(came) + 1))
    assert len(came) < sent
    cursor = DeviceCursor(group, generation, len(came))
    await ben.pull_mailbox(ack=[cursor])
    async with LiveReader(gateway) as reader:
        again = await reader.attach(ben.actor, token)
        assert reader.seqs(again, group) == list(range(len(came) + 1, sent + 1))


async def test_catching_up_waits_for_a_slow_reader(gateway: GatewayClient) -> None:
    ana, ben = new(gateway), new(gateway)
    group = (await ana.create_group([ben.actor.user])).group
    await send_many(gateway, ana, group, 250, b"x" * 1_000)
    came: list[int] = []
    async with gateway.subscribe(max_events=1) as subscription:
        attachment = await subscription.attach(ben.actor)
        async with asyncio.timeout(BOUND_SECONDS):
            async for event in subscription:
                assert not isinstance(event, Detached)
                if isinstance(event, Delivered):
                    came.append(event.cursor.seq)
                if isinstance(event, Attached):
                    break
    assert came == list(range(1, 251))
    assert attachment.resume_token


async def test_more_attachments_than_a_stream_may_have_are_refused_by_name(gateway: GatewayClient) -> None:
    async with LiveReader(gateway) as reader:
        kept = [await reader.attach(new(gateway).actor) for _ in range(ATTACHMENTS)]
        refused = await reader.subscription.attach(new(gateway).actor)
        await reader.until(lambda: bool(reader.of(refused, Detached)))
        assert reader.of(refused, Detached)[0].reason == Reason.OVERLOADED
        await reader.detach(kept[0])
        await reader.attach(new(gateway).actor)


async def test_what_a_mailbox_no_longer_holds_is_named_and_what_follows_comes(gateway: GatewayClient) -> None:
    ana, ben = new(gateway), new(gateway)
    group = (await ana.create_group([ben.actor.user])).group
    newest = MAILBOX_ENTRIES + 1
    await send_many(gateway, ana, group, newest, b"old")
    async with LiveReader(gateway) as live:
        attachment = await live.attach(ben.actor)
        (resync,) = live.of(attachment, ResyncRequired)
        assert (resync.conversation, resync.newest_seq, live.seqs(attachment, group)) == (group, newest, [])
        await ana.send_to(group, b"new")
        await live.until(lambda: live.seqs(attachment, group) == [newest + 1])
        detached = await live.detach(attachment)
        same = await live.attach(ben.actor, detached.resume_token)
        assert (len(live.of(same, ResyncRequired)), live.seqs(same, group)) == (1, []), "it was not acknowledged"
        await same.acknowledge_many([resync.cursor])
        detached = await live.detach(same)
        again = await live.attach(ben.actor, detached.resume_token)
        assert (live.of(again, ResyncRequired), live.seqs(again, group)) == ([], [newest + 1])
        assert len(live.of(again, StatesChanged)) == 1


@pytest_asyncio.fixture
async def short_lived(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    """Streams that end after one second."""
    require_valkey()
    directory = tmp_path_factory.mktemp("live-age")
    overrides = {"QIM_STREAM_MAX_AGE_SECONDS": "1"}
    async with Suite(directory, services=("writer", "session"), env_overrides=overrides) as running:
        yield running


async def test_at_its_maximum_age_a_stream_sends_every_token_and_ends_with_ok(short_lived: Suite) -> None:
    async with GatewayClient(
        short_lived.addresses["writer"], short_lived.addresses["session"], short_lived.gateway_files(), timeout=10.0
    ) as gateway:
        ana, ben = new(gateway), new(gateway)
        group = (await ana.create_group([ben.actor.user])).group
        frames = gateway.open_live_frames()
        await attached(frames, ben)
        events = []
        async with asyncio.timeout(BOUND_SECONDS):
            while (response := await frames.read()) is not None:
                events += list(response.events)
        assert [event.WhichOneof("event") for event in events] == ["detached"]
        detached = events[0].detached
        assert (detached.status.code, bool(detached.resume_token), detached.stream_ends) == (0, True, True)
        async with LiveReader(gateway) as reader:
            attachment = await reader.attach(ben.actor)
            while len(reader.of(attachment, Attached)) < 3:
                sent = await ana.send_to(group, b"through the ages")
                await reader.until(lambda: sent.seq in reader.seqs(attachment, group))  # noqa: B023  awaited here
            seqs = reader.seqs(attachment, group)
            assert seqs == list(range(1, len(seqs) + 1))
            assert reader.of(attachment, Detached) == []


async def test_a_gateway_that_asks_without_reading_is_held_up_and_answered_later(narrow: GatewayClient) -> None:
    """Refused attaches alone fill what the service keeps for a stream; then it reads no more of it."""
    frames = narrow.open_live_frames()
    requests, items = 40, 1000
    numbers = iter(range(1, requests * items + 1))
    refused = session_pb2.SubscribeRequest.Attach(actor=new(narrow).actor.to_message())
    refused.actor.tenant_id = 99

    async def ask() -> None:
        for _ in range(requests):
            request = session_pb2.SubscribeRequest()
            for _ in range(items):
                refused.attachment = next(numbers)
                request.attach.append(refused)
            await frames.write(request)

    asking = asyncio.create_task(ask())
    came: list[int] = []
    async with asyncio.timeout(BOUND_SECONDS * 2):
        await asyncio.wait([asking], timeout=1.0)
        while len(came) < requests * items:
            response = await frames.read()
            assert response is not None
            came += [number for event in response.events for number in event.attachments]
        await asking
    frames.cancel()
    assert came == list(range(1, requests * items + 1))

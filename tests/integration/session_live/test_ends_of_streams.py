"""What was acknowledged before a detach is heard, whenever the stream ends; and withheld stretches come once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.integration.session_live.conftest import TENANT, Person
from tests.support.cutting_proxy import cutting_proxy
from tests.support.live import LiveReader
from tests.support.service_metrics import counted
from tests.support.valkey import require_valkey
from tests.support.writers import until

from qim_client import ActorClient, Attachment, Delivered, Detached, GatewayClient
from qim_common.ids import ConversationId, DeviceId, UserId, uuid7
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server
MESSAGES = 20


@pytest_asyncio.fixture(scope="module")
async def rotating(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    """Streams that end after two seconds."""
    require_valkey()
    directory = tmp_path_factory.mktemp("live-ends")
    overrides = {"QIM_STREAM_MAX_AGE_SECONDS": "2"}
    async with Suite(directory, services=("writer", "session"), env_overrides=overrides) as running:
        yield running


def client_of(suite: Suite, session: str) -> GatewayClient:
    return GatewayClient(suite.addresses["writer"], session, suite.gateway_files(), timeout=10.0)


async def talk(ana: ActorClient, group: ConversationId, count: int = MESSAGES) -> int:
    """Send messages; the newest seq."""
    for number in range(count):
        newest = (await ana.send_to(group, b"%d" % number)).seq
    return newest


async def acknowledge(reader: LiveReader, attachment: Attachment) -> None:
    """Everything that has come; nothing of it is sent before the caller waits for something."""
    await attachment.acknowledge_many([event.cursor for event in reader.of(attachment, Delivered)])


async def ended(reader: LiveReader, attachment: Attachment) -> str:
    """Wait until a detach is carried out; the resume token."""
    await reader.until(lambda: bool(reader.of(attachment, Detached)))
    (detached,) = reader.of(attachment, Detached)
    assert detached.error is None
    return detached.resume_token


async def test_a_detach_whose_stream_is_cut_off_is_carried_out_on_the_next_one(suite: Suite, person: Person) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    async with (
        cutting_proxy(suite.addresses["session"]) as proxy,
        client_of(suite, proxy.address) as gateway,
        LiveReader(gateway) as reader,
    ):
        attachment = await reader.attach(ben.actor)
        newest = await talk(ana, group)
        await reader.until(lambda: newest in reader.seqs(attachment, group))
        await acknowledge(reader, attachment)
        await attachment.detach()
        await proxy.cut()
        token = await ended(reader, attachment)
        again = await reader.attach(ben.actor, token)
        assert reader.seqs(again, group) == []
        assert (await ben.pull_mailbox()).entries == ()


async def test_what_a_stream_did_not_hear_before_it_was_cut_off_is_heard_before_a_later_detach(
    suite: Suite, person: Person
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    async with (
        cutting_proxy(suite.addresses["session"]) as proxy,
        client_of(suite, proxy.address) as gateway,
        LiveReader(gateway) as reader,
    ):
        attachment = await reader.attach(ben.actor)
        newest = await talk(ana, group)
        await reader.until(lambda: newest in reader.seqs(attachment, group))
        proxy.hold()
        await acknowledge(reader, attachment)
        await until(lambda: proxy.held > 0)
        await proxy.cut()
        proxy.hold()
        await until(lambda: proxy.held > 0)
        await attachment.detach()
        proxy.release()
        again = await reader.attach(ben.actor, await ended(reader, attachment))
        assert reader.seqs(again, group) == []


async def test_a_detach_that_crosses_the_end_of_the_streams_time_is_carried_out_on_the_next_one(
    rotating: Suite,
) -> None:
    async with (
        cutting_proxy(rotating.addresses["session"]) as proxy,
        client_of(rotating, proxy.address) as gateway,
        client_of(rotating, rotating.addresses["session"]) as direct,
        LiveReader(gateway) as reader,
    ):
        ana, ben = (direct.as_actor(TENANT, UserId(uuid7()), DeviceId(uuid7())) for _ in range(2))
        group = (await ana.create_group([ben.actor.user])).group
        attachment = await reader.attach(ben.actor)
        newest = await talk(ana, group)
        await reader.until(lambda: newest in reader.seqs(attachment, group))
        proxy.hold()
        before = await counted(rotating, "qim_session_detached_total", "session")
        await acknowledge(reader, attachment)
        await attachment.detach()

        async def the_stream_has_ended() -> bool:
            return await counted(rotating, "qim_session_detached_total", "session") > before

        await until(the_stream_has_ended)
        proxy.release()
        token = await ended(reader, attachment)
        again = await reader.attach(ben.actor, token)
        assert reader.seqs(again, group) == []
        assert (await ben.pull_mailbox()).entries == ()


async def test_messages_that_are_withheld_after_a_reconnection_do_not_come_again_in_a_stretch(
    suite: Suite, person: Person
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    async with (
        cutting_proxy(suite.addresses["session"]) as proxy,
        client_of(suite, proxy.address) as gateway,
        LiveReader(gateway) as reader,
    ):
        attachment = await reader.attach(ben.actor)
        await talk(ana, group, 3)
        await reader.until(lambda: reader.seqs(attachment, group) == [1, 2, 3])
        proxy.swallows = True
        await talk(ana, group, 3)
        await ben.clear_history(group, up_to_seq=5)
        await proxy.cut()
        await reader.until(lambda: 6 in reader.seqs(attachment, group))
        assert reader.places(attachment) == [(group, seq, seq) for seq in (1, 2, 3)] + [(group, 4, 5), (group, 6, 6)]

"""Attaching again: nothing is lost, and nothing that was acknowledged is repeated (storage.md, "Session")."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.integration.session_live.conftest import TENANT, Person
from tests.support.live import LiveReader

from qim_client import Attached, Delivered, Detached, GatewayClient, Resumed, StatesChanged, actor
from qim_common.errors import Reason
from qim_common.ids import ConversationId, DeviceId, uuid7
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server


async def acknowledge_all(reader: LiveReader, attachment: object) -> None:
    for event in reader.events:
        if isinstance(event, Delivered) and event.attachment is attachment:
            await event.attachment.acknowledge_many([event.cursor])


async def test_resuming_on_another_replica_brings_exactly_what_was_missed(
    person: Person, live: LiveReader, elsewhere: LiveReader
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    attachment = await live.attach(ben.actor)
    for number in range(3):
        await ana.send_to(group, b"%d" % number)
    await live.until(lambda: live.seqs(attachment, group) == [1, 2, 3])
    await acknowledge_all(live, attachment)
    token = (await live.detach(attachment)).resume_token
    for number in range(3):
        await ana.send_to(group, b"missed %d" % number)
    again = await elsewhere.attach(ben.actor, token)
    assert elsewhere.seqs(again, group) == [4, 5, 6]
    first = next(event for event in elsewhere.events if event.attachment is again)
    assert isinstance(first, StatesChanged)
    await ana.send_to(group, b"live")
    await elsewhere.until(lambda: elsewhere.seqs(again, group) == [4, 5, 6, 7])


async def test_what_was_not_acknowledged_comes_again(person: Person, live: LiveReader, elsewhere: LiveReader) -> None:
    ana, ben = person(), person()
    groups = [(await ana.create_group([ben.actor.user])).group for _ in range(2)]
    attachment = await live.attach(ben.actor)
    for group in groups:
        for number in range(3):
            await ana.send_to(group, b"%d" % number)
    for group in groups:
        await live.until(lambda group=group: live.seqs(attachment, group) == [1, 2, 3])  # type: ignore[misc]
    generation = live.of(attachment, Delivered)[0].cursor.generation
    await attachment.acknowledge(groups[0], generation, 3)
    await attachment.acknowledge(groups[1], generation, 1)
    # Tokens that came meanwhile hold back for what is not acknowledged.
    await live.until(lambda: bool(live.of(attachment, Resumed)))
    token = live.of(attachment, Resumed)[-1].resume_token
    await live.detach(attachment)
    again = await elsewhere.attach(ben.actor, token)
    assert [elsewhere.seqs(again, group) for group in groups] == [[], [2, 3]]


async def test_without_a_token_everything_comes_that_the_device_has_not_acknowledged(
    person: Person, live: LiveReader, elsewhere: LiveReader
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    attachment = await live.attach(ben.actor)
    for number in range(4):
        await ana.send_to(group, b"%d" % number)
    await live.until(lambda: len(live.seqs(attachment, group)) == 4)
    cursor = live.of(attachment, Delivered)[1].cursor
    await attachment.acknowledge_many([cursor])
    await live.detach(attachment)
    same = await elsewhere.attach(ben.actor)
    other = await elsewhere.attach(actor(TENANT, ben.actor.user, DeviceId(uuid7())))
    assert elsewhere.seqs(same, group) == [3, 4]
    assert elsewhere.seqs(other, group) == [1, 2, 3, 4]
    assert elsewhere.of(same, StatesChanged) == []


async def test_a_mailbox_that_was_pulled_is_not_repeated_live(person: Person, live: LiveReader) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    await ana.send_to(group, b"pulled")
    cursors: list[object] = []
    while not cursors:
        page = await ben.pull_mailbox()
        cursors = [entry.cursor for entry in page.entries]
        await ben.pull_mailbox(ack=[entry.cursor for entry in page.entries])
    attachment = await live.attach(ben.actor)
    await ana.send_to(group, b"live")
    await live.until(lambda: bool(live.seqs(attachment, group)))
    assert live.seqs(attachment, group) == [2]


async def test_messages_sent_while_people_attach_come_once_and_in_order(person: Person, live: LiveReader) -> None:
    ana = person()
    people = [person() for _ in range(3)]
    groups = [(await ana.create_group([one.actor.user for one in people])).group for _ in range(4)]
    sent = dict.fromkeys(groups, 0)
    stopped = asyncio.Event()

    async def chatter(group: ConversationId) -> None:
        while not stopped.is_set():
            sent[group] = (await ana.send_to(group, b"x" * random.choice((10, 6_000)))).seq  # noqa: S311  no secret

    talk = [asyncio.create_task(chatter(group)) for group in groups]
    attachments = []
    for one in people:
        for _ in range(2):
            attachment = await live.attach(one.actor)
            attachments.append(attachment)
            await acknowledge_all(live, attachment)
            token = (await live.detach(attachment)).resume_token
            attachments.append(await live.attach(one.actor, token))
            await live.detach(attachments[-1])
        attachments.append(await live.attach(one.actor))
    stopped.set()
    await asyncio.gather(*talk)
    for one, last in zip(people, attachments[4::5], strict=True):
        for group in groups:
            await live.until(
                lambda last=last, group=group: live.seqs(last, group)[-1:] == [sent[group]]  # type: ignore[misc]
            )
        of_person = [attachment for attachment in attachments if attachment.actor == one.actor]
        for attachment in of_person:
            for group in groups:
                seqs = live.seqs(attachment, group)
                assert seqs == list(range(seqs[0], seqs[-1] + 1)) if seqs else True
        for group in groups:
            came = {seq for attachment in of_person for seq in live.seqs(attachment, group)}
            assert came == set(range(1, sent[group] + 1))


async def test_a_client_goes_on_by_itself_when_its_replica_is_restarted(
    gateways: list[GatewayClient], suite: Suite, person: Person
) -> None:
    from qim_devkit.suite import Suite

    assert isinstance(suite, Suite)
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    async with LiveReader(gateways[1]) as reader:
        attachment = await reader.attach(ben.actor)
        await ana.send_to(group, b"before")
        await ana.send_to(group, b"not acknowledged")
        await reader.until(lambda: reader.seqs(attachment, group) == [1, 2])
        await attachment.acknowledge_many([reader.of(attachment, Delivered)[0].cursor])
        await suite.restart("session-1")
        await ana.send_to(group, b"after")
        await reader.until(lambda: len(reader.of(attachment, Attached)) >= 2)
        await reader.until(lambda: 3 in reader.seqs(attachment, group))
        assert reader.seqs(attachment, group) == [1, 2, 3], "what the client has had it does not give twice"
        assert reader.of(attachment, Detached) == []


@pytest.mark.parametrize("whose", ["another person's", "another device's", "nobody's", "a list's"])
async def test_a_token_of_somebody_else_ends_the_attachment_by_name(
    person: Person, live: LiveReader, whose: str
) -> None:
    ana, ben = person(), person()
    await ana.create_group([ben.actor.user])
    attachment = await live.attach(ben.actor)
    token = (await live.detach(attachment)).resume_token
    claimed, used = ana.actor, token
    if whose == "another device's":
        claimed = actor(TENANT, ben.actor.user, DeviceId(uuid7()))
    elif whose == "nobody's":
        used = "AAAA" + token[4:]
    elif whose == "a list's":
        for _ in range(2):
            await ana.create_group([ben.actor.user])
        while not (used := (await ana.list_conversations(page_size=1)).next_page_token):
            pass
    refused = await live.subscription.attach(claimed, used)
    await live.until(lambda: bool(live.of(refused, Detached)))
    (detached,) = live.of(refused, Detached)
    assert (detached.reason, live.of(refused, Attached)) == (Reason.PAGE_TOKEN_INVALID, [])

"""A mailbox keeps so many entries and so many days; whatever is beyond is told, and an acknowledgement heals it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.integration.session.running import ADD, Service, lists_all, running, seqs, until

from qim_client.values import DeviceCursor, GroupSettings
from qim_common.errors import ResyncRequired
from qim_common.ids import ConversationId

KEPT = 8
DAYS = 0.00002
"""1.7 seconds."""
pytestmark = pytest.mark.server


@pytest_asyncio.fixture(scope="module")
async def few(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with running(tmp_path_factory.mktemp("few"), QIM_MAILBOX_MAX_ENTRIES=str(KEPT)) as started:
        yield started


@pytest_asyncio.fixture(scope="module")
async def brief(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with running(tmp_path_factory.mktemp("brief"), QIM_MAILBOX_MAX_AGE_DAYS=str(DAYS)) as started:
        yield started


def newest_of(refused: ResyncRequired) -> DeviceCursor:
    """The acknowledgement that heals, from what the refusal says."""
    said = refused.metadata
    conversation = ConversationId(bytes.fromhex(said["conversation_id"]))
    return DeviceCursor(conversation, int(said["generation"]), int(said["newest_seq"]))


async def test_more_than_a_mailbox_keeps_is_told_and_healed_by_its_newest_seq(few: Service) -> None:
    ana, ben = few.person(), few.person()
    group = (await ana.create_group([ben.actor.user])).group
    for _ in range(KEPT):
        await ana.send_to(group, b"kept")
    await lists_all(ben, {group})
    assert seqs((await ben.pull_mailbox()).entries) == list(range(1, KEPT + 1))
    await ana.send_to(group, b"one too many")
    with pytest.raises(ResyncRequired) as refused:
        await ben.pull_mailbox()
    healing = newest_of(refused.value)
    assert (healing.conversation, healing.seq) == (group, KEPT + 1)
    await ana.send_to(group, b"after")
    assert seqs((await ben.pull_mailbox(ack=[healing])).entries) == [KEPT + 2]


async def test_the_comings_and_goings_of_others_fill_no_mailbox(few: Service) -> None:
    ana, ben = few.person(), few.person()
    settings = GroupSettings(broadcast_max_members=1)
    group = (await ana.create_group([ben.actor.user], settings=settings)).group
    for _ in range(KEPT + 1):
        await few.change(ADD, group, [few.person().actor.user])
    sent = await ana.send_to(group, b"all that was delivered")
    await lists_all(ben, {group})
    assert seqs((await ben.pull_mailbox()).entries) == [sent.seq]


async def test_what_comes_before_a_conversation_to_be_resynchronised_is_given_first(few: Service) -> None:
    ana, ben = few.person(), few.person()
    quiet = (await ana.create_group([ben.actor.user])).group
    await ana.send_to(quiet, b"small")
    await lists_all(ben, {quiet})
    loud = (await ana.create_group([ben.actor.user])).group
    for _ in range(KEPT + 1):
        await ana.send_to(loud, b"loud")
    await lists_all(ben, {quiet, loud})

    async def behind() -> bool:
        page = await ben.pull_mailbox()
        return page.more and {entry.conversation for entry in page.entries} == {quiet}

    await until(behind)
    page = await ben.pull_mailbox()
    with pytest.raises(ResyncRequired) as refused:
        await ben.pull_mailbox(ack=[page.entries[-1].cursor])
    assert newest_of(refused.value).conversation == loud
    page = await ben.pull_mailbox(ack=[newest_of(refused.value)])
    assert (page.entries, page.more) == ((), False)


async def test_each_device_has_bounds_of_its_own(few: Service) -> None:
    ana, ben = few.person(), few.person()
    group = (await ana.create_group([ben.actor.user])).group
    for _ in range(KEPT):
        await ana.send_to(group, b"kept")
    await lists_all(ben, {group})
    await ben.pull_mailbox(ack=[(await ben.pull_mailbox()).entries[-1].cursor])
    await ana.send_to(group, b"new")
    assert seqs((await ben.pull_mailbox()).entries) == [KEPT + 1]
    with pytest.raises(ResyncRequired):
        await few.on_another_device(ben).pull_mailbox()


async def test_a_message_older_than_a_mailbox_keeps_is_told_and_healed(brief: Service) -> None:
    ana, ben = brief.person(), brief.person()
    group = (await ana.create_group([ben.actor.user])).group
    await ana.send_to(group, b"old")
    await lists_all(ben, {group})
    refusals: list[ResyncRequired] = []

    async def old() -> bool:
        try:
            await ben.pull_mailbox()
        except ResyncRequired as refused:
            refusals.append(refused)
        return bool(refusals)

    await until(old)
    healing = newest_of(refusals[0])
    assert (healing.conversation, healing.seq) == (group, 1)

    async def healed() -> bool:
        sent = await ana.send_to(group, b"new")
        try:
            page = await ben.pull_mailbox(ack=[newest_of(refusals[-1])])
        except ResyncRequired as refused:  # the machine was so slow that this one has become old too
            refusals.append(refused)
            return False
        assert seqs(page.entries)[-1] == sent.seq
        return True

    await until(healed)

"""SetConversationFlags with the real writer: hidden until the next ordinary message, muted until told so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from tests.integration.session.running import ADD, REMOVE, TENANT, Service, ids, listed, lists_all, running, until

from qim_client import ActorClient
from qim_common.errors import IdempotencyKeyReused, InvalidArgument, PermissionDenied, RequestTooOld
from qim_common.ids import ConversationId, person_bucket, uuid7
from qim_common.keys import PersonBucketKeys, usig
from qim_session.domain.signals import SIGNAL_FIELD, Signal, SignalKind

pytestmark = pytest.mark.server


@pytest_asyncio.fixture(scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with running(tmp_path_factory.mktemp("hidden-and-muted")) as started:
        yield started


async def pair(service: Service) -> tuple[ActorClient, ActorClient, ConversationId]:
    """Ana, Ben, and their group, which both lists show."""
    ana, ben = service.person(), service.person()
    group = (await ana.create_group([ben.actor.user])).group
    await lists_all(ben, {group})
    return ana, ben, group


async def signals(service: Service, person: ActorClient) -> list[Signal]:
    """What the person's other devices were told."""
    found = []
    for position, instance in enumerate(service.instances):
        for _, fields in await instance.xrange(usig(position)):
            signal = Signal.unpack(fields[SIGNAL_FIELD])
            if signal.user == person.actor.user:
                found.append(signal)
    return found


async def test_a_hidden_conversation_is_left_out_until_the_next_ordinary_message(service: Service) -> None:
    ana, ben, group = await pair(service)
    await ana.send_to(group, b"one")
    entry = await ben.set_conversation_flags(group, hidden=True)
    assert (entry.conversation, entry.hidden, entry.muted, entry.unread_count) == (group, True, False, 1)
    assert group not in await ids(ben)
    assert group in await ids(ben, include_hidden=True)
    assert (await ben.get_conversation(group)).hidden
    assert group in await ids(ana), "it is Ben's own wish"
    await service.change(ADD, group, [service.person().actor.user])
    assert group not in await ids(ben), "who comes and goes shows nothing"
    await ana.send_to(group, b"two")
    assert not (await ben.get_conversation(group)).hidden
    assert group in await ids(ben)


async def test_a_group_that_nobody_has_written_in_can_be_hidden(service: Service) -> None:
    ana, ben, group = await pair(service)
    await ben.set_conversation_flags(group, hidden=True)
    assert group not in await ids(ben)
    await ana.send_to(group, b"first")
    assert group in await ids(ben)


async def test_who_comes_back_sees_a_conversation_again_that_was_hidden(service: Service) -> None:
    ana, ben, group = await pair(service)
    await ana.send_to(group, b"one")
    await ben.set_conversation_flags(group, hidden=True)
    await service.change(REMOVE, group, [ben.actor.user])
    assert group not in await ids(ben)
    await service.change(ADD, group, [ben.actor.user])
    assert group in await ids(ben)


async def test_hidden_can_be_taken_back_and_set_again(service: Service) -> None:
    ana, ben, group = await pair(service)
    await ana.send_to(group, b"one")
    await ben.set_conversation_flags(group, hidden=True)
    assert not (await ben.set_conversation_flags(group, hidden=False)).hidden
    assert group in await ids(ben)
    await ben.set_conversation_flags(group, hidden=True)
    await ana.send_to(group, b"two")
    await ben.set_conversation_flags(group, hidden=True)
    assert group not in await ids(ben), "hidden anew behind the second message"


async def test_muted_stays_and_the_two_do_not_touch_each_other(service: Service) -> None:
    ana, ben, group = await pair(service)
    await ana.send_to(group, b"one")
    await ben.set_conversation_flags(group, hidden=True)
    entry = await ben.set_conversation_flags(group, muted=True)
    assert (entry.hidden, entry.muted) == (True, True)
    await ana.send_to(group, b"two")
    entry = await ben.get_conversation(group)
    assert (entry.hidden, entry.muted) == (False, True)
    entry = await ben.set_conversation_flags(group, muted=False)
    assert (entry.hidden, entry.muted) == (False, False), "what a message has ended does not come back"
    assert (await ana.get_conversation(group)).muted is False


async def test_hidden_and_muted_conversations_count_in_the_total(service: Service) -> None:
    ana, ben, group = await pair(service)
    await ana.send_to(group, b"one")
    await ana.send_to(group, b"two")
    await ben.set_conversation_flags(group, hidden=True, muted=True)
    assert await ben.get_total_unread() == 2


async def test_other_devices_are_told_once_of_what_has_changed(service: Service) -> None:
    ana, ben, group = await pair(service)
    await ana.send_to(group, b"one")
    for _ in range(2):
        await ben.set_conversation_flags(group, muted=True)
        await ben.mark_read(group, 1)
    await ben.set_conversation_flags(group, hidden=True)
    told = [(one.kind, one.seq, one.hidden, one.muted) for one in await signals(service, ben)]
    assert told == [
        (SignalKind.FLAGS, 0, False, True),
        (SignalKind.READ_MARK, 1, False, False),
        (SignalKind.FLAGS, 0, True, True),
    ]
    first = (await signals(service, ben))[0]
    assert (first.tenant, first.device, first.conversation) == (TENANT, ben.actor.device, group)
    assert await signals(service, ana) == []


async def test_a_repeat_gets_the_first_answer_and_changes_nothing(service: Service) -> None:
    ana, ben, group = await pair(service)
    await ana.send_to(group, b"one")
    request_id = uuid7()
    first = await ben.set_conversation_flags(group, muted=True, request_id=request_id)
    assert first.muted
    await ben.set_conversation_flags(group, muted=False)
    again = await service.on_another_device(ben).set_conversation_flags(group, muted=True, request_id=request_id)
    assert again == first
    assert not (await ben.get_conversation(group)).muted, "the later change holds"
    assert len(await signals(service, ben)) == 2


@pytest.mark.parametrize(("hidden", "muted"), [(None, False), (True, None), (True, True), (False, True)], ids=repr)
async def test_an_id_with_other_content_is_refused(
    service: Service, *, hidden: bool | None, muted: bool | None
) -> None:
    _, ben, group = await pair(service)
    request_id = uuid7()
    await ben.set_conversation_flags(group, muted=True, request_id=request_id)
    with pytest.raises(IdempotencyKeyReused):
        await ben.set_conversation_flags(group, hidden=hidden, muted=muted, request_id=request_id)
    assert (await ben.get_conversation(group)).muted


async def test_the_same_id_of_others_and_for_other_conversations_is_another_request(service: Service) -> None:
    ana, ben, group = await pair(service)
    other = (await ana.create_group([ben.actor.user])).group
    request_id = uuid7()
    await ben.set_conversation_flags(group, muted=True, request_id=request_id)
    assert (await ana.set_conversation_flags(group, hidden=True, request_id=request_id)).hidden
    assert (await ben.set_conversation_flags(other, hidden=True, request_id=request_id)).hidden


async def test_an_id_that_is_older_than_what_is_remembered_is_never_executed(service: Service) -> None:
    _, ben, group = await pair(service)
    bucket = person_bucket(TENANT, ben.actor.user, 256)
    instance = service.instances[bucket % len(service.instances)]
    now = datetime.now(UTC)
    # As a rotation leaves it: entries from before this moment have been dropped.
    low = int((now - timedelta(hours=1)).timestamp() * 1000)
    await ben.set_conversation_flags(group, muted=True)
    await instance.hset(PersonBucketKeys(bucket).meta, mapping={"g": 1, "low": low})
    old = int((now - timedelta(hours=2)).timestamp() * 1000).to_bytes(6, "big") + uuid7()[6:]
    with pytest.raises(RequestTooOld):
        await ben.set_conversation_flags(group, muted=False, request_id=old)
    assert (await ben.get_conversation(group)).muted
    assert not (await ben.set_conversation_flags(group, muted=False)).muted


async def test_flags_of_a_leaver_are_their_own_wish_too(service: Service) -> None:
    ana, ben, group = await pair(service)
    await ana.send_to(group, b"one")
    await ben.leave_group(group)
    await ben.set_conversation_flags(group, hidden=True)
    await ana.send_to(group, b"after")
    assert group not in await ids(ben)


async def test_nobody_sets_flags_of_a_conversation_that_they_never_were_in(service: Service) -> None:
    _, _, group = await pair(service)
    stranger = service.person()
    for conversation in (group, ConversationId(b"\x02" + b"?" * 15)):
        with pytest.raises(PermissionDenied):
            await stranger.set_conversation_flags(conversation, muted=True)
    assert await listed(stranger, include_hidden=True) == []


async def test_bad_requests_are_refused_by_name(service: Service) -> None:
    _, ben, group = await pair(service)
    for field, call in (
        ("hidden", ben.set_conversation_flags(group)),
        ("request_id", ben.set_conversation_flags(group, muted=True, request_id=b"short")),
        ("request_id", ben.set_conversation_flags(group, muted=True, request_id=bytes(16))),
        ("conversation_id", ben.set_conversation_flags(ConversationId(b"x"), muted=True)),
    ):
        with pytest.raises(InvalidArgument) as refused:
            await call
        assert [violation.field for violation in refused.value.violations] == [field]
    assert not (await ben.get_conversation(group)).muted


async def test_flags_survive_a_restart_of_the_service(service: Service) -> None:
    ana, ben, group = await pair(service)
    await ana.send_to(group, b"one")
    await ben.set_conversation_flags(group, hidden=True, muted=True)
    await service.suite.restart("session")

    async def answered() -> bool:
        return [entry.muted for entry in await listed(ben, include_hidden=True)] == [True]

    await until(answered)
    assert await ids(ben) == []

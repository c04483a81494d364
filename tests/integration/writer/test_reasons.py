"""Each reason of contracts.md ("Errors") that a writer gives, provoked for real: its status, details, and no effect."""

from __future__ import annotations

import time

import pytest
from tests.support.refusals import Refusal, of_status, refusal
from tests.support.writer_methods import frame, message, method
from tests.support.writers import ANA, BEN, CARA, DAN, TENANT, Writers, acting, as_actor, person

from qim.common.v1 import types_pb2
from qim.membership.v1 import membership_pb2
from qim.writer.v1 import writer_pb2
from qim_client.values import GroupSettings
from qim_common.ids import ConversationId, uuid7

pytestmark = pytest.mark.server

HOUR_MS = 3_600_000
KIND = membership_pb2.AdminMembershipChange


async def sent_refused(writers: Writers, sent: writer_pb2.OutgoingMessage) -> list[Refusal]:
    """What a message is answered alone, and on a stream."""
    gateway = writers.caller("gateway")
    alone = await refusal(method("SendMessage").call(gateway, writer_pb2.SendMessageRequest(message=sent)))
    (answer,) = await method("SendMessages").call(gateway, frame(sent))
    return [alone, of_status(answer.results[0].status)]


async def left_refused(writers: Writers, group: ConversationId, user: bytes = ANA) -> Refusal:
    called = method("LeaveGroup")
    metadata = as_actor(acting(user))  # type: ignore[arg-type]
    return await refusal(called.call(writers.caller("gateway"), called.request(group), metadata=metadata))


async def test_a_group_that_exists_is_not_created_again_and_nobody_is_added(
    writers: Writers, group: ConversationId
) -> None:
    before = writers.facts(group)
    request = membership_pb2.GroupCreateRequest(request_id=uuid7(), group_id=group, member_user_ids=[DAN])
    for user in (ANA, DAN):
        answer = await refusal(
            method("CreateGroup").call(writers.caller("gateway"), request, metadata=as_actor(acting(user)))
        )
        assert answer.name == ("ALREADY_EXISTS", "GROUP_ALREADY_EXISTS")
    assert writers.facts(group) == before


async def test_a_batch_above_the_member_limit_adds_nobody(writers: Writers) -> None:
    ana = writers.user(ANA)
    group = (await ana.create_group([BEN], settings=GroupSettings(member_limit=3))).group
    before = writers.facts(group)
    called = method("AdminChangeMembers")
    request = called.request(group)
    request.user_ids[:] = [CARA, DAN]
    answer = await refusal(called.call(writers.caller("admin"), request))
    assert answer.name == ("FAILED_PRECONDITION", "MEMBER_LIMIT_EXCEEDED")
    assert answer.precondition == ("MEMBER_LIMIT_EXCEEDED",)
    assert writers.facts(group) == before
    assert (await writers.change(group, [CARA, BEN])).changed_count == 1
    assert (await writers.change(group, [CARA, BEN])).changed_count == 0
    new = membership_pb2.GroupCreateRequest(
        request_id=uuid7(), member_user_ids=[BEN, CARA], settings=types_pb2.GroupSettings(member_limit=2)
    )
    created = await refusal(method("CreateGroup").call(writers.caller("gateway"), new))
    assert created.name == ("FAILED_PRECONDITION", "MEMBER_LIMIT_EXCEEDED")


async def test_an_owner_leaves_as_the_last_one_only(writers: Writers, group: ConversationId) -> None:
    before = writers.facts(group)
    called = method("AdminChangeMembers")
    request = called.request(group)
    request.kind = KIND.KIND_REMOVE
    request.user_ids[:] = [BEN, ANA]
    for answer in (
        await left_refused(writers, group),
        await refusal(called.call(writers.caller("admin"), request)),
    ):
        assert answer.name == ("FAILED_PRECONDITION", "OWNER_CANNOT_LEAVE")
        assert answer.precondition == ("OWNER_CANNOT_LEAVE",)
    assert writers.facts(group) == before
    await writers.user(BEN).leave_group(group)
    await writers.user(CARA).leave_group(group)
    assert (await writers.user(ANA).leave_group(group)).member.left_at == 4
    again = await writers.change(group, [DAN, CARA], owner_user_id=CARA)
    assert (again.member_count, again.seq) == (2, 5)
    found = await method("GetGroup").call(writers.caller("admin"), method("GetGroup").request(group))
    assert found.owner_user_id == CARA


async def test_a_named_owner_is_one_of_the_people_of_an_empty_group(writers: Writers, group: ConversationId) -> None:
    called = method("AdminChangeMembers")
    for owner, kind in ((BEN, KIND.KIND_ADD), (DAN, KIND.KIND_ADD), (ANA, KIND.KIND_REMOVE)):
        request = called.request(group)
        request.kind = kind
        request.user_ids[:] = [DAN]
        request.owner_user_id = owner
        answer = await refusal(called.call(writers.caller("admin"), request))
        assert (answer.reason, answer.fields) == ("INVALID_ARGUMENT", ("owner_user_id",))


async def test_a_version_that_is_not_the_expected_one_is_told_and_takes_no_seq(
    writers: Writers, group: ConversationId
) -> None:
    ana = writers.user(ANA)
    frozen = await ana.freeze_delivery(group)
    await writers.change(group, [DAN])
    before = writers.facts(group)
    for answer in await sent_refused(writers, message(group, expected_membership_version=frozen.membership_version)):
        assert answer.name == ("ABORTED", "MEMBERSHIP_CHANGED")
        assert answer.retry
        assert answer.metadata == {"membership_version": "2"}
    assert writers.facts(group) == before
    now = (await ana.freeze_delivery(group)).membership_version
    called, request = method("SendMessage"), writer_pb2.SendMessageRequest()
    request.message.CopyFrom(message(group, expected_membership_version=now))
    assert (await called.call(writers.caller("gateway"), request)).membership_version == 2


async def test_an_id_with_other_content_is_told_so(writers: Writers, group: ConversationId) -> None:
    used = uuid7()
    first = await method("SendMessage").call(
        writers.caller("gateway"), writer_pb2.SendMessageRequest(message=message(group, client_message_id=used))
    )
    before = writers.facts(group)
    for answer in await sent_refused(writers, message(group, client_message_id=used, body=b"other")):
        assert answer.name == ("ALREADY_EXISTS", "IDEMPOTENCY_KEY_REUSED")
    assert writers.facts(group) == before
    assert first.seq == 2


async def test_a_frozen_group_takes_no_send_and_no_newcomer_but_lets_people_go(
    writers: Writers, group: ConversationId
) -> None:
    instance, keys, _ = writers.keys(group)
    policy = instance.hget(keys.grpmeta, "policy")
    instance.hset(keys.grpmeta, "policy", b"\x01" + policy[1:])
    before = writers.facts(group)
    called = method("AdminChangeMembers")
    request = called.request(group)
    request.user_ids[:] = [DAN]
    authorize, freeze = method("AuthorizeSend"), method("FreezeDelivery")
    gateway = writers.caller("gateway")
    for answer in (
        *await sent_refused(writers, message(group)),
        await refusal(called.call(writers.caller("admin"), request)),
        await refusal(authorize.call(gateway, authorize.request(group))),
        await refusal(freeze.call(gateway, freeze.request(group))),
    ):
        assert answer.name == ("FAILED_PRECONDITION", "GROUP_FROZEN")
        assert answer.precondition == ("GROUP_FROZEN",)
    assert writers.facts(group) == before
    assert (await writers.user(BEN).leave_group(group)).member.left_at == 2
    assert (await writers.change(group, [CARA], remove=True)).seq == 3
    assert len((await writers.user(ANA).pull_history(group)).messages) == 3
    # Who is outside is not told that the group is frozen.
    stranger = await refusal(authorize.call(gateway, authorize.request(group), metadata=as_actor(acting(DAN))))
    assert stranger.reason == "PERMISSION_DENIED"


async def test_an_id_from_before_the_kept_answers_is_never_executed(writers: Writers, group: ConversationId) -> None:
    instance, _, bucket = writers.keys(group)
    now = time.time_ns() // 1_000_000
    old = (now - HOUR_MS).to_bytes(6, "big") + uuid7()[6:]
    known = message(group)
    request = writer_pb2.SendMessageRequest(message=known)
    first = await method("SendMessage").call(writers.caller("gateway"), request)
    low = instance.hget(bucket.meta, "low")
    instance.hset(bucket.meta, "low", now - HOUR_MS // 2)
    before = writers.facts(group)
    try:
        leave = method("LeaveGroup").request(group)
        change = method("AdminChangeMembers").request(group)
        leave.request_id = change.request_id = old
        ben = as_actor(acting(BEN))
        for answer in (
            *await sent_refused(writers, message(group, client_message_id=old)),
            await refusal(method("LeaveGroup").call(writers.caller("gateway"), leave, metadata=ben)),
            await refusal(method("AdminChangeMembers").call(writers.caller("admin"), change)),
        ):
            assert answer.name == ("FAILED_PRECONDITION", "REQUEST_TOO_OLD")
        assert writers.facts(group) == before
        # An id that is found is answered, however old; one that carries no time cannot be too old.
        assert await method("SendMessage").call(writers.caller("gateway"), request) == first
        plain = writer_pb2.SendMessageRequest(message=message(group, client_message_id=b"\x01" * 16))
        assert (await method("SendMessage").call(writers.caller("gateway"), plain)).seq == first.seq + 1
    finally:
        instance.hset(bucket.meta, "low", low)


async def test_a_version_below_the_change_log_is_expired(writers: Writers, group: ConversationId) -> None:
    for number in range(3):
        await writers.change(group, [person(number)])
    instance, keys, _ = writers.keys(group)
    instance.xtrim(keys.grpchg, minid="4-0", approximate=False)
    instance.hset(keys.grpmeta, "chglow", 3)
    since, recipients = method("MembersSince", "gateway"), method("RecipientsForVersion")
    for answer in (
        await refusal(since.call(writers.caller("gateway"), since.request(group))),
        await refusal(recipients.call(writers.caller("session"), recipients.request(group))),
    ):
        assert answer.name == ("OUT_OF_RANGE", "MEMBERSHIP_VERSION_EXPIRED")
    assert set(await writers.recipients(group, 3)) == {ANA, BEN, CARA, person(0), person(1)}
    assert [change.version for change in (await writers.user(ANA).members_since(group, 3)).changes] == [4]


async def test_a_refused_batch_of_a_stream_takes_seqs_for_the_good_ones_only(
    writers: Writers, group: ConversationId
) -> None:
    stranger = acting(DAN).to_message()
    sent = writer_pb2.SendMessagesRequest(
        frame_number=3,
        actors=[acting(ANA, TENANT).to_message(), stranger],
        messages=[message(group, actor_index=number % 2) for number in range(10)],
    )
    (answer,) = await method("SendMessages").call(writers.caller("gateway"), sent)
    assert answer.frame_number == 3
    by_index = {result.index: result for result in answer.results}
    assert sorted(by_index) == list(range(10))
    assert [by_index[number].client_message_id for number in range(10)] == [
        each.client_message_id for each in sent.messages
    ]
    assert [by_index[number].seq for number in range(0, 10, 2)] == [2, 3, 4, 5, 6]
    for number in range(1, 10, 2):
        assert of_status(by_index[number].status).reason == "PERMISSION_DENIED"
    assert (await writers.user(ANA).get_visible_range(group)).head_seq == 6

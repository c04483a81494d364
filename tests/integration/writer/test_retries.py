"""Ids that come again: from other callers and devices, in other places, after a leave or a refusal (contracts.md,
"Idempotency"). That replies which were really cut are answered again is in test_cut_replies.py.
"""

from __future__ import annotations

import grpc
import pytest
from tests.support.refusals import refusal
from tests.support.writer_methods import frame, message, method
from tests.support.writers import (
    ANA,
    BEN,
    CARA,
    DAN,
    TENANT,
    Writers,
    acting,
    as_actor,
    as_principal,
    until,
)

from qim.membership.v1 import membership_pb2
from qim.writer.v1 import writer_pb2
from qim_common.identity import Actor, Principal, PrincipalKind
from qim_common.ids import ConversationId, DeviceId, uuid7

pytestmark = pytest.mark.server

BACK_END = Principal(PrincipalKind.BACKEND, "dev-backend", TENANT, BEN)
KIND = membership_pb2.AdminMembershipChange
PHONE = Actor(TENANT, BEN, DeviceId(b"phone" + bytes(11)))
BENS = as_actor(acting(BEN))
ANAS = as_actor(acting(ANA))


async def test_the_same_id_from_another_caller_is_another_request(writers: Writers, group: ConversationId) -> None:
    gateway, admin = writers.caller("gateway"), writers.caller("admin")
    send, leave, change, create = (
        method(name) for name in ("SendMessage", "LeaveGroup", "AdminChangeMembers", "CreateGroup")
    )
    used = uuid7()
    sent = writer_pb2.SendMessageRequest(message=message(group, client_message_id=used))
    assert (await send.call(gateway, sent, metadata=BENS)).seq == 2
    assert (await send.call(gateway, sent, metadata=ANAS)).seq == 3
    adding = KIND(request_id=used, group_id=group, kind=KIND.KIND_ADD, user_ids=[DAN])
    first = await change.call(admin, adding)
    second = await change.call(admin, adding, metadata=as_principal(BACK_END))
    assert (first.changed_count, second.changed_count) == (1, 0)
    leaving = writer_pb2.LeaveGroupRequest(request_id=used, group_id=group)
    ben = await leave.call(gateway, leaving, metadata=BENS)
    cara = await leave.call(gateway, leaving, metadata=as_actor(acting(CARA)))
    assert [row.user_id for answer in (ben, cara) for row in answer.members] == [BEN, CARA]
    assert cara.membership_version == ben.membership_version + 1
    new = ConversationId(b"\x02" + uuid7()[1:])
    creating = membership_pb2.GroupCreateRequest(request_id=used, group_id=new, member_user_ids=[CARA])
    await create.call(gateway, creating, metadata=BENS)
    answer = await refusal(create.call(gateway, creating, metadata=ANAS))
    assert answer.reason == "GROUP_ALREADY_EXISTS"
    derived = membership_pb2.GroupCreateRequest(request_id=used)
    groups = [(await create.call(gateway, derived, metadata=who)).group_id for who in (ANAS, BENS)]
    assert len(set(groups)) == 2


async def test_the_same_id_in_another_conversation_is_another_request(writers: Writers, group: ConversationId) -> None:
    other = (await writers.user(ANA).create_group([BEN])).group
    used = uuid7()
    for place in (group, other):
        request = writer_pb2.SendMessageRequest(message=message(place, client_message_id=used, body=place))
        assert (await method("SendMessage").call(writers.caller("gateway"), request)).conversation_id == place


async def test_a_retry_from_another_device_of_the_same_person_gets_the_first_answer(
    writers: Writers, group: ConversationId
) -> None:
    request = writer_pb2.SendMessageRequest(message=message(group))
    called = method("SendMessage")
    first = await called.call(writers.caller("gateway"), request, metadata=BENS)
    assert await called.call(writers.caller("gateway"), request, metadata=as_actor(PHONE)) == first
    (found,) = (await writers.user(BEN).get_messages(group, [first.seq])).messages
    assert found.device == acting(BEN).device


async def test_the_same_id_twice_in_one_frame_takes_one_seq(writers: Writers, group: ConversationId) -> None:
    one, two = message(group), message(group)
    odd = writer_pb2.OutgoingMessage()
    odd.CopyFrom(one)
    odd.body = b"other"
    (answer,) = await method("SendMessages").call(writers.caller("gateway"), frame(one, two, one, odd, two))
    by_index = sorted(answer.results, key=lambda result: result.index)
    assert [result.seq for result in by_index] == [2, 3, 2, 0, 3]
    assert by_index[3].status.code == grpc.StatusCode.ALREADY_EXISTS.value[0]
    assert (await writers.user(ANA).get_visible_range(group)).head_seq == 3


async def test_a_client_that_gave_up_waiting_gets_the_first_answer_later(
    writers: Writers, group: ConversationId
) -> None:
    called = method("LeaveGroup")
    request = called.request(group)
    before = writers.facts(group)
    call = writers.caller("gateway").writer.LeaveGroup(request, timeout=5, metadata=BENS)
    await call.wait_for_connection()
    call.cancel()
    await until(lambda: call.done())
    first = await called.call(writers.caller("gateway"), request, metadata=BENS)
    after = writers.facts(group)
    assert first.members[0].left_at_conversation_seq == 2
    assert await called.call(writers.caller("gateway"), request, metadata=BENS) == first
    assert writers.facts(group) == after != before


async def test_leaving_twice_succeeds_without_an_event_also_after_a_rejoin(
    writers: Writers, group: ConversationId
) -> None:
    ben = writers.user(BEN)
    used = uuid7()
    first = await ben.leave_group(group, request_id=used)
    again = await ben.leave_group(group)
    assert again.member == first.member
    assert (await writers.change(group, [BEN])).seq == 3
    assert await ben.leave_group(group, request_id=used) == first
    assert (await writers.user(ANA).get_visible_range(group)).head_seq == 3
    await ben.authorize_send(group)
    assert (await ben.leave_group(group)).member.left_at == 4


async def test_a_refused_call_is_judged_anew_under_the_same_id(writers: Writers, group: ConversationId) -> None:
    request = writer_pb2.SendMessageRequest(message=message(group))
    called = method("SendMessage")
    dan = as_actor(acting(DAN))
    answer = await refusal(called.call(writers.caller("gateway"), request, metadata=dan))
    assert answer.reason == "PERMISSION_DENIED"
    await writers.change(group, [DAN])
    assert (await called.call(writers.caller("gateway"), request, metadata=dan)).seq == 3

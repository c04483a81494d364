"""Retries after an answer that was lost on the way get the first answer, once and for all (design.md invariant 8).

The connection is really cut: the request went through, the bytes of the answer did not come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.refusals import failure, refusal
from tests.support.writer_methods import frame, message, method
from tests.support.writers import (
    ANA,
    BEN,
    CARA,
    DAN,
    TENANT,
    Caller,
    Pairs,
    Writers,
    acting,
    as_actor,
    as_principal,
    until,
)

from qim.membership.v1 import membership_pb2
from qim.writer.v1 import writer_pb2
from qim_common.identity import Actor, Principal, PrincipalKind
from qim_common.ids import ConversationId, DeviceId, derived_group_id, uuid7
from qim_devkit.pki import CertFiles

pytestmark = pytest.mark.server

REUSED = ("ALREADY_EXISTS", "IDEMPOTENCY_KEY_REUSED")
BACK_END = Principal(PrincipalKind.BACKEND, "dev-backend", TENANT, BEN)
KIND = membership_pb2.AdminMembershipChange
PHONE = Actor(TENANT, BEN, DeviceId(b"phone" + bytes(11)))


@pytest.fixture
async def proxy(writers: Writers) -> AsyncIterator[CuttingProxy]:
    async with cutting_proxy(writers.address) as running:
        yield running


@dataclass(frozen=True)
class Case:
    """One mutating call; `other` changes its content."""

    name: str
    request: Callable[[ConversationId], Any]
    other: Callable[[Any], None]
    metadata: Pairs

    def files(self, writers: Writers) -> CertFiles:
        role, name = ("admin", "admin-0") if self.name == "AdminChangeMembers" else ("gateway", "dev-gateway")
        return writers.suite.pki.issue(role, name)


def _more_people(request: Any) -> None:
    (request.user_ids if hasattr(request, "user_ids") else request.member_user_ids).append(DAN)


def _other_body(request: Any) -> None:
    (request.message if hasattr(request, "message") else request.messages[0]).body = b"other"


def _remove(request: Any) -> None:
    request.kind = KIND.KIND_REMOVE


def _change(kind: Any, *people: bytes) -> Callable[[ConversationId], Any]:
    return lambda group: KIND(request_id=uuid7(), group_id=group, kind=kind, user_ids=people)


BENS = as_actor(acting(BEN))
ANAS = as_actor(acting(ANA))
CASES = [
    Case(
        "CreateGroup",
        lambda _: membership_pb2.GroupCreateRequest(request_id=uuid7(), member_user_ids=[ANA, CARA]),
        _more_people,
        BENS,
    ),
    Case("AdminChangeMembers", _change(KIND.KIND_ADD, DAN), _remove, as_principal()),
    Case("AdminChangeMembers", _change(KIND.KIND_REMOVE, CARA), _more_people, as_principal()),
    Case("SendMessage", lambda g: writer_pb2.SendMessageRequest(message=message(g)), _other_body, BENS),
    Case("LeaveGroup", lambda g: writer_pb2.LeaveGroupRequest(request_id=uuid7(), group_id=g), _more_people, BENS),
]
IDS = ["CreateGroup", "add", "remove", "SendMessage", "LeaveGroup"]


def _place(request: Any, case: Case, group: ConversationId) -> ConversationId:
    return derived_group_id(TENANT, BEN, request.request_id) if case.name == "CreateGroup" else group


@pytest.mark.parametrize("case", CASES, ids=IDS)
async def test_a_retry_after_a_cut_reply_returns_the_first_answer_without_a_second_effect(
    writers: Writers, proxy: CuttingProxy, group: ConversationId, case: Case
) -> None:
    called = method(case.name)
    caller = Caller(proxy.address, case.files(writers), initial_reconnect_backoff_ms=10)
    request = case.request(group)
    place = _place(request, case, group)
    await caller.provider.channel.channel_ready()
    before = writers.facts(place)

    proxy.swallows = True
    lost = called.call(caller, request, metadata=case.metadata)
    waiting = asyncio.ensure_future(failure(lost))
    await until(lambda: writers.facts(place) != before and proxy.swallowed > 0)
    await proxy.cut()
    assert (await waiting).code() is grpc.StatusCode.UNAVAILABLE

    done = writers.facts(place)
    first = await called.call(caller, request, metadata=case.metadata)
    assert writers.facts(place) == done
    await _move_on(writers, place)
    moved = writers.facts(place)
    for _ in range(2):
        assert await called.call(writers.caller(called.role), request, metadata=case.metadata) == first
    assert writers.facts(place) == moved
    await _is_what_happened(writers, place, request, first)
    await caller.provider.close()


async def _move_on(writers: Writers, group: ConversationId) -> None:
    """Everybody comes, speaks and goes, so that the present state differs from that of the first answer."""
    await writers.change(group, [ANA, BEN, CARA, DAN])
    await writers.user(BEN).send_to(group, b"meanwhile")
    await writers.change(group, [CARA, DAN], remove=True)


async def _is_what_happened(writers: Writers, group: ConversationId, request: Any, answer: Any) -> None:
    changes = (await writers.user(ANA).members_since(group, 1)).changes
    if isinstance(answer, writer_pb2.SendMessageResponse):
        (found,) = (await writers.user(ANA).get_messages(group, [answer.seq])).messages
        assert found.client_message_id == request.message.client_message_id
        assert (found.time_ms, found.membership_version) == (answer.time_ms, answer.membership_version)
    elif isinstance(answer, membership_pb2.GroupCreated):
        assert (answer.group_id, answer.membership_version, answer.member_count) == (group, 1, 3)
    elif isinstance(answer, membership_pb2.MembershipVersion):
        (event,) = (change for change in changes if change.version == answer.version)
        assert (event.seq, event.time_ms, len(event.people)) == (answer.seq, answer.time_ms, answer.changed_count)
        assert len(await writers.recipients(group, answer.version)) == answer.member_count
    else:
        (event,) = (change for change in changes if change.version == answer.membership_version)
        (row,) = answer.members
        assert (row.user_id, row.left_at_conversation_seq, event.people) == (BEN, event.seq, (BEN,))


@pytest.mark.parametrize("case", CASES[:4], ids=IDS[:4])
async def test_the_same_id_with_other_content_never_gets_the_first_answer(
    writers: Writers, group: ConversationId, case: Case
) -> None:
    called = method(case.name)
    caller = writers.caller(called.role)
    request = case.request(group)
    await called.call(caller, request, metadata=case.metadata)
    before = writers.facts(_place(request, case, group))
    changed = type(request)()
    changed.CopyFrom(request)
    case.other(changed)
    assert (await refusal(called.call(caller, changed, metadata=case.metadata))).name == REUSED
    assert writers.facts(_place(request, case, group)) == before


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


async def test_a_stream_that_is_cut_gets_its_first_answers_on_the_next_one(
    writers: Writers, proxy: CuttingProxy, group: ConversationId
) -> None:
    caller = Caller(proxy.address, writers.suite.gateway_files(), initial_reconnect_backoff_ms=10)
    await caller.provider.channel.channel_ready()
    sent = frame(*(message(group, body=b"%d" % number) for number in range(100)), user=BEN, frame_number=1)
    proxy.swallows = True
    stream = caller.writer.SendMessages()
    await stream.write(sent)
    await until(lambda: int(writers.keys(group)[0].get(writers.keys(group)[1].msgcseq)) == 101)
    await proxy.cut()
    assert (await failure(stream.read())).code() is grpc.StatusCode.UNAVAILABLE
    await writers.user(BEN).leave_group(group)
    done = writers.facts(group)
    (answer,) = await method("SendMessages").call(caller, sent)
    assert [(result.index, result.seq) for result in answer.results] == [(n, n + 2) for n in range(100)]
    assert all(result.membership_version == 1 and not result.HasField("status") for result in answer.results)
    assert writers.facts(group) == done
    await caller.provider.close()


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

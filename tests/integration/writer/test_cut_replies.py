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
from tests.support.writer_methods import Method, frame, message, method
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

from qim.common.v1 import types_pb2
from qim.membership.v1 import membership_pb2
from qim.writer.v1 import group_control_pb2, writer_pb2
from qim_common.identity import PRINCIPAL_KEY, Actor, Principal, PrincipalKind
from qim_common.ids import ConversationId, DeviceId, derived_group_id, uuid7
from qim_devkit.pki import CertFiles
from qim_devkit.provision import GATEWAY

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

    @property
    def called(self) -> Method:
        """The method, as its caller's role has it."""
        return method(self.name, "admin" if self.metadata[0][0] == PRINCIPAL_KEY else "gateway")

    def files(self, writers: Writers) -> CertFiles:
        """The certificate of its caller."""
        role = self.called.role
        return writers.suite.pki.issue(role, "admin-0" if role == "admin" else GATEWAY)

    def __str__(self) -> str:
        return str(self.called)


def _more_people(request: Any) -> None:
    (request.user_ids if hasattr(request, "user_ids") else request.member_user_ids).append(DAN)


def _other_body(request: Any) -> None:
    (request.message if hasattr(request, "message") else request.messages[0]).body = b"other"


def _remove(request: Any) -> None:
    request.kind = KIND.KIND_REMOVE


def _other_seq(request: Any) -> None:
    request.up_to_seq = 2


def _other_owner(request: Any) -> None:
    request.new_owner_user_id = CARA


def _other_settings(request: Any) -> None:
    request.settings.member_limit = 51


def _other_freeze(request: Any) -> None:
    request.frozen = False


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
CONTROL = group_control_pb2
STATE_CASES = [
    Case(
        "ClearHistory",
        lambda g: writer_pb2.ClearHistoryRequest(request_id=uuid7(), conversation_id=g, up_to_seq=1),
        _other_seq,
        BENS,
    ),
    Case(
        "ClearGroupHistory",
        lambda g: writer_pb2.ClearGroupHistoryRequest(request_id=uuid7(), group_id=g, up_to_seq=1),
        _other_seq,
        ANAS,
    ),
    Case(
        "TransferOwnership",
        lambda g: writer_pb2.TransferOwnershipRequest(request_id=uuid7(), group_id=g, new_owner_user_id=BEN),
        _other_owner,
        ANAS,
    ),
    Case(
        "TransferOwnership",
        lambda g: CONTROL.ControlTransferOwnershipRequest(request_id=uuid7(), group_id=g, new_owner_user_id=BEN),
        _other_owner,
        as_principal(),
    ),
    Case(
        "ClearGroupHistory",
        lambda g: CONTROL.ControlClearGroupHistoryRequest(request_id=uuid7(), group_id=g, up_to_seq=1),
        _other_seq,
        as_principal(),
    ),
    Case(
        "UpdateGroupSettings",
        lambda g: CONTROL.ControlUpdateGroupSettingsRequest(
            request_id=uuid7(), group_id=g, settings=types_pb2.GroupSettings(member_limit=50)
        ),
        _other_settings,
        as_principal(),
    ),
    Case(
        "FreezeGroup",
        lambda g: CONTROL.ControlFreezeGroupRequest(request_id=uuid7(), group_id=g, frozen=True),
        _other_freeze,
        as_principal(),
    ),
]
"""Changes without a seq: they have the group's revision."""


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


@pytest.mark.parametrize("case", STATE_CASES, ids=str)
async def test_a_change_without_a_seq_is_made_once_however_often_it_is_asked_for(
    writers: Writers, proxy: CuttingProxy, group: ConversationId, case: Case
) -> None:
    called = case.called
    caller = Caller(proxy.address, case.files(writers), initial_reconnect_backoff_ms=10)
    request = case.request(group)
    await caller.provider.channel.channel_ready()
    begin = await _state(writers, group)

    proxy.swallows = True
    waiting = asyncio.ensure_future(failure(called.call(caller, request, metadata=case.metadata)))

    async def done() -> bool:
        return proxy.swallowed > 0 and await _state(writers, group) != begin

    await until(done)
    await proxy.cut()
    assert (await waiting).code() is grpc.StatusCode.UNAVAILABLE

    made = await _state(writers, group)
    first = await called.call(caller, request, metadata=case.metadata)
    assert await _state(writers, group) == made
    for undo in (
        CONTROL.ControlFreezeGroupRequest(request_id=uuid7(), group_id=group, frozen=False),
        CONTROL.ControlTransferOwnershipRequest(request_id=uuid7(), group_id=group, new_owner_user_id=CARA),
        CONTROL.ControlUpdateGroupSettingsRequest(request_id=uuid7(), group_id=group),
        CONTROL.ControlClearGroupHistoryRequest(request_id=uuid7(), group_id=group),
    ):
        name = type(undo).__name__.removeprefix("Control").removesuffix("Request")
        await method(name, "admin").call(writers.caller("admin"), undo)
    moved = await _state(writers, group)
    for _ in range(2):
        assert await called.call(writers.caller(called.role), request, metadata=case.metadata) == first
    changed = type(request)()
    changed.CopyFrom(request)
    case.other(changed)
    answer = await refusal(called.call(writers.caller(called.role), changed, metadata=case.metadata))
    assert answer.name == REUSED
    assert await _state(writers, group) == moved
    await caller.provider.close()


async def _state(writers: Writers, group: ConversationId) -> tuple[Any, int]:
    """What changes without a seq change: the group as operators see it, and Ben's own clear point."""
    get = method("GetGroup")
    seen = await get.call(writers.caller("admin"), get.request(group))
    return seen, (await writers.user(BEN).get_visible_range(group)).own_clear_seq


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

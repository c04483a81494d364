"""Ids that are none: every id of every request, refused by name of its field, and nothing is changed by it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.refusals import of_status, refusal
from tests.support.writer_methods import frame, message, method
from tests.support.writers import ANA, BEN, OPERATOR, Writers, as_principal

from qim.membership.v1 import membership_pb2
from qim.writer.v1 import writer_pb2
from qim_common.ids import ConversationId

pytestmark = pytest.mark.server

INVALID = ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
MISSING, SHORT, LONG, ZERO = b"", bytes(15), b"x" * 17, bytes(16)
NO_ID = (MISSING, SHORT, LONG, ZERO)
ZERO_GROUP = b"\x02" + bytes(15)
NO_GROUP = (*NO_ID, ZERO_GROUP, b"\x01" + b"d" * 15, b"\x03" + b"g" * 15, b"\xff" * 16)
NO_CONVERSATION = (*NO_ID, ZERO_GROUP, b"\x01" + bytes(15), b"\x03" + b"g" * 15, b"\xff" * 16)

OPERATORS_CHANGES = ("UpdateGroupSettings", "TransferOwnership", "ClearGroupHistory", "FreezeGroup")

PLACES = [
    ("CreateGroup", "", "request_id", NO_ID),
    ("CreateGroup", "", "group_id", [bad for bad in NO_GROUP if bad]),
    ("CreateGroup", "", "member_user_ids", NO_ID),
    ("AuthorizeSend", "", "conversation_id", NO_CONVERSATION),
    ("AuthorizeHistory", "", "conversation_id", NO_CONVERSATION),
    ("MembersPage", "", "group_id", NO_GROUP),
    ("FreezeDelivery", "", "conversation_id", NO_CONVERSATION),
    ("LeaveGroup", "", "request_id", NO_ID),
    ("LeaveGroup", "", "group_id", NO_GROUP),
    ("PullHistory", "", "conversation_id", NO_CONVERSATION),
    ("GetMessages", "", "conversation_id", NO_CONVERSATION),
    ("GetVisibleRange", "", "conversation_id", NO_CONVERSATION),
    ("MembersSince", "gateway", "group_id", NO_GROUP),
    ("MembersSince", "session", "group_id", NO_GROUP),
    ("RecipientsForVersion", "", "group_id", NO_CONVERSATION),
    ("ConversationStates", "", "user_id", NO_ID),
    ("DeliveredPage", "", "user_id", NO_ID),
    ("DeliveredPage", "", "conversation_id", NO_CONVERSATION),
    ("AdminChangeMembers", "", "request_id", NO_ID),
    ("AdminChangeMembers", "", "group_id", NO_GROUP),
    ("AdminChangeMembers", "", "user_ids", NO_ID),
    ("AdminChangeMembers", "", "owner_user_id", [bad for bad in NO_ID if bad]),
    *((name, "gateway", "request_id", NO_ID) for name in ("ClearHistory", "ClearGroupHistory", "TransferOwnership")),
    ("ClearHistory", "", "conversation_id", NO_CONVERSATION),
    ("ClearGroupHistory", "gateway", "group_id", NO_GROUP),
    ("TransferOwnership", "gateway", "group_id", NO_GROUP),
    ("TransferOwnership", "gateway", "new_owner_user_id", NO_ID),
    *((name, "admin", "request_id", NO_ID) for name in OPERATORS_CHANGES),
    *((name, "admin", "group_id", NO_GROUP) for name in OPERATORS_CHANGES),
    ("TransferOwnership", "admin", "new_owner_user_id", NO_ID),
    ("ExplainVisibility", "", "group_id", NO_GROUP),
    ("ExplainVisibility", "", "user_id", NO_ID),
    ("GroupTimeline", "", "group_id", NO_GROUP),
    ("GroupTimeline", "", "user_id", [bad for bad in NO_ID if bad]),
    ("GetGroup", "", "group_id", NO_GROUP),
    ("ListMembers", "", "group_id", NO_GROUP),
]


@pytest.mark.parametrize(("name", "role", "field", "values"), PLACES)
async def test_an_id_that_is_none_is_refused_by_its_field(
    writers: Writers, group: ConversationId, name: str, role: str, field: str, values: list[bytes]
) -> None:
    called = method(name, role)
    before = writers.facts(group)
    for bad in values:
        request: Any = called.request(group)
        where = field
        if isinstance(getattr(request, field), bytes):
            setattr(request, field, bad)
        else:
            getattr(request, field)[:] = [BEN, bad]
            where = f"{field}[1]"
        answer = await refusal(called.call(writers.caller(called.role), request))
        assert (answer.name, answer.fields) == (INVALID, (where,)), bad
    assert writers.facts(group) == before


async def test_a_list_of_conversations_names_the_one_at_fault(writers: Writers, group: ConversationId) -> None:
    called = method("ConversationStates")
    for bad in NO_CONVERSATION:
        request = called.request(group)
        request.conversations.add(conversation_id=bad)
        answer = await refusal(called.call(writers.caller("session"), request))
        assert (answer.name, answer.fields) == (INVALID, ("conversations[1]",))


@pytest.mark.parametrize("name", ["MembersSince", "RecipientsForVersion", "ConversationStates", "DeliveredPage"])
async def test_the_session_service_names_a_tenant(writers: Writers, group: ConversationId, name: str) -> None:
    called = method(name, "session")
    request = called.request(group)
    request.tenant_id = 0
    answer = await refusal(called.call(writers.caller("session"), request))
    assert (answer.name, answer.fields) == (INVALID, ("tenant_id",))


async def test_a_gateway_names_no_tenant_beside_its_actors(writers: Writers, group: ConversationId) -> None:
    called = method("MembersSince", "gateway")
    request = called.request(group)
    request.tenant_id = 2
    answer = await refusal(called.call(writers.caller("gateway"), request))
    assert (answer.name, answer.fields) == (INVALID, ("tenant_id",))


BAD_MESSAGES: list[tuple[str, dict[str, Any]]] = [
    *(("conversation_id", {"conversation_id": bad}) for bad in NO_CONVERSATION),
    *(("client_message_id", {"client_message_id": bad}) for bad in NO_ID),
    *(("peer_user_id", {"conversation_id": b"", "peer_user_id": bad}) for bad in (SHORT, LONG, ZERO)),
    ("peer_user_id", {"peer_user_id": BEN}),  # beside a conversation
]


@pytest.mark.parametrize(("field", "fields"), BAD_MESSAGES)
async def test_a_message_with_an_id_that_is_none_takes_no_seq(
    writers: Writers, group: ConversationId, field: str, fields: dict[str, Any]
) -> None:
    before = writers.facts(group)
    called = method("SendMessage")
    request = writer_pb2.SendMessageRequest(message=message(group, **fields))
    alone = await refusal(called.call(writers.caller("gateway"), request))
    (answer,) = await method("SendMessages").call(writers.caller("gateway"), frame(message(group, **fields)))
    assert writers.facts(group) == before
    streamed = of_status(answer.results[0].status)
    for refused in (alone, streamed):
        assert (refused.name, refused.fields) == (INVALID, (field,))


async def test_a_group_is_known_under_both_spellings_of_its_id(writers: Writers, group: ConversationId) -> None:
    raw = ConversationId(b"\0" + group[1:])
    ana = writers.user(ANA)
    sent = await ana.send_to(raw, b"raw")
    assert sent.conversation == group
    assert (await ana.pull_history(raw)).messages == (await ana.pull_history(group)).messages
    assert (await writers.change(raw, [ANA])).group_id == group
    answer = await refusal(
        method("CreateGroup").call(
            writers.caller("gateway"), membership_pb2.GroupCreateRequest(request_id=b"r" * 16, group_id=raw)
        )
    )
    assert answer.reason == "GROUP_ALREADY_EXISTS"


async def test_an_initiator_comes_from_a_back_end_only(writers: Writers, group: ConversationId) -> None:
    called = method("AdminChangeMembers")
    wire = OPERATOR.to_message()
    wire.initiator = ANA
    metadata = (("qim-principal-bin", wire.SerializeToString()),)
    answer = await refusal(called.call(writers.caller("admin"), called.request(group), metadata=metadata))
    assert answer.reason == "INTERNAL_IDENTITY_REQUIRED"
    await called.call(writers.caller("admin"), called.request(group), metadata=as_principal())

"""Values out of range: sizes, numbers, enums, tokens, forged control messages. Refused by name, and nothing changes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.refusals import Refusal, failure, of_status, refusal
from tests.support.writer_methods import frame, message, method
from tests.support.writers import ANA, BEN, OTHER_TENANT, SECONDS, Caller, Writers, acting, as_actor, person

from qim.common.v1 import types_pb2
from qim.membership.v1 import membership_pb2
from qim.writer.v1 import internal_pb2, writer_pb2
from qim_common.channels import MAX_MESSAGE_BYTES
from qim_common.ids import ConversationId, uuid7

pytestmark = pytest.mark.server

INVALID = ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
TOO_MANY = ("INVALID_ARGUMENT", "TOO_MANY_ITEMS")
PEOPLE = [person(number) for number in range(1001)]
KIND = membership_pb2.AdminMembershipChange
FAR = 2**64 - 1


async def refused(writers: Writers, name: str, group: bytes, role: str = "", **fields: Any) -> Refusal:
    called = method(name, role)
    request = called.request(ConversationId(group))
    for field, value in fields.items():
        if isinstance(value, list):
            getattr(request, field)[:] = value
        else:
            setattr(request, field, value)
    return await refusal(called.call(writers.caller(called.role), request))


NUMBERS = [
    ("MembersPage", "", "page_size", (0, 1001, 2**32 - 1)),
    ("ListMembers", "", "page_size", (0, 1001, 2**32 - 1)),
    ("PullHistory", "", "limit", (0, 1001, 2**32 - 1)),
    ("PullHistory", "", "from_seq", (2**53, FAR)),
    ("PullHistory", "", "direction", (0, 3, -1)),
    ("MembersSince", "gateway", "limit", (0, 1001, 2**32 - 1)),
    ("MembersSince", "session", "limit", (0, 1001)),
    ("MembersSince", "gateway", "membership_version", (0, 2, 2**53, FAR)),
    ("MembersSince", "session", "membership_version", (0, 2, 2**53, FAR)),
    ("RecipientsForVersion", "", "membership_version", (0, 2, 2**53, FAR)),
    ("RecipientsForVersion", "", "target_shard", (256, 65_536, 2**32 - 1)),
    ("DeliveredPage", "", "limit", (0, 1001, 2**32 - 1)),
    ("ClearHistory", "", "up_to_seq", (2**53, FAR)),
    ("ClearGroupHistory", "gateway", "up_to_seq", (2**53, FAR)),
    ("ClearGroupHistory", "admin", "up_to_seq", (2**53, FAR)),
    ("GroupTimeline", "", "page_size", (0, 1001, 2**32 - 1)),
    ("ExplainVisibility", "", "seq", (0, 2**53, FAR)),
    ("AdminChangeMembers", "", "kind", (0, 3, -1)),
    ("AdminChangeMembers", "", "leaver_history", (1,)),  # goes with removing only
]


@pytest.mark.parametrize(("name", "role", "field", "values"), NUMBERS)
async def test_a_number_out_of_its_range_is_refused_by_its_field(
    writers: Writers, group: ConversationId, name: str, role: str, field: str, values: tuple[int, ...]
) -> None:
    before = writers.facts(group)
    for value in values:
        answer = await refused(writers, name, group, role, **{field: value})
        assert (answer.name, answer.fields) == (INVALID, (field,)), value
    assert writers.facts(group) == before


async def test_seqs_that_are_none_are_refused(writers: Writers, group: ConversationId) -> None:
    for seqs in ([], [0], [1, 2**53], [FAR]):
        answer = await refused(writers, "GetMessages", group, seqs=seqs)
        assert (answer.name, answer.fields) == (INVALID, ("seqs",))


async def test_cursors_far_behind_the_head_are_taken(writers: Writers, group: ConversationId) -> None:
    session = writers.caller("session")
    request = method("DeliveredPage").request(group)
    request.after_seq = FAR
    assert not (await method("DeliveredPage").call(session, request)).entries
    states = method("ConversationStates").request(group)
    states.conversations[0].read_seq = states.conversations[0].hidden_seq = FAR
    (state,) = (await method("ConversationStates").call(session, states)).states
    assert (state.entry.unread_count, state.hidden) == (0, True)


async def test_an_empty_batch_is_refused(writers: Writers, group: ConversationId) -> None:
    for name, field in (("AdminChangeMembers", "user_ids"), ("ConversationStates", "conversations")):
        called = method(name)
        request = called.request(group)
        request.ClearField(field)
        answer = await refusal(called.call(writers.caller(called.role), request))
        assert (answer.name, answer.fields) == (INVALID, (field,))


async def test_a_batch_above_its_bound_is_refused_whole_and_one_at_it_is_taken(
    writers: Writers, group: ConversationId
) -> None:
    before = writers.facts(group)
    queries = [internal_pb2.ConversationQuery(conversation_id=group)] * 501
    session, admin = writers.caller("session"), writers.caller("admin")
    states = internal_pb2.ConversationStatesRequest(tenant_id=1, user_id=ANA, conversations=queries)
    for answer in (
        await refused(writers, "AdminChangeMembers", group, user_ids=PEOPLE),
        await refused(writers, "AdminChangeMembers", group, user_ids=[ANA] * 1001),
        await refused(writers, "CreateGroup", group, member_user_ids=PEOPLE),
        await refused(writers, "CreateGroup", group, member_user_ids=PEOPLE[:1000]),  # with the owner 1,001
        await refused(writers, "GetMessages", group, seqs=[1] * 1001),
        await refusal(method("ConversationStates").call(session, states)),
    ):
        assert answer.name == TOO_MANY
        assert answer.metadata["field"]
    assert writers.facts(group) == before
    del states.conversations[500:]
    assert len((await method("ConversationStates").call(session, states)).states) == 500
    assert (await writers.change(group, PEOPLE[:1000])).changed_count == 1000
    request = membership_pb2.GroupCreateRequest(request_id=uuid7(), member_user_ids=PEOPLE[:999])
    created = await method("CreateGroup").call(writers.caller("gateway"), request)
    assert created.member_count == 1000
    assert len((await method("ListMembers").call(admin, method("ListMembers").request(group))).members) == 10


BAD_SETTINGS: list[tuple[str, types_pb2.GroupSettings]] = [
    ("newcomer_history.policy", types_pb2.GroupSettings(newcomer_history={"policy": 4})),  # type: ignore[arg-type]
    ("newcomer_history.last_n", types_pb2.GroupSettings(newcomer_history={"policy": 2})),  # type: ignore[arg-type]
    ("newcomer_history.last_n", types_pb2.GroupSettings(newcomer_history={"policy": 2, "last_n": 10**9 + 1})),  # type: ignore[arg-type]
    ("newcomer_history.last_n", types_pb2.GroupSettings(newcomer_history={"policy": 2, "last_n": FAR})),  # type: ignore[arg-type]
    ("newcomer_history.last_n", types_pb2.GroupSettings(newcomer_history={"policy": 1, "last_n": 5})),  # type: ignore[arg-type]
    ("newcomer_history.last_n", types_pb2.GroupSettings(newcomer_history={"policy": 3, "last_n": 5})),  # type: ignore[arg-type]
    ("rejoin_history", types_pb2.GroupSettings(rejoin_history=3)),  # type: ignore[arg-type]
    ("leaver_history", types_pb2.GroupSettings(leaver_history=-1)),  # type: ignore[arg-type]
    ("member_limit", types_pb2.GroupSettings(member_limit=100_001)),
    ("member_limit", types_pb2.GroupSettings(member_limit=2**32 - 1)),
    ("broadcast_max_members", types_pb2.GroupSettings(broadcast_max_members=501)),
    ("retention_days", types_pb2.GroupSettings(retention_days=36_501)),
]


@pytest.mark.parametrize(("field", "settings"), BAD_SETTINGS)
async def test_a_setting_out_of_its_range_creates_nothing(
    writers: Writers, field: str, settings: types_pb2.GroupSettings
) -> None:
    group = ConversationId(b"\x02" + uuid7()[1:])
    request = membership_pb2.GroupCreateRequest(request_id=uuid7(), group_id=group, settings=settings)
    answer = await refusal(method("CreateGroup").call(writers.caller("gateway"), request))
    assert (answer.name, answer.fields) == (INVALID, (f"settings.{field}",))
    assert writers.facts(group) == {}


@pytest.mark.parametrize(("field", "settings"), BAD_SETTINGS)
async def test_a_setting_out_of_its_range_changes_nothing(
    writers: Writers, group: ConversationId, field: str, settings: types_pb2.GroupSettings
) -> None:
    before = writers.facts(group)
    called = method("UpdateGroupSettings")
    request = called.request(group)
    request.settings.CopyFrom(settings)
    answer = await refusal(called.call(writers.caller("admin"), request))
    assert (answer.name, answer.fields) == (INVALID, (f"settings.{field}",))
    assert writers.facts(group) == before


async def test_a_removals_own_policy_is_a_known_one(writers: Writers, group: ConversationId) -> None:
    answer = await refused(writers, "AdminChangeMembers", group, kind=KIND.KIND_REMOVE, leaver_history=3)
    assert (answer.name, answer.fields) == (INVALID, ("leaver_history",))


FORGED: list[tuple[str, dict[str, Any]]] = [
    ("type", {"type": types_pb2.MESSAGE_TYPE_CONTROL}),
    ("type", {"type": 3}),
    ("type", {"type": -1}),
    ("custom_type", {"custom_type": "qim."}),
    ("custom_type", {"custom_type": "qim.membership.v1"}),
    ("custom_type", {"custom_type": "t" * 129}),
    ("custom_type", {"custom_type": "é" * 65}),  # 130 bytes
    ("expected_membership_version", {"expected_membership_version": 2**48}),
    ("expected_membership_version", {"expected_membership_version": FAR}),
]


@pytest.mark.parametrize(("field", "fields"), FORGED)
async def test_a_forged_or_malformed_message_takes_no_seq(
    writers: Writers, group: ConversationId, field: str, fields: dict[str, Any]
) -> None:
    before = writers.facts(group)
    for answer in await both_ways(writers, message(group, **fields)):
        assert (answer.name, answer.fields) == (INVALID, (field,))
    assert writers.facts(group) == before


async def both_ways(writers: Writers, sent: writer_pb2.OutgoingMessage) -> list[Refusal]:
    gateway = writers.caller("gateway")
    alone = await refusal(method("SendMessage").call(gateway, writer_pb2.SendMessageRequest(message=sent)))
    (answer,) = await method("SendMessages").call(gateway, frame(sent))
    return [alone, of_status(answer.results[0].status)]


async def test_a_body_up_to_the_size_limit_is_taken_and_a_byte_more_refused(
    writers: Writers, group: ConversationId
) -> None:
    ana = writers.user(ANA)
    before = writers.facts(group)
    for answer in await both_ways(writers, message(group, body=bytes(65_537))):
        assert answer.name == ("INVALID_ARGUMENT", "MESSAGE_TOO_LARGE")
        assert answer.metadata == {"max_bytes": "65536"}
    assert writers.facts(group) == before
    largest = await ana.send_to(group, b"b" * 65_536, custom_type="t" * 128)
    empty = await ana.send_to(group, b"")
    found = (await ana.get_messages(group, [largest.seq, empty.seq])).messages
    assert [(len(each.body), len(each.custom_type)) for each in found] == [(65_536, 128), (0, 0)]


async def test_a_request_above_the_transports_limit_ends_that_call_only(
    writers: Writers, group: ConversationId
) -> None:
    caller = Caller(writers.address, writers.suite.gateway_files(), max_send_message_length=2 * MAX_MESSAGE_BYTES)
    big = writer_pb2.SendMessageRequest(message=message(group, body=bytes(MAX_MESSAGE_BYTES)))
    error = await failure(caller.writer.SendMessage(big, timeout=SECONDS, metadata=as_actor(acting(ANA))))
    assert error.code().name == "RESOURCE_EXHAUSTED"
    stream = caller.writer.SendMessages()
    await stream.write(frame(message(group), frame_number=1))
    first = await stream.read()
    assert isinstance(first, writer_pb2.SendMessagesResponse)
    await stream.write(frame(*[message(group, body=bytes(MAX_MESSAGE_BYTES // 256))] * 256, frame_number=2))
    error = await failure(stream.read())
    assert error.code().name == "RESOURCE_EXHAUSTED"
    await method("SendMessage").call(caller, writer_pb2.SendMessageRequest(message=message(group)))
    await caller.provider.close()


async def test_a_page_token_that_was_not_issued_for_this_call_is_refused(writers: Writers) -> None:
    ana, elsewhere = writers.user(ANA), writers.user(ANA, OTHER_TENANT)
    group = (await ana.create_group([BEN, *PEOPLE[:10]])).group
    other = (await ana.create_group([BEN, *PEOPLE[:10]])).group
    foreign = (await elsewhere.create_group([BEN, *PEOPLE[:10]], group=group)).group
    listing = method("ListMembers")

    async def listed(of: ConversationId, token: str = "") -> str:
        request = listing.request(of)
        request.page_token = token
        answer = await listing.call(writers.caller("admin"), request)
        return str(answer.next_page_token)

    token = (await ana.members_page(group, page_size=5)).next_page_token
    bens = (await writers.user(BEN).members_page(group, page_size=5)).next_page_token
    others = (await ana.members_page(other, page_size=5)).next_page_token
    foreigns = (await elsewhere.members_page(foreign, page_size=5)).next_page_token
    operators = await listed(group)
    turned = token[:-1] + ("A" if token[-1] != "A" else "B")
    forged = ["x", token[1:], turned, token + "A", "é" + token, "A" * 10_000, bens, others, foreigns, operators]
    for bad in forged:
        answer = await refused(writers, "MembersPage", group, page_token=bad)
        assert answer.name == ("INVALID_ARGUMENT", "PAGE_TOKEN_INVALID"), bad
    for bad in (token, turned, await listed(other)):
        answer = await refused(writers, "ListMembers", group, page_token=bad)
        assert answer.name == ("INVALID_ARGUMENT", "PAGE_TOKEN_INVALID"), bad
    assert len((await ana.members_page(group, page_size=5, page_token=token)).members) == 5
    assert await listed(group, operators) == ""

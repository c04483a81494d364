"""Who is outside gets PERMISSION_DENIED in the same words, whyever, and no data (contracts.md, "Errors")."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.refusals import Refusal, of_status, refusal
from tests.support.writer_methods import METHODS, SERVED, Method, frame, message, method
from tests.support.writers import ANA, BEN, CARA, DAN, OTHER_TENANT, Writers, acting, as_actor, as_principal

from qim_common.errors import PermissionDenied
from qim_common.identity import Principal, PrincipalKind
from qim_common.ids import ConversationId, UserId, direct_conversation_id, uuid7

pytestmark = pytest.mark.server

DENIED = ("PERMISSION_DENIED", "PERMISSION_DENIED")
FOR_MEMBERS = [each for each in METHODS if each.implemented and each.role == "gateway" and each.name != "CreateGroup"]
OF_GROUPS = ("MembersPage", "LeaveGroup", "MembersSince", "ClearGroupHistory", "TransferOwnership")


async def asked(writers: Writers, called: Method, conversation: bytes, user: UserId) -> Refusal:
    gateway = writers.caller("gateway")
    if called.stream:
        (answer,) = await called.call(gateway, frame(message(conversation), user=user))
        (result,) = answer.results
        assert (result.seq, result.time_ms, result.membership_version) == (0, 0, 0)
        return of_status(result.status)
    request = called.request(ConversationId(conversation))
    return await refusal(called.call(gateway, request, metadata=as_actor(acting(user))))


@pytest.mark.parametrize("called", FOR_MEMBERS, ids=str)
async def test_a_stranger_an_unknown_group_and_another_tenants_group_are_answered_in_the_same_words(
    writers: Writers, group: ConversationId, called: Method
) -> None:
    unknown = b"\x02" + uuid7()[1:]
    elsewhere = (await writers.user(DAN, OTHER_TENANT).create_group([ANA, BEN])).group
    before = writers.facts(group)
    answers = [
        await asked(writers, called, group, DAN),
        await asked(writers, called, unknown, DAN),
        await asked(writers, called, unknown, ANA),
        await asked(writers, called, elsewhere, DAN),
        await asked(writers, called, elsewhere, ANA),
    ]
    if called.name not in OF_GROUPS:
        answers.append(
            await asked(writers, called, direct_conversation_id(writers.user(ANA).actor.tenant, ANA, DAN), DAN)
        )
        answers.append(await asked(writers, called, b"\x01" + uuid7()[1:], ANA))
    (only,) = {(each.name, each.message, tuple(each.metadata), each.fields, each.retry) for each in answers}
    assert only == (DENIED, PermissionDenied().message, (), (), False)
    assert writers.facts(group) == before
    assert writers.facts(ConversationId(unknown)) == {}


FOR_THE_PRESENT = ("AuthorizeSend", "FreezeDelivery", "SendMessage", "SendMessages", "MembersPage", "MembersSince")


@pytest.mark.parametrize("removed", [False, True], ids=["left", "removed"])
@pytest.mark.parametrize("name", FOR_THE_PRESENT)
async def test_who_was_a_member_may_not_send_or_see_the_members(
    writers: Writers, group: ConversationId, name: str, removed: bool
) -> None:
    if removed:
        await writers.change(group, [BEN], remove=True)
    else:
        await writers.user(BEN).leave_group(group)
    head = (await writers.user(ANA).get_visible_range(group)).head_seq
    answer = await asked(writers, method(name, "gateway"), group, BEN)
    assert (answer.name, answer.message) == (DENIED, PermissionDenied().message)
    assert (await writers.user(ANA).get_visible_range(group)).head_seq == head == 2


async def test_a_leaver_reads_up_to_the_leave_and_nothing_after_it(writers: Writers, group: ConversationId) -> None:
    ana, ben = writers.user(ANA), writers.user(BEN)
    assert (await ben.leave_group(group)).member.left_at == 2
    await ana.send_to(group, b"behind his back")
    assert [each.seq for each in (await ben.pull_history(group)).messages] == [1]
    assert (await ben.get_messages(group, [1, 2, 3, 4])).messages[0].seq == 1
    assert len((await ben.get_messages(group, [1, 2, 3, 4])).messages) == 1
    assert (await ben.get_messages(group, [2, 3])).messages == ()
    await ben.authorize_history(group)


async def test_a_leaver_of_a_group_that_shows_leavers_nothing_is_outside(
    writers: Writers, group: ConversationId
) -> None:
    await writers.change(group, [BEN], remove=True, leaver_history=2)
    words = set()
    for name in ("AuthorizeHistory", "PullHistory", "GetMessages", "GetVisibleRange", "MembersPage"):
        answer = await asked(writers, method(name), group, BEN)
        words.add((answer.name, answer.message))
    assert words == {(DENIED, PermissionDenied().message)}


async def test_a_newcomer_sees_nothing_from_before_the_join(writers: Writers, group: ConversationId) -> None:
    await writers.change(group, [DAN])
    dan = writers.user(DAN)
    assert [each.seq for each in (await dan.pull_history(group)).messages] == [2]
    assert (await dan.get_messages(group, [1, 2])).messages[0].seq == 2
    assert (await dan.get_visible_range(group)).earliest_available_seq == 2


@pytest.mark.parametrize(
    "called",
    [each for each in SERVED if each.role in ("session", "admin") and each.stub != "internal" and each.on_group],
    ids=str,
)
async def test_the_services_themselves_hear_the_same_of_an_unknown_group(writers: Writers, called: Method) -> None:
    answer = await refusal(
        called.call(writers.caller(called.role), called.request(ConversationId(b"\x02" + uuid7()[1:])))
    )
    assert (answer.name, answer.message) == (DENIED, PermissionDenied().message)


async def test_the_session_service_gets_no_data_of_somebody_who_never_was_in(
    writers: Writers, group: ConversationId
) -> None:
    session = writers.caller("session")
    states = method("ConversationStates").request(group)
    states.user_id = DAN
    states.with_preview = True
    states.conversations.add(conversation_id=b"\x02" + uuid7()[1:])
    for state in (await method("ConversationStates").call(session, states)).states:
        fields: list[Any] = [descriptor.name for part in (state, state.entry) for descriptor, _ in part.ListFields()]
        assert fields == ["entry", "conversation_id"]
    page = method("DeliveredPage").request(group)
    page.user_id = DAN
    delivered = await method("DeliveredPage").call(session, page)
    assert (list(delivered.entries), delivered.more) == ([], False)


@pytest.mark.parametrize("principal", ["operator", "back end"])
async def test_an_operator_of_one_tenant_does_not_reach_anothers_group(
    writers: Writers, group: ConversationId, principal: str
) -> None:
    kind = PrincipalKind.OPERATOR if principal == "operator" else PrincipalKind.BACKEND
    elsewhere = as_principal(Principal(kind, "x", OTHER_TENANT, None))
    before = writers.facts(group)
    for called in (each for each in SERVED if each.role == "admin" and each.on_group):
        answer = await refusal(called.call(writers.caller("admin"), called.request(group), metadata=elsewhere))
        assert (answer.name, answer.message) == (DENIED, PermissionDenied().message)
    assert writers.facts(group) == before
    assert {member.user async for member in writers.user(ANA).members(group)} == {ANA, BEN, CARA}

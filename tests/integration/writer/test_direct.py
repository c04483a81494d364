"""Direct conversations: the first send creates them; both stay for ever (contracts.md, "Ids")."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.refusals import of_status, refusal
from tests.support.writer_methods import METHODS, frame, message, method
from tests.support.writers import ANA, BEN, CARA, OTHER_TENANT, TENANT, Writers, acting, as_actor

from qim.writer.v1 import writer_pb2
from qim_common.enums import MemberState
from qim_common.errors import PermissionDenied
from qim_common.ids import ConversationId, UserId, direct_conversation_id, uuid7

pytestmark = pytest.mark.server

OF_CONVERSATIONS = (
    *("PullHistory", "GetMessages", "GetVisibleRange"),
    *("AuthorizeSend", "FreezeDelivery", "AuthorizeHistory"),
)
OF_GROUPS = (
    *("CreateGroup", "MembersPage", "LeaveGroup", "MembersSince"),
    *("AdminChangeMembers", "GetGroup", "ListMembers"),
    *("ClearGroupHistory", "TransferOwnership", "UpdateGroupSettings", "FreezeGroup"),
    *("GroupTimeline", "ExplainVisibility"),
)


def people() -> tuple[UserId, UserId]:
    return UserId(uuid7()), UserId(uuid7())


async def test_the_first_send_of_either_person_creates_it_and_both_read_everything(writers: Writers) -> None:
    one, two = people()
    first = await writers.user(one).send_to_person(two, b"hi")
    second = await writers.user(two).send_to_person(one, b"ho")
    assert first.conversation == second.conversation == direct_conversation_id(TENANT, one, two)
    assert (first.seq, second.seq, second.membership_version) == (1, 2, 1)
    for user in (one, two):
        seen = await writers.user(user).get_visible_range(first.conversation)
        assert (seen.earliest_available_seq, seen.head_seq, seen.state) == (1, 2, MemberState.MEMBER)
    for user in (one, two):
        assert (await writers.user(user).send_to(first.conversation, b"by its id")).membership_version == 1
    assert sorted(await writers.recipients(first.conversation, 1)) == sorted([one, two])


async def test_notes_to_oneself_have_one_stay(writers: Writers) -> None:
    one, _ = people()
    sent = await writers.user(one).send_to_person(one, b"remember")
    assert sent.seq == 1
    assert await writers.recipients(sent.conversation, 1) == [one]
    assert len((await writers.user(one).get_visible_range(sent.conversation)).stays) == 1


async def test_before_the_first_send_nobody_is_in_it(writers: Writers) -> None:
    one, two = people()
    direct = direct_conversation_id(TENANT, one, two)
    words = set()
    for name in (
        "PullHistory",
        "GetMessages",
        "GetVisibleRange",
        "AuthorizeSend",
        "FreezeDelivery",
        "AuthorizeHistory",
    ):
        called = method(name)
        answer = await refusal(
            called.call(writers.caller("gateway"), called.request(direct), metadata=as_actor(acting(one)))
        )
        words.add((answer.name, answer.message))
    request = writer_pb2.SendMessageRequest(message=message(direct))
    sent = await refusal(method("SendMessage").call(writers.caller("gateway"), request, metadata=as_actor(acting(one))))
    words.add((sent.name, sent.message))
    assert words == {(("PERMISSION_DENIED", "PERMISSION_DENIED"), PermissionDenied().message)}
    assert writers.facts(direct) == {}


async def test_a_third_person_and_another_tenant_stay_outside(writers: Writers) -> None:
    one, two = people()
    direct = (await writers.user(one).send_to_person(two, b"hi")).conversation
    for user in (writers.user(CARA), writers.user(one, OTHER_TENANT)):
        with pytest.raises(PermissionDenied):
            await user.send_to(direct, b"me too")
        with pytest.raises(PermissionDenied):
            await user.pull_history(direct)
    elsewhere = await writers.user(one, OTHER_TENANT).send_to_person(two, b"hi")
    assert elsewhere.conversation != direct
    assert (await writers.user(one).get_visible_range(direct)).head_seq == 1


@pytest.mark.parametrize(
    "name",
    ["CreateGroup", "MembersPage", "LeaveGroup", "MembersSince", "AdminChangeMembers", "GetGroup", "ListMembers"],
)
async def test_methods_of_groups_do_not_take_it(writers: Writers, name: str) -> None:
    direct = (await writers.user(ANA).send_to_person(BEN, b"hi")).conversation
    before = writers.facts(direct)
    for called in (each for each in METHODS if each.name == name):
        request = called.request(direct)
        request.group_id = direct
        answer = await refusal(called.call(writers.caller(called.role), request))
        assert (answer.reason, answer.fields) == ("INVALID_ARGUMENT", ("group_id",))
    assert writers.facts(direct) == before


async def test_many_first_sends_at_once_make_one_conversation(writers: Writers) -> None:
    one, two = people()
    sent = await asyncio.gather(*(writers.user(a).send_to_person(b, b"hi") for a, b in [(one, two), (two, one)] * 20))
    assert sorted(each.seq for each in sent) == list(range(1, 41))
    assert len({each.conversation for each in sent}) == 1
    assert sorted(await writers.recipients(sent[0].conversation, 1)) == sorted([one, two])


async def test_an_expected_version_holds_for_the_first_send_too(writers: Writers) -> None:
    one, two = people()
    messages = [
        message(b"", peer_user_id=two, expected_membership_version=version, body=b"%d" % version)
        for version in (2, 1, 0)
    ]
    (answer,) = await method("SendMessages").call(writers.caller("gateway"), frame(*messages, user=one))
    results = sorted(answer.results, key=lambda result: result.index)
    assert of_status(results[0].status).reason == "MEMBERSHIP_CHANGED"
    assert [result.seq for result in results] == [0, 1, 2]


async def test_a_retry_of_the_first_send_creates_nothing_twice(writers: Writers) -> None:
    one, two = people()
    request = writer_pb2.SendMessageRequest(message=message(b"", peer_user_id=two))
    called, who = method("SendMessage"), as_actor(acting(one))
    first = await called.call(writers.caller("gateway"), request, metadata=who)
    before = writers.facts(ConversationId(first.conversation_id))
    assert await called.call(writers.caller("gateway"), request, metadata=who) == first
    assert writers.facts(ConversationId(first.conversation_id)) == before

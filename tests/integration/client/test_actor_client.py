"""What a gateway does for an end user, against the real writer: every call answers as the contracts say."""

from __future__ import annotations

import grpc
import pytest

from qim_client import (
    Direction,
    GatewayClient,
    GroupSettings,
    MemberState,
    NewcomerPolicy,
    Outgoing,
    RetryPolicy,
    SeqRange,
    actor,
)
from qim_client.names import user_id
from qim_common import errors
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, direct_conversation_id, kind_of, uuid7
from qim_devkit.ports import allocate
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server

TENANT = TenantId(1)
ANA, BEN, CARA = (user_id(name) for name in ("ana", "ben", "cara"))
NOWHERE = ConversationId(b"\x02" + bytes(14) + b"\x09")


async def test_a_group_from_creation_to_leaving(gateway: GatewayClient) -> None:
    ana, ben = gateway.as_actor(TENANT, ANA), gateway.as_actor(TENANT, BEN)
    created = await ana.create_group([BEN], settings=GroupSettings(newcomer=NewcomerPolicy.ALL))
    group = created.group
    assert (created.membership_version, created.member_count) == (1, 2)
    sent = await ben.send_to(group, b"hello")
    assert (sent.conversation, sent.seq, sent.membership_version) == (group, 1, 1)
    left = await ben.leave_group(group)
    assert (left.member.state, left.member.left_at, left.membership_version) == (MemberState.LEFT, 2, 2)
    visible = await ben.get_visible_range(group)
    assert (visible.ranges, visible.state) == ((SeqRange(1, 1),), MemberState.LEFT)
    with pytest.raises(errors.PermissionDenied):
        await ben.authorize_send(group)
    await ben.authorize_history(group)
    changes = await ana.members_since(group, 1)
    assert [(change.version, change.seq, change.people, change.actor) for change in changes.changes] == [
        (2, 2, (BEN,), BEN)
    ]


async def test_history_is_read_both_ways_and_page_by_page(gateway: GatewayClient) -> None:
    ana = gateway.as_actor(TENANT, ANA)
    group = (await ana.create_group()).group
    for number in range(5):
        await ana.send_to(group, b"%d" % number)
    page = await ana.pull_history(group, limit=2)
    assert ([message.seq for message in page.messages], page.next_from_seq) == ([5, 4], 3)
    newer = await ana.pull_history(group, from_seq=2, direction=Direction.NEWER, limit=2)
    assert ([message.seq for message in newer.messages], newer.next_from_seq) == ([2, 3], 4)
    assert [message.body async for message in ana.history(group, direction=Direction.NEWER)] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    ]
    found = await ana.get_messages(group, [4, 2, 99])
    assert [message.seq for message in found.messages] == [2, 4]


async def test_members_come_page_by_page(gateway: GatewayClient) -> None:
    ana = gateway.as_actor(TENANT, ANA)
    group = (await ana.create_group([BEN, CARA])).group
    page = await ana.members_page(group, page_size=2)
    assert (len(page.members), page.member_count, bool(page.next_page_token)) == (2, 3, True)
    assert {member.user async for member in ana.members(group)} == {ANA, BEN, CARA}


async def test_the_first_message_to_a_person_creates_the_direct_conversation(gateway: GatewayClient) -> None:
    one, other = UserId(uuid7()), UserId(uuid7())
    sent = await gateway.as_actor(TENANT, one).send_to_person(other, b"hello")
    assert sent.conversation == direct_conversation_id(TENANT, one, other)
    assert kind_of(sent.conversation).name == "DIRECT"
    (message,) = (await gateway.as_actor(TENANT, other).pull_history(sent.conversation)).messages
    assert (message.sender, message.body) == (one, b"hello")


async def test_the_same_object_is_sent_once_from_any_device(gateway: GatewayClient) -> None:
    ana = gateway.as_actor(TENANT, ANA)
    group = (await ana.create_group()).group
    item = Outgoing(ana.actor, b"once", conversation=group)
    first = await ana.send(item)
    phone = gateway.as_actor(TENANT, ANA, DeviceId(b"p" * 16))
    again = Outgoing(phone.actor, b"once", conversation=group, client_message_id=item.client_message_id)
    assert await phone.send(again) == first
    with pytest.raises(errors.IdempotencyKeyReused):
        await ana.send(Outgoing(ana.actor, b"other", conversation=group, client_message_id=item.client_message_id))


async def test_a_repeated_creation_gets_the_first_answer(gateway: GatewayClient) -> None:
    ana, request_id = gateway.as_actor(TENANT, ANA), uuid7()
    first = await ana.create_group([BEN], request_id=request_id)
    assert await ana.create_group([BEN], request_id=request_id) == first


async def test_an_expected_version_that_is_gone_is_refused_at_once(gateway: GatewayClient) -> None:
    ana = gateway.as_actor(TENANT, ANA)
    group = (await ana.create_group([BEN])).group
    frozen = await ana.freeze_delivery(group)
    assert (frozen.membership_version, frozen.member_count) == (1, 2)
    await gateway.as_actor(TENANT, BEN).leave_group(group)
    with pytest.raises(errors.MembershipChanged):
        await ana.send(Outgoing(ana.actor, b"x", conversation=group, expected_version=frozen.membership_version))


async def test_one_client_does_not_send_for_another_person(gateway: GatewayClient) -> None:
    item = Outgoing(actor(TENANT, BEN), b"x", conversation=NOWHERE)
    with pytest.raises(errors.InvalidArgument, match=r"item\.actor"):
        await gateway.as_actor(TENANT, ANA).send(item)


async def test_a_refusal_is_raised_as_its_reason(gateway: GatewayClient) -> None:
    ana = gateway.as_actor(TENANT, ANA)
    with pytest.raises(errors.PermissionDenied):
        await ana.pull_history(NOWHERE)
    with pytest.raises(errors.InvalidArgument) as refused:
        await ana.pull_history(NOWHERE, limit=1001)
    assert refused.value.violations[0].field == "limit"
    with pytest.raises(errors.TenantNotAllowed):
        await gateway.as_actor(TenantId(9), ANA).pull_history(NOWHERE)


async def test_a_timeout_is_more_than_nothing(gateway: GatewayClient) -> None:
    with pytest.raises(errors.InvalidArgument, match="timeout"):
        await gateway.as_actor(TENANT, ANA).pull_history(NOWHERE, timeout=0)


async def test_a_service_that_is_not_there_is_unavailable_after_the_attempts(writer_suite: Suite) -> None:
    nobody = f"127.0.0.1:{allocate(['nobody'], {})['nobody']}"
    policy = RetryPolicy(max_attempts=3)
    async with GatewayClient(nobody, nobody, writer_suite.gateway_files(), policy=policy) as client:
        with pytest.raises(errors.RemoteError) as refused:
            await client.as_actor(TENANT, ANA).pull_history(NOWHERE)
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE

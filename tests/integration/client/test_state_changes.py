"""What a person changes without a seq: their own clear point, and as owner the group's floor and who owns it."""

from __future__ import annotations

import pytest

from qim_client import ActorClient, GatewayClient
from qim_client.names import user_id
from qim_common import errors
from qim_common.ids import ConversationId, DeviceId, TenantId, uuid7

pytestmark = pytest.mark.server

TENANT = TenantId(1)
ANA, BEN, CARA = (user_id(name) for name in ("ana", "ben", "cara"))
NOWHERE = ConversationId(b"\x02" + bytes(14) + b"\x09")


async def written(gateway: GatewayClient, messages: int) -> tuple[ActorClient, ActorClient, ConversationId]:
    """Ana's group with Ben, and so many messages of hers."""
    ana = gateway.as_actor(TENANT, ANA)
    group = (await ana.create_group([BEN])).group
    for number in range(messages):
        await ana.send_to(group, b"%d" % number)
    return ana, gateway.as_actor(TENANT, BEN), group


async def seqs(person: ActorClient, group: ConversationId) -> list[int]:
    return sorted(message.seq for message in (await person.pull_history(group)).messages)


async def test_an_own_clear_holds_on_every_device_and_for_nobody_else(gateway: GatewayClient) -> None:
    ana, ben, group = await written(gateway, 4)
    assert await ben.clear_history(group, up_to_seq=2) == 2
    phone = gateway.as_actor(TENANT, BEN, DeviceId(b"p" * 16))
    assert (await seqs(ben, group), await seqs(phone, group), await seqs(ana, group)) == ([3, 4], [3, 4], [1, 2, 3, 4])
    assert await ben.clear_history(group, up_to_seq=1) == 2
    assert await ben.clear_history(group) == 4


async def test_a_repeated_clear_gets_the_first_answer_and_moves_nothing(gateway: GatewayClient) -> None:
    ana, _, group = await written(gateway, 2)
    request_id = uuid7()
    assert await ana.clear_history(group, request_id=request_id) == 2
    await ana.send_to(group, b"later")
    assert await ana.clear_history(group, request_id=request_id) == 2
    assert await seqs(ana, group) == [3]
    with pytest.raises(errors.IdempotencyKeyReused):
        await ana.clear_history(group, up_to_seq=3, request_id=request_id)


async def test_the_owner_clears_for_all_and_nobody_else_may(gateway: GatewayClient) -> None:
    ana, ben, group = await written(gateway, 4)
    with pytest.raises(errors.PermissionDenied):
        await ben.clear_group_history(group, up_to_seq=2)
    request_id = uuid7()
    assert await ana.clear_group_history(group, up_to_seq=2, request_id=request_id) == 2
    assert (await seqs(ana, group), await seqs(ben, group)) == ([3, 4], [3, 4])
    assert await ana.clear_group_history(group, up_to_seq=99) == 4
    assert await ana.clear_group_history(group, up_to_seq=2, request_id=request_id) == 2
    assert await seqs(ben, group) == []


async def test_the_owner_hands_over_to_a_member_and_may_leave_then(gateway: GatewayClient) -> None:
    ana, ben, group = await written(gateway, 0)
    with pytest.raises(errors.OwnerCannotLeave):
        await ana.leave_group(group)
    with pytest.raises(errors.NewOwnerNotMember):
        await ana.transfer_ownership(group, CARA)
    with pytest.raises(errors.PermissionDenied):
        await ben.transfer_ownership(group, BEN)
    request_id = uuid7()
    assert await ana.transfer_ownership(group, BEN, request_id=request_id) == BEN
    await ana.leave_group(group)
    assert await ana.transfer_ownership(group, BEN, request_id=request_id) == BEN


@pytest.mark.parametrize("up_to_seq", [2**53, 2**64 - 1])
async def test_what_is_no_seq_is_named(gateway: GatewayClient, up_to_seq: int) -> None:
    ana, _, group = await written(gateway, 0)
    for clear in (ana.clear_history, ana.clear_group_history):
        with pytest.raises(errors.InvalidArgument) as refused:
            await clear(group, up_to_seq=up_to_seq)
        assert [violation.field for violation in refused.value.violations] == ["up_to_seq"]


async def test_an_unknown_group_is_refused_in_the_same_words(gateway: GatewayClient) -> None:
    ana = gateway.as_actor(TENANT, ANA)
    for refused in (ana.clear_history(NOWHERE), ana.clear_group_history(NOWHERE), ana.transfer_ownership(NOWHERE, BEN)):
        with pytest.raises(errors.PermissionDenied):
            await refused

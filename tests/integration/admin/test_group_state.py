"""What operators set without a seq: settings, owner, floor, freeze; by which role, and what the journal says."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import grpc
import pytest
from tests.integration.admin.conftest import Named, journal

from qim.admin.v1 import admin_pb2, admin_pb2_grpc
from qim.common.v1 import types_pb2
from qim_client import GatewayClient, GroupSettings, LeaverHistory, NewcomerPolicy, OperatorClient, RejoinHistory
from qim_client.names import user_id
from qim_common import errors
from qim_common.errors import from_rpc_error
from qim_common.ids import ConversationId, TenantId, UserId, uuid7
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server

TENANT = TenantId(1)
ANA, BEN, CARA = (user_id(name) for name in ("ana", "ben", "cara"))
NOWHERE = ConversationId(b"\x02" + bytes(14) + b"\x09")
EVERYTHING = GroupSettings(
    newcomer=NewcomerPolicy.LAST_N,
    last_n=2,
    rejoin=RejoinHistory.ALL_STAYS,
    leaver=LeaverHistory.NONE,
    broadcast_max_members=7,
    member_limit=9,
    retention_days=30,
)


async def new_group(gateway: GatewayClient, *members: UserId, messages: int = 0) -> ConversationId:
    ana = gateway.as_actor(TENANT, ANA)
    group = (await ana.create_group(members)).group
    for number in range(messages):
        await ana.send_to(group, b"%d" % number)
    return group


async def test_settings_are_replaced_and_hold_for_the_next_to_join(
    gateway: GatewayClient, operator: OperatorClient
) -> None:
    group = await new_group(gateway, messages=4)
    changed = await operator.update_group_settings(group, EVERYTHING)
    assert (changed.settings, changed.revision, changed.membership_version) == (EVERYTHING, 2, 1)
    assert (await operator.get_group(group)).settings == EVERYTHING
    await operator.add_members(group, [CARA])
    visible = await gateway.as_actor(TENANT, CARA).get_visible_range(group)
    assert [(item.first, item.last) for item in visible.ranges] == [(3, 5)]


async def test_the_owner_is_made_by_an_operator(gateway: GatewayClient, operator: OperatorClient) -> None:
    group = await new_group(gateway, BEN)
    assert (await operator.transfer_ownership(group, BEN)).owner == BEN
    await gateway.as_actor(TENANT, ANA).leave_group(group)
    with pytest.raises(errors.NewOwnerNotMember):
        await operator.transfer_ownership(group, ANA)


async def test_the_floor_moves_up_and_never_down(gateway: GatewayClient, operator: OperatorClient) -> None:
    group = await new_group(gateway, messages=4)
    assert (await operator.clear_group_history(group, up_to_seq=3)).group_floor_seq == 3
    assert (await operator.clear_group_history(group, up_to_seq=1)).group_floor_seq == 3
    assert [message.seq for message in (await gateway.as_actor(TENANT, ANA).pull_history(group)).messages] == [4]
    assert (await operator.clear_group_history(group)).group_floor_seq == 4


async def test_a_frozen_group_takes_no_message_until_it_is_unfrozen(
    gateway: GatewayClient, operator: OperatorClient
) -> None:
    group = await new_group(gateway)
    ana = gateway.as_actor(TENANT, ANA)
    assert (await operator.freeze_group(group)).frozen
    with pytest.raises(errors.GroupFrozen):
        await ana.send_to(group, b"hello")
    with pytest.raises(errors.GroupFrozen):
        await operator.add_members(group, [BEN])
    assert not (await operator.freeze_group(group, frozen=False)).frozen
    await ana.send_to(group, b"hello")


async def test_the_same_request_id_gets_the_first_answer_of_every_change(
    gateway: GatewayClient, operator: OperatorClient
) -> None:
    group = await new_group(gateway, BEN, messages=2)
    one, other = dataclasses.replace(EVERYTHING, last_n=5), EVERYTHING
    calls: list[tuple[Callable[[bytes], Awaitable[object]], Callable[[bytes], Awaitable[object]]]] = [
        (
            lambda id_: operator.update_group_settings(group, one, request_id=id_),
            lambda id_: operator.update_group_settings(group, other, request_id=id_),
        ),
        (
            lambda id_: operator.transfer_ownership(group, BEN, request_id=id_),
            lambda id_: operator.transfer_ownership(group, ANA, request_id=id_),
        ),
        (
            lambda id_: operator.clear_group_history(group, up_to_seq=1, request_id=id_),
            lambda id_: operator.clear_group_history(group, up_to_seq=2, request_id=id_),
        ),
        (
            lambda id_: operator.freeze_group(group, request_id=id_),
            lambda id_: operator.freeze_group(group, frozen=False, request_id=id_),
        ),
    ]
    for call, with_other_content in calls:
        request_id = uuid7()
        first = await call(request_id)
        assert await call(request_id) == first
        with pytest.raises(errors.IdempotencyKeyReused):
            await with_other_content(request_id)


async def test_each_role_may_do_what_its_row_says(
    gateway: GatewayClient, operator: OperatorClient, backend: OperatorClient, operator_named: Named
) -> None:
    group = await new_group(gateway, BEN, messages=1)
    calls: dict[str, Callable[[OperatorClient], Awaitable[object]]] = {
        "look": lambda client: client.get_group(group),
        "list": lambda client: client.list_members(group),
        "explain": lambda client: client.explain_visibility(group, BEN, 1),
        "timeline": lambda client: client.group_timeline(group),
        "add": lambda client: client.add_members(group, [CARA]),
        "remove": lambda client: client.remove_members(group, [CARA]),
        "freeze": lambda client: client.freeze_group(group, frozen=False),
        "clear": lambda client: client.clear_group_history(group, up_to_seq=1),
        "set": lambda client: client.update_group_settings(group, GroupSettings()),
        "hand over": lambda client: client.transfer_ownership(group, BEN),
    }

    async def allowed(client: OperatorClient) -> list[str]:
        names = []
        for name, call in calls.items():
            try:
                await call(client)
                names.append(name)
            except errors.RoleNotAllowed:
                continue
        return names

    async with operator_named("vic") as viewer, operator_named("mo") as moderator, operator_named("nora") as nobody:
        assert await allowed(nobody) == []
        assert await allowed(viewer) == list(calls)[:4]
        assert await allowed(moderator) == list(calls)[:8]
    assert await allowed(operator) == list(calls)
    assert await allowed(backend) == list(calls)


async def test_every_change_is_one_line_of_the_journal_and_a_refusal_too(
    gateway: GatewayClient, operator: OperatorClient, operator_named: Named, admin_suite: Suite
) -> None:
    group = await new_group(gateway, BEN, messages=2)
    await operator.update_group_settings(group, EVERYTHING)
    await operator.transfer_ownership(group, BEN)
    await operator.clear_group_history(group, up_to_seq=1)
    await operator.freeze_group(group)
    await operator.explain_visibility(group, BEN, 2)
    await operator.group_timeline(group, user=BEN)
    async with operator_named("vic") as viewer:
        with pytest.raises(errors.RoleNotAllowed):
            await viewer.freeze_group(group)
    lines = journal(admin_suite, group)
    assert [(line["action"], line["outcome"], line["people"], line["revision"]) for line in lines] == [
        ("UpdateGroupSettings", "OK", 0, 2),
        ("TransferOwnership", "OK", 1, 3),
        ("ClearGroupHistory", "OK", 0, 4),
        ("FreezeGroup", "OK", 0, 5),
        ("ExplainVisibility", "OK", 1, 0),
        ("GroupTimeline", "OK", 1, 0),
        ("FreezeGroup", "ROLE_NOT_ALLOWED", 0, 0),
    ]
    assert "last_n 2" in lines[0]["detail"]
    assert [line["detail"] for line in lines[1:]] == ["", "up_to_seq 1", "frozen", "seq 2", "", "frozen"]


BAD: list[tuple[str, object, str]] = [
    ("UpdateGroupSettings", admin_pb2.UpdateGroupSettingsRequest(), "tenant_id"),
    (
        "UpdateGroupSettings",
        admin_pb2.UpdateGroupSettingsRequest(tenant_id=1, group_id=NOWHERE, request_id=b"short"),
        "request_id",
    ),
    (
        "UpdateGroupSettings",
        admin_pb2.UpdateGroupSettingsRequest(
            tenant_id=1,
            group_id=NOWHERE,
            request_id=b"r" * 16,
            settings=types_pb2.GroupSettings(newcomer_history=types_pb2.NewcomerHistory(last_n=3)),
        ),
        "settings.newcomer_history.last_n",
    ),
    (
        "UpdateGroupSettings",
        admin_pb2.UpdateGroupSettingsRequest(
            tenant_id=1,
            group_id=NOWHERE,
            request_id=b"r" * 16,
            settings=types_pb2.GroupSettings(retention_days=36_501),
        ),
        "settings.retention_days",
    ),
    ("TransferOwnership", admin_pb2.TransferOwnershipRequest(tenant_id=1, group_id=b"x"), "group_id"),
    (
        "TransferOwnership",
        admin_pb2.TransferOwnershipRequest(tenant_id=1, group_id=NOWHERE, request_id=b"r" * 16),
        "new_owner_user_id",
    ),
    ("ClearGroupHistory", admin_pb2.ClearGroupHistoryRequest(tenant_id=1, group_id=NOWHERE), "request_id"),
    (
        "ClearGroupHistory",
        admin_pb2.ClearGroupHistoryRequest(tenant_id=1, group_id=NOWHERE, request_id=b"r" * 16, up_to_seq=2**53),
        "up_to_seq",
    ),
    ("FreezeGroup", admin_pb2.FreezeGroupRequest(tenant_id=1, group_id=NOWHERE), "request_id"),
    ("ExplainVisibility", admin_pb2.ExplainVisibilityRequest(tenant_id=1, group_id=NOWHERE, seq=1), "user_id"),
    (
        "ExplainVisibility",
        admin_pb2.ExplainVisibilityRequest(tenant_id=1, group_id=NOWHERE, user_id=ANA),
        "seq",
    ),
    ("GroupTimeline", admin_pb2.GroupTimelineRequest(tenant_id=1, group_id=NOWHERE, page_size=1001), "page_size"),
    (
        "GroupTimeline",
        admin_pb2.GroupTimelineRequest(tenant_id=1, group_id=NOWHERE, page_size=1, user_id=b"x"),
        "user_id",
    ),
]


@pytest.mark.parametrize(("method", "request_", "field"), BAD, ids=[f"{method}-{field}" for method, _, field in BAD])
async def test_a_bad_field_is_named(admin_suite: Suite, method: str, request_: object, field: str) -> None:
    files = admin_suite.operator_files()
    credentials = grpc.ssl_channel_credentials(files.ca.read_bytes(), files.key.read_bytes(), files.cert.read_bytes())
    async with grpc.aio.secure_channel(admin_suite.addresses["admin"], credentials) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await getattr(admin_pb2_grpc.GroupAdminStub(channel), method)(request_, timeout=5)
    error = from_rpc_error(refused.value)
    assert error.reason == "INVALID_ARGUMENT"
    assert [violation.field for violation in error.violations] == [field]


async def test_an_unknown_group_is_refused_in_the_same_words(operator: OperatorClient) -> None:
    for refused in (
        operator.update_group_settings(NOWHERE, GroupSettings()),
        operator.transfer_ownership(NOWHERE, BEN),
        operator.clear_group_history(NOWHERE),
        operator.freeze_group(NOWHERE),
        operator.explain_visibility(NOWHERE, BEN, 1),
        operator.group_timeline(NOWHERE),
    ):
        with pytest.raises(errors.PermissionDenied):
            await refused

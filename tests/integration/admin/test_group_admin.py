"""The operator API over mTLS, through to the real writer: changes, reading, identity, and what bad input gets."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from tests.integration.admin.conftest import journal

from qim.admin.v1 import admin_pb2, admin_pb2_grpc
from qim_client import GatewayClient, MemberRole, OperatorClient, RetryPolicy
from qim_client.config import TlsFiles
from qim_client.names import user_id
from qim_common import errors
from qim_common.errors import from_rpc_error
from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId, uuid7
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server

TENANT = TenantId(1)
ANA, BEN, CARA, DORA = (user_id(name) for name in ("ana", "ben", "cara", "dora"))
ONCE = RetryPolicy(max_attempts=1)


async def new_group(gateway: GatewayClient, *members: UserId) -> ConversationId:
    return (await gateway.as_actor(TENANT, ANA).create_group(members)).group


async def test_an_operator_adds_and_removes_people_with_one_event_each(
    gateway: GatewayClient, operator: OperatorClient
) -> None:
    group = await new_group(gateway, BEN)
    added = await operator.add_members(group, [CARA, DORA, BEN])
    assert (added.membership_version, added.seq, added.member_count, added.changed_count) == (2, 1, 4, 2)
    removed = await operator.remove_members(group, [BEN])
    assert (removed.membership_version, removed.seq, removed.member_count, removed.changed_count) == (3, 2, 3, 1)
    page = await gateway.as_actor(TENANT, ANA).pull_history(group)
    events = [message.event for message in page.messages]
    assert [(event.op, event.actor, event.people) for event in events if event] == [
        (MembershipOp.REMOVE, None, (BEN,)),
        (MembershipOp.JOIN, None, tuple(sorted((CARA, DORA)))),
    ]


async def test_a_back_ends_initiator_is_the_events_actor(gateway: GatewayClient, backend: OperatorClient) -> None:
    group = await new_group(gateway)
    await backend.add_members(group, [CARA], initiator=ANA)
    (message,) = (await gateway.as_actor(TENANT, CARA).pull_history(group)).messages
    assert message.event is not None
    assert (message.event.actor, message.event.people) == (ANA, (CARA,))


async def test_an_operator_may_not_name_an_initiator(gateway: GatewayClient, operator: OperatorClient) -> None:
    group = await new_group(gateway)
    with pytest.raises(errors.InvalidArgument) as refused:
        await operator.add_members(group, [CARA], initiator=ANA)
    assert [violation.field for violation in refused.value.violations] == ["initiator_user_id"]
    assert (await operator.get_group(group)).membership_version == 1


async def test_a_change_already_in_effect_makes_no_second_event(
    gateway: GatewayClient, operator: OperatorClient
) -> None:
    group = await new_group(gateway, BEN)
    again = await operator.add_members(group, [BEN])
    assert (again.membership_version, again.seq, again.changed_count, again.member_count) == (1, 0, 0, 2)


async def test_the_same_request_id_gets_the_first_answer_and_other_content_is_refused(
    gateway: GatewayClient, operator: OperatorClient, backend: OperatorClient
) -> None:
    group, request_id = await new_group(gateway), uuid7()
    first = await operator.add_members(group, [CARA], request_id=request_id)
    await operator.remove_members(group, [CARA])
    assert await operator.add_members(group, [CARA], request_id=request_id) == first
    with pytest.raises(errors.IdempotencyKeyReused):
        await operator.add_members(group, [DORA], request_id=request_id)
    other = await backend.add_members(group, [CARA], request_id=request_id)
    assert other.membership_version == first.membership_version + 2


async def test_a_group_is_shown_as_it_is(gateway: GatewayClient, operator: OperatorClient) -> None:
    group = await new_group(gateway, BEN)
    await operator.add_members(group, [CARA])
    details = await operator.get_group(group)
    assert (details.group, details.owner, details.member_count) == (group, ANA, 3)
    assert (details.membership_version, details.head_seq, details.frozen) == (2, 1, False)


async def test_members_come_page_by_page(gateway: GatewayClient, operator: OperatorClient) -> None:
    group = await new_group(gateway, BEN, CARA, DORA)
    first = await operator.list_members(group, page_size=3)
    last = await operator.list_members(group, page_size=3, page_token=first.next_page_token)
    assert (len(first.members), len(last.members), last.next_page_token) == (3, 1, "")
    assert {member.user for member in first.members + last.members} == {ANA, BEN, CARA, DORA}
    assert [member.user for member in first.members + last.members if member.role is MemberRole.OWNER] == [ANA]


async def test_a_page_token_of_another_group_is_refused(gateway: GatewayClient, operator: OperatorClient) -> None:
    one, other = await new_group(gateway, BEN, CARA), await new_group(gateway, BEN, CARA)
    token = (await operator.list_members(one, page_size=1)).next_page_token
    for bad in (token + "x", "forged"):
        with pytest.raises(errors.PageTokenInvalid):
            await operator.list_members(one, page_size=1, page_token=bad)
    with pytest.raises(errors.PageTokenInvalid):
        await operator.list_members(other, page_size=1, page_token=token)


async def test_the_writers_refusals_pass_with_their_reason_and_details(
    gateway: GatewayClient, operator: OperatorClient
) -> None:
    group = await new_group(gateway, BEN)
    with pytest.raises(errors.OwnerCannotLeave) as refused:
        await operator.remove_members(group, [ANA])
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(errors.PermissionDenied):
        await operator.get_group(ConversationId(b"\x02" + bytes(14) + b"\x09"))


async def test_a_tenant_that_the_certificate_is_not_bound_to_is_refused(admin_suite: Suite) -> None:
    files = admin_suite.operator_files()
    async with OperatorClient(admin_suite.addresses["admin"], files, TenantId(9)) as foreign:
        with pytest.raises(errors.TenantNotAllowed):
            await foreign.get_group(ConversationId(b"\x02" + bytes(14) + b"\x09"))


async def test_a_group_of_another_tenant_looks_like_none(gateway: GatewayClient, admin_suite: Suite) -> None:
    group = await new_group(gateway, BEN)
    async with OperatorClient(admin_suite.addresses["admin"], admin_suite.operator_files(), TenantId(2)) as other:
        with pytest.raises(errors.PermissionDenied):
            await other.add_members(group, [CARA])


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (admin_pb2.AddMembersRequest(tenant_id=0), "tenant_id"),
        (admin_pb2.AddMembersRequest(tenant_id=1), "group_id"),
        (admin_pb2.AddMembersRequest(tenant_id=1, group_id=b"\x01" + b"g" * 15), "group_id"),
        (admin_pb2.AddMembersRequest(tenant_id=1, group_id=b"\x02" + b"g" * 15), "request_id"),
        (
            admin_pb2.AddMembersRequest(tenant_id=1, group_id=b"\x02" + b"g" * 15, request_id=b"r" * 16),
            "user_ids",
        ),
        (
            admin_pb2.AddMembersRequest(
                tenant_id=1, group_id=b"\x02" + b"g" * 15, request_id=b"r" * 16, user_ids=[ANA, b"x"]
            ),
            "user_ids[1]",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_bad_field_is_named(admin_suite: Suite, request_: admin_pb2.AddMembersRequest, field: str) -> None:
    async with raw_channel(admin_suite, admin_suite.operator_files()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await admin_pb2_grpc.GroupAdminStub(channel).AddMembers(request_, timeout=5)
    error = from_rpc_error(refused.value)
    assert error.reason == "INVALID_ARGUMENT"
    assert [violation.field for violation in error.violations] == [field]


async def test_a_thousand_and_one_people_are_too_many(gateway: GatewayClient, operator: OperatorClient) -> None:
    group = await new_group(gateway)
    people = [UserId(number.to_bytes(16, "big")) for number in range(1, 1002)]
    with pytest.raises(errors.TooManyItems):
        await operator.add_members(group, people)
    assert (await operator.add_members(group, people[:1000])).member_count == 1001


async def test_a_call_without_a_deadline_is_refused(admin_suite: Suite) -> None:
    async with raw_channel(admin_suite, admin_suite.operator_files()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await admin_pb2_grpc.GroupAdminStub(channel).GetGroup(admin_pb2.GetGroupRequest(tenant_id=1))
    assert from_rpc_error(refused.value).reason == "DEADLINE_REQUIRED"


async def test_a_services_or_gateways_certificate_does_not_connect(admin_suite: Suite) -> None:
    for files in (admin_suite.gateway_files(), admin_suite.pki.issue("writer", "writer-0")):
        async with OperatorClient(admin_suite.addresses["admin"], files, TENANT, timeout=2, policy=ONCE) as stranger:
            with pytest.raises(errors.RemoteError) as refused:
                await stranger.get_group(ConversationId(b"\x02" + bytes(14) + b"\x09"))
            assert refused.value.code is grpc.StatusCode.UNAVAILABLE


async def test_a_method_of_a_later_version_answers_unimplemented(admin_suite: Suite) -> None:
    async with raw_channel(admin_suite, admin_suite.operator_files()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await admin_pb2_grpc.GroupAdminStub(channel).FindGroups(admin_pb2.FindGroupsRequest(), timeout=5)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_every_call_is_in_the_log_with_its_outcome(
    gateway: GatewayClient, operator: OperatorClient, admin_suite: Suite
) -> None:
    group = await new_group(gateway)
    await operator.add_members(group, [CARA])
    with pytest.raises(errors.OwnerCannotLeave):
        await operator.remove_members(group, [ANA])
    calls = journal(admin_suite, group)
    assert [(line["action"], line["outcome"], line["people"], line["changed"]) for line in calls] == [
        ("AddMembers", "OK", 1, 1),
        ("RemoveMembers", "OWNER_CANNOT_LEAVE", 1, 0),
    ]
    assert {line["caller"] for line in calls} == {"spiffe://qim.local/qim/operator/dev-operator"}


async def test_a_writer_that_is_gone_is_named_and_the_same_id_works_once_it_is_back(tmp_path: Path) -> None:
    async with Suite(tmp_path / "suite", valkeys=1, services=("writer", "admin")) as suite:
        writer = suite.addresses["writer"]
        async with GatewayClient(writer, writer, suite.gateway_files()) as gateway:
            group = await new_group(gateway)
        request_id = uuid7()
        await suite.kill("writer")
        async with OperatorClient(suite.addresses["admin"], suite.operator_files(), TENANT, policy=ONCE) as once:
            with pytest.raises(errors.BackendUnavailable):
                await once.add_members(group, [CARA], request_id=request_id)
        await suite.restart("writer")
        async with OperatorClient(suite.addresses["admin"], suite.operator_files(), TENANT, timeout=20) as operator:
            assert (await operator.add_members(group, [CARA], request_id=request_id)).member_count == 2


def raw_channel(suite: Suite, files: TlsFiles) -> grpc.aio.Channel:
    """A channel for requests that the client library would not make."""
    credentials = grpc.ssl_channel_credentials(files.ca.read_bytes(), files.key.read_bytes(), files.cert.read_bytes())
    return grpc.aio.secure_channel(suite.addresses["admin"], credentials)

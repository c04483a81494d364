"""What a caller gets on the wire: identity, roles, deadlines, errors. Over mTLS, against a real server."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from tests.integration.common.conftest import (
    ANA,
    Caller,
    Pairs,
    Rig,
    actor_metadata,
    principal_metadata,
    refusal,
)
from tests.support import conducted

from qim.membership.v1 import membership_pb2
from qim.writer.v1 import writer_pb2
from qim_common.channels import MAX_MESSAGE_BYTES
from qim_common.errors import BackendUnavailable, GroupFrozen, from_rpc_error, from_status
from qim_common.identity import Actor, Principal, PrincipalKind
from qim_common.ids import DeviceId, TenantId, UserId
from qim_devkit.pki import Authority, DevPki

OPERATOR = Principal(PrincipalKind.OPERATOR, "ana", TenantId(1), None)
OUTSIDE = Actor(TenantId(2), ANA.user, ANA.device)


def _send(
    caller: Caller, what: bytes = conducted.OK, *, metadata: Pairs | None = None, timeout: float | None = 5
) -> Any:
    request = membership_pb2.AuthorizeSendRequest(conversation_id=what)
    return caller.membership.AuthorizeSend(
        request, timeout=timeout, metadata=tuple(actor_metadata() if metadata is None else metadata)
    )


def _status(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            assert isinstance(value, bytes)
            return status_pb2.Status.FromString(value)
    raise AssertionError(f"no details: {error}")


def _infos(error: grpc.aio.AioRpcError) -> list[error_details_pb2.ErrorInfo]:
    infos = []
    for detail in _status(error).details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            infos.append(info)
    return infos


async def test_a_gateways_call_reaches_the_handler_with_its_actor(rig: Rig, gateway: Caller) -> None:
    await _send(gateway)

    assert rig.conducted.seen[-1] == ANA


DENIED = grpc.StatusCode.PERMISSION_DENIED
INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("who", "metadata", "timeout", "code", "reason"),
    [
        ("two names", actor_metadata(), 5, DENIED, "ROLE_NOT_ALLOWED"),
        ("no name", actor_metadata(), 5, DENIED, "ROLE_NOT_ALLOWED"),
        ("other form", actor_metadata(), 5, DENIED, "ROLE_NOT_ALLOWED"),
        ("other domain", actor_metadata(), 5, DENIED, "ROLE_NOT_ALLOWED"),
        ("session", [], 5, DENIED, "ROLE_NOT_ALLOWED"),
        ("session", actor_metadata(), 5, DENIED, "ROLE_NOT_ALLOWED"),
        ("writer", actor_metadata(), 5, DENIED, "ROLE_NOT_ALLOWED"),
        ("admin", actor_metadata(), 5, DENIED, "ROLE_NOT_ALLOWED"),
        ("gateway", [*actor_metadata(), *principal_metadata(OPERATOR)], 5, DENIED, "ROLE_NOT_ALLOWED"),
        ("gateway", actor_metadata(), None, INVALID, "DEADLINE_REQUIRED"),
        ("gateway", [], 5, INVALID, "INVALID_ARGUMENT"),
        ("gateway", [*actor_metadata(), *actor_metadata()], 5, INVALID, "INVALID_ARGUMENT"),
        ("gateway", [("qim-actor-bin", b"\xff\xff")], 5, INVALID, "INVALID_ARGUMENT"),
        ("gateway", actor_metadata(OUTSIDE), 5, DENIED, "TENANT_NOT_ALLOWED"),
        ("stranger", actor_metadata(), 5, DENIED, "TENANT_NOT_ALLOWED"),
    ],
)
async def test_a_refused_identity_is_named_and_the_server_serves_on(
    callers: dict[str, Caller],
    gateway: Caller,
    who: str,
    metadata: Pairs,
    timeout: float | None,
    code: grpc.StatusCode,
    reason: str,
) -> None:
    error = await refusal(_send(callers[who], metadata=metadata, timeout=timeout))

    assert error.code() is code
    (info,) = _infos(error)
    assert (info.reason, info.domain) == (reason, "qim")
    await _send(gateway)


async def test_a_malformed_actor_is_answered_with_the_field(gateway: Caller) -> None:
    short = Actor(TenantId(1), UserId(b"ana"), DeviceId(b""))
    error = from_rpc_error(await refusal(_send(gateway, metadata=actor_metadata(short))))

    assert [violation.field for violation in error.violations] == ["qim-actor-bin.user_id"]


@pytest.mark.parametrize(
    ("who", "metadata", "timeout"),
    [
        ("gateway", actor_metadata(), 5),
        ("gateway", principal_metadata(OPERATOR), 5),
        ("gateway", actor_metadata(), None),
        ("session", [], 5),
        ("two names", principal_metadata(OPERATOR), 5),
        ("other domain", principal_metadata(OPERATOR), 5),
        ("admin", [], 5),
        ("admin", actor_metadata(), 5),
        ("admin", [("qim-principal-bin", b"\xff\xff")], 5),
    ],
)
async def test_admin_change_members_needs_the_admin_service_and_a_principal(
    callers: dict[str, Caller], gateway: Caller, who: str, metadata: Pairs, timeout: float | None
) -> None:
    call = callers[who].membership.AdminChangeMembers(
        membership_pb2.AdminMembershipChange(), timeout=timeout, metadata=tuple(metadata)
    )
    error = await refusal(call)

    assert error.code() is DENIED
    assert [info.reason for info in _infos(error)] == ["INTERNAL_IDENTITY_REQUIRED"]
    await _send(gateway)


async def test_the_admin_service_acts_for_its_principal(rig: Rig, callers: dict[str, Caller]) -> None:
    answer = await callers["admin"].membership.AdminChangeMembers(
        membership_pb2.AdminMembershipChange(), timeout=5, metadata=tuple(principal_metadata(OPERATOR))
    )

    assert answer.version == 2
    assert rig.conducted.seen[-1] == OPERATOR


async def test_members_since_is_for_a_gateway_with_an_actor_and_a_session_without(
    rig: Rig, callers: dict[str, Caller]
) -> None:
    request = writer_pb2.MembersSinceRequest()

    await callers["gateway"].writer.MembersSince(request, timeout=5, metadata=tuple(actor_metadata()))
    await callers["session"].writer.MembersSince(request, timeout=5)
    error = await refusal(callers["session"].writer.MembersSince(request, timeout=5, metadata=tuple(actor_metadata())))

    assert rig.conducted.seen[-2:] == [ANA, None]
    assert [info.reason for info in _infos(error)] == ["ROLE_NOT_ALLOWED"]


@pytest.mark.parametrize("authority", [None, Authority.FOREIGN])
async def test_without_a_certificate_of_the_services_ca_there_is_no_connection(
    rig: Rig, pki: DevPki, gateway: Caller, authority: Authority | None
) -> None:
    roots = pki.services_ca.read_bytes()
    if authority is None:
        credentials = grpc.ssl_channel_credentials(roots)
    else:
        files = pki.issue("gateway", "g", authority=authority)
        credentials = grpc.ssl_channel_credentials(roots, files.key.read_bytes(), files.cert.read_bytes())
    async with grpc.aio.secure_channel(rig.addresses.grpc, credentials) as channel:
        call: Any = channel.unary_unary("/qim.membership.v1.GroupMembership/AuthorizeSend")
        error = await refusal(call(b"", timeout=5, metadata=tuple(actor_metadata())))

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    await _send(gateway)


async def test_an_operators_certificate_does_not_open_a_services_port(rig: Rig, pki: DevPki) -> None:
    files = pki.issue("operator", "ana")
    caller = Caller(rig.provider(files))
    error = await refusal(_send(caller))
    await caller.provider.close()

    assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_plaintext_client_gets_nothing(rig: Rig, gateway: Caller) -> None:
    async with grpc.aio.insecure_channel(rig.addresses.grpc) as channel:
        call: Any = channel.unary_unary("/qim.membership.v1.GroupMembership/AuthorizeSend")
        error = await refusal(call(b"", timeout=5))

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    await _send(gateway)


async def test_a_refusal_of_the_rules_travels_with_its_reason(gateway: Caller) -> None:
    error = await refusal(_send(gateway, conducted.FROZEN))

    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert isinstance(from_rpc_error(error), GroupFrozen)
    assert error.details() == GroupFrozen().message


async def test_a_refusal_raised_in_a_task_group_travels_too(gateway: Caller) -> None:
    assert isinstance(from_rpc_error(await refusal(_send(gateway, conducted.GROUPED))), GroupFrozen)


async def test_a_bug_is_internal_with_a_request_id_and_no_text(
    gateway: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    error = await refusal(_send(gateway, conducted.BUG))

    assert error.code() is grpc.StatusCode.INTERNAL
    (info,) = _infos(error)
    request_id = info.metadata["request_id"]
    assert len(bytes.fromhex(request_id)) == 16
    assert error.details() == f"request {request_id}"
    assert "hunter2" not in str(error)
    assert b"hunter2" not in _status(error).SerializeToString()
    (record,) = [record for record in caplog.records if record.message == "unhandled exception"]
    assert vars(record)["request_id"] == request_id
    await _send(gateway)


@pytest.mark.parametrize(
    ("what", "code", "reason"),
    [
        (conducted.BACKEND_GONE, grpc.StatusCode.UNAVAILABLE, "BACKEND_UNAVAILABLE"),
        (conducted.BACKEND_BUG, grpc.StatusCode.INTERNAL, "INTERNAL"),
    ],
)
async def test_the_failure_of_another_service_shows_nothing_of_it(
    gateway: Caller, what: bytes, code: grpc.StatusCode, reason: str
) -> None:
    error = await refusal(_send(gateway, what))

    assert error.code() is code
    assert [info.reason for info in _infos(error)] == [reason]
    assert "10.0.0.7" not in str(error)
    assert "secret" not in str(error)


async def test_a_method_of_a_later_release_is_unimplemented_with_the_generated_words(gateway: Caller) -> None:
    error = await refusal(
        gateway.membership.AuthorizeHistory(
            membership_pb2.AuthorizeHistoryRequest(), timeout=5, metadata=tuple(actor_metadata())
        )
    )

    assert (error.code(), error.details()) == (grpc.StatusCode.UNIMPLEMENTED, "Method not implemented!")


async def test_an_unimplemented_method_still_asks_who_calls(callers: dict[str, Caller]) -> None:
    call = callers["session"].membership.AuthorizeHistory(membership_pb2.AuthorizeHistoryRequest(), timeout=5)

    assert [info.reason for info in _infos(await refusal(call))] == ["ROLE_NOT_ALLOWED"]


async def test_a_method_that_does_not_exist_is_unimplemented(gateway: Caller) -> None:
    call: Any = gateway.provider.channel.unary_unary("/qim.writer.v1.Writer/Nothing")

    assert (await refusal(call(b"", timeout=5))).code() is grpc.StatusCode.UNIMPLEMENTED
    await _send(gateway)


async def test_a_request_above_the_size_limit_is_refused_and_the_server_serves_on(rig: Rig, pki: DevPki) -> None:
    caller = Caller(
        rig.provider(pki.issue("gateway", "g"), options=[("grpc.max_send_message_length", 2 * MAX_MESSAGE_BYTES)])
    )
    error = await refusal(_send(caller, bytes(MAX_MESSAGE_BYTES + 1)))

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await _send(caller)
    await _send(caller, bytes(MAX_MESSAGE_BYTES - 1000))
    await caller.provider.close()


async def test_bytes_that_are_no_message_are_refused_and_the_server_serves_on(gateway: Caller) -> None:
    call: Any = gateway.provider.channel.unary_unary("/qim.membership.v1.GroupMembership/AuthorizeSend")
    error = await refusal(call(b"\xff\xff\xff", timeout=5, metadata=tuple(actor_metadata())))

    assert [info.reason for info in _infos(error)] == ["INVALID_ARGUMENT"]
    await _send(gateway)


async def test_a_frame_that_is_no_message_ends_its_stream_only(gateway: Caller) -> None:
    open_stream: Any = gateway.provider.channel.stream_stream("/qim.writer.v1.Writer/SendMessages")
    stream = open_stream(iter([b"\xff\xff\xff"]))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()

    assert [info.reason for info in _infos(refused.value)] == ["INVALID_ARGUMENT"]
    await _send(gateway)


async def test_a_stream_of_answers_needs_no_deadline_and_ends_with_its_refusal(callers: dict[str, Caller]) -> None:
    stub = callers["session"].membership
    request = membership_pb2.RecipientsForVersionRequest()
    versions = [chunk.membership_version async for chunk in stub.RecipientsForVersion(request)]
    assert versions == [1, 2]

    request.group_id = conducted.FROZEN
    stream = stub.RecipientsForVersion(request)
    first = await stream.read()
    assert isinstance(first, membership_pb2.RecipientChunk)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()
    assert isinstance(from_rpc_error(refused.value), GroupFrozen)


async def test_a_stream_of_answers_that_meets_its_callers_deadline_ends_by_name(callers: dict[str, Caller]) -> None:
    request = membership_pb2.RecipientsForVersionRequest(group_id=conducted.FOREVER)
    stream = callers["session"].membership.RecipientsForVersion(request, timeout=1)
    assert isinstance(await stream.read(), membership_pb2.RecipientChunk)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()

    assert isinstance(from_rpc_error(refused.value), BackendUnavailable)


async def test_a_stream_of_requests_takes_actors_from_its_frames(rig: Rig, gateway: Caller) -> None:
    stream = gateway.writer.SendMessages()
    await stream.write(writer_pb2.SendMessagesRequest(frame_number=7, actors=[ANA.to_message()]))
    answer = await stream.read()
    await stream.done_writing()

    assert isinstance(answer, writer_pb2.SendMessagesResponse)
    assert answer.frame_number == 7
    assert isinstance(from_status(answer.results[0].status), GroupFrozen)
    assert await stream.code() is grpc.StatusCode.OK
    assert rig.conducted.seen[-1] == ANA


@pytest.mark.parametrize(
    ("who", "actor", "metadata", "reason"),
    [
        ("gateway", OUTSIDE, [], "TENANT_NOT_ALLOWED"),
        ("gateway", Actor(TenantId(1), UserId(b"ana"), DeviceId(b"")), [], "INVALID_ARGUMENT"),
        ("gateway", ANA, actor_metadata(), "ROLE_NOT_ALLOWED"),
        ("session", ANA, [], "ROLE_NOT_ALLOWED"),
    ],
)
async def test_a_stream_with_a_wrong_identity_ends_with_its_reason(
    callers: dict[str, Caller], who: str, actor: Actor, metadata: Pairs, reason: str
) -> None:
    frames = [writer_pb2.SendMessagesRequest(frame_number=1, actors=[actor.to_message()])]
    stream = callers[who].writer.SendMessages(iter(frames), metadata=tuple(metadata))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()

    assert [info.reason for info in _infos(refused.value)] == [reason]

"""Who may call what, for every method of the writer: over real mTLS, with certificates of every kind."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.support.refusals import Refusal, failure, refusal
from tests.support.writer_methods import METHODS, OF_GATEWAYS, SERVED, Method
from tests.support.writers import (
    ANA,
    FORBIDDEN_TENANT,
    OPERATOR,
    Caller,
    Pairs,
    Writers,
    acting,
    as_actor,
    as_principal,
)

from qim.membership.v1 import membership_pb2
from qim.writer.v1 import group_control_pb2, internal_pb2, writer_pb2
from qim_common.ids import ConversationId
from qim_devkit.pki import Authority

pytestmark = pytest.mark.server

ROLES = ("gateway", "session", "admin", "writer")
ALL = pytest.mark.parametrize("method", METHODS, ids=str)
DENIED = "PERMISSION_DENIED"


def test_the_table_of_these_tests_names_every_method() -> None:
    described = {
        f"/{service.full_name}/{each.name}"
        for file in (membership_pb2, writer_pb2, internal_pb2, group_control_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for each in service.methods
    }
    assert {method.path for method in METHODS} == described


@pytest.mark.parametrize("method", SERVED, ids=str)
async def test_a_good_call_is_answered(writers: Writers, method: Method, group: ConversationId) -> None:
    if method.name == "LeaveGroup":
        assert (await refused(writers, method, group)).reason == "OWNER_CANNOT_LEAVE"
    else:
        await method.call(writers.caller(method.role), method.request(group))


@pytest.mark.parametrize("method", [each for each in METHODS if not each.implemented], ids=str)
async def test_a_method_of_a_later_release_answers_unimplemented(
    writers: Writers, method: Method, group: ConversationId
) -> None:
    error = await failure(method.call(writers.caller(method.role), method.request(group)))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def refused(writers: Writers, method: Method, group: ConversationId, **how: Any) -> Refusal:
    caller = how.pop("caller", None) or writers.caller(method.role)
    return await refusal(method.call(caller, method.request(group), **how))


@ALL
async def test_a_certificate_of_another_role_is_refused(
    writers: Writers, method: Method, group: ConversationId
) -> None:
    allowed = {each.role for each in METHODS if each.path == method.path}
    reason = "INTERNAL_IDENTITY_REQUIRED" if method.name == "AdminChangeMembers" else "ROLE_NOT_ALLOWED"
    for role in (role for role in ROLES if role not in allowed):
        for metadata in (method.identity(), ()):
            answer = await refused(writers, method, group, caller=writers.caller(role), metadata=metadata)
            assert answer.name == (DENIED, reason), role


@ALL
async def test_a_certificate_with_two_names_or_none_is_nobody(
    writers: Writers, method: Method, group: ConversationId
) -> None:
    pki = writers.suite.pki
    reason = "INTERNAL_IDENTITY_REQUIRED" if method.name == "AdminChangeMembers" else "ROLE_NOT_ALLOWED"
    own = pki.spiffe_id(method.role, "two")
    for uris in ([own, pki.spiffe_id("admin", "two")], [own, "https://example.org/two"], []):
        caller = writers.caller(method.role, "two", uris=uris)
        assert (await refused(writers, method, group, caller=caller)).name == (DENIED, reason)


@ALL
async def test_who_asserts_an_identity_that_the_method_does_not_take_is_refused(
    writers: Writers, method: Method, group: ConversationId
) -> None:
    ana, operator = as_actor(acting(ANA)), as_principal()
    own = method.identity()
    for foreign in (ana, operator):
        if foreign[0][0] not in {key for key, _ in own}:
            answer = await refused(writers, method, group, metadata=(*own, *foreign))
            assert answer.name == (DENIED, "ROLE_NOT_ALLOWED")


@pytest.mark.parametrize("method", [each for each in METHODS if not each.stream], ids=str)
async def test_a_unary_call_without_a_deadline_is_refused(
    writers: Writers, method: Method, group: ConversationId
) -> None:
    assert (await refused(writers, method, group, timeout=None)).name == ("INVALID_ARGUMENT", "DEADLINE_REQUIRED")


WITH_ACTOR = [each for each in OF_GATEWAYS if not each.stream]


@pytest.mark.parametrize("method", WITH_ACTOR, ids=str)
async def test_a_call_for_an_end_user_names_one_well_formed_actor(
    writers: Writers, method: Method, group: ConversationId
) -> None:
    ana = acting(ANA).to_message()

    def spoilt(**fields: Any) -> Pairs:
        changed = type(ana)()
        changed.CopyFrom(ana)
        for name, value in fields.items():
            setattr(changed, name, value)
        return (("qim-actor-bin", changed.SerializeToString()),)

    cases: list[tuple[Pairs, str]] = [
        ((), "qim-actor-bin"),
        ((*as_actor(acting(ANA)), *as_actor(acting(ANA))), "qim-actor-bin"),
        ((("qim-actor-bin", b"\xff\xff"),), "qim-actor-bin"),
        (spoilt(tenant_id=0), "qim-actor-bin.tenant_id"),
        (spoilt(user_id=b""), "qim-actor-bin.user_id"),
        (spoilt(user_id=b"a" * 17), "qim-actor-bin.user_id"),
        (spoilt(user_id=bytes(16)), "qim-actor-bin.user_id"),
        (spoilt(device_id=b"d"), "qim-actor-bin.device_id"),
        (spoilt(device_id=bytes(16)), "qim-actor-bin.device_id"),
    ]
    for metadata, field in cases:
        answer = await refused(writers, method, group, metadata=metadata)
        assert (answer.name, answer.fields) == (("INVALID_ARGUMENT", "INVALID_ARGUMENT"), (field,))


@pytest.mark.parametrize("method", WITH_ACTOR, ids=str)
async def test_a_gateway_acts_in_its_own_tenants_only(writers: Writers, method: Method, group: ConversationId) -> None:
    outside = as_actor(acting(ANA, FORBIDDEN_TENANT))
    stranger = writers.caller("gateway", "unbound")
    for answer in (
        await refused(writers, method, group, metadata=outside),
        await refused(writers, method, group, caller=stranger),
    ):
        assert answer.name == (DENIED, "TENANT_NOT_ALLOWED")


@pytest.mark.parametrize("method", [each for each in METHODS if each.role == "admin"], ids=str)
async def test_a_call_for_an_operator_needs_one_well_formed_principal(
    writers: Writers, method: Method, group: ConversationId
) -> None:
    good = OPERATOR.to_message()

    def spoilt(**fields: Any) -> Pairs:
        changed = type(good)()
        changed.CopyFrom(good)
        for name, value in fields.items():
            setattr(changed, name, value)
        return (("qim-principal-bin", changed.SerializeToString()),)

    for metadata in (
        (),
        (*as_principal(), *as_principal()),
        (("qim-principal-bin", b"\xff\xff"),),
        spoilt(kind=0),
        spoilt(kind=9),
        spoilt(name=""),
        spoilt(name="n" * 129),
        spoilt(tenant_id=0),
        spoilt(initiator=b"short"),
        spoilt(initiator=ANA),  # an operator names no initiator
    ):
        answer = await refused(writers, method, group, metadata=metadata)
        assert answer.name == (DENIED, "INTERNAL_IDENTITY_REQUIRED"), metadata


@ALL
async def test_bytes_that_are_no_message_are_refused(writers: Writers, method: Method) -> None:
    channel: Any = writers.caller(method.role).provider.channel
    if method.stream == "both":
        call = channel.stream_stream(method.path)(iter([b"\xff\xff\xff"]), metadata=method.identity()).read()
    elif method.stream:
        call = channel.unary_stream(method.path)(b"\xff\xff\xff", metadata=method.identity()).read()
    else:
        call = channel.unary_unary(method.path)(b"\xff\xff\xff", timeout=5, metadata=method.identity())
    answer = await refusal(call)
    assert (answer.name, answer.fields) == (("INVALID_ARGUMENT", "INVALID_ARGUMENT"), ("request",))


@pytest.mark.parametrize("how", ["no certificate", "foreign authority", "operators' authority", "expired"])
async def test_without_a_good_certificate_of_the_services_authority_there_is_no_connection(
    writers: Writers, how: str
) -> None:
    pki = writers.suite.pki
    roots = pki.services_ca.read_bytes()
    if how == "no certificate":
        credentials = grpc.ssl_channel_credentials(roots)
    else:
        authority = {"foreign authority": Authority.FOREIGN, "operators' authority": Authority.OPERATORS}.get(how)
        files = pki.issue("gateway", "dev-gateway", authority=authority, expired=how == "expired")
        credentials = grpc.ssl_channel_credentials(roots, files.key.read_bytes(), files.cert.read_bytes())
    for method in SERVED:
        async with grpc.aio.secure_channel(writers.address, credentials) as channel:
            call: Any = channel.unary_unary(method.path)
            error = await failure(call(b"", timeout=5, metadata=method.identity()))
        assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_stream_of_a_wrong_role_is_refused_before_any_frame(writers: Writers) -> None:
    for role in ("session", "admin", "writer"):
        caller: Caller = writers.caller(role)
        stream = caller.writer.SendMessages()
        assert (await refusal(stream.read())).name == (DENIED, "ROLE_NOT_ALLOWED")

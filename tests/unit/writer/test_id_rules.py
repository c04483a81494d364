"""Ids: what is taken from callers, and the derived ones against vectors computed with another BLAKE3 (a plain
implementation of its specification), so that no two versions of the suite ever route or derive differently."""

from __future__ import annotations

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qim_common.errors import InvalidArgument
from qim_common.ids import (
    MAX_TENANT,
    ZERO_ID,
    ConversationId,
    ConversationKind,
    MembershipOp,
    TenantId,
    UserId,
    commit_bucket,
    control_body,
    derived_group_id,
    direct_conversation_id,
    group_conversation_id,
    kind_of,
    membership_event_message_id,
    parse_control_body,
    parse_conversation,
    parse_group,
    parse_id,
    parse_shown,
    parse_tenant,
    parse_user,
    person_bucket,
    show,
    strip_kind,
    uuid7,
    uuid7_millis,
)
from qim_common.topology import Topology

UP, DOWN = UserId(bytes(range(1, 17))), UserId(bytes(range(16, 0, -1)))
GROUP = ConversationId(bytes.fromhex("022122232425262728292a2b2c2d2e2f"))
SEVEN = TenantId(7)
UUID7 = bytes.fromhex("018f0000000070008000000000000001")
ids = st.binary(min_size=16, max_size=16)


@pytest.mark.parametrize("kind", [b"\0", b"\2"])
def test_a_group_is_named_raw_or_with_its_kind_and_has_one_canonical_id(kind: bytes) -> None:
    named = kind + GROUP[1:]
    assert strip_kind(named) == b"\0" + GROUP[1:]
    assert group_conversation_id(strip_kind(named)) == parse_group(named) == parse_conversation(named) == GROUP
    assert kind_of(parse_group(named)) is ConversationKind.GROUP


@given(ids.filter(lambda raw: any(raw[1:])))
def test_every_other_kind_is_no_group(raw: bytes) -> None:
    if raw[0] in (0, 2):
        assert parse_group(raw)[1:] == raw[1:]
    else:
        with pytest.raises(InvalidArgument, match="group_id: is not a group id"):
            strip_kind(raw)


@pytest.mark.parametrize("parse", [strip_kind, parse_group, parse_conversation])
@pytest.mark.parametrize(
    "bad",
    [b"", bytes(15), bytes(17), ZERO_ID, b"\2" + bytes(15), b"\1" + bytes(15), b"\3" + GROUP[1:], b"\xff" * 16],
    ids=["empty", "15", "17", "zero", "kind only", "direct kind only", "kind 3", "kind 255"],
)
def test_what_is_no_id_of_a_group_is_refused_by_the_callers_field(parse: object, bad: bytes) -> None:
    assert callable(parse)
    with pytest.raises(InvalidArgument) as caught:
        parse(bad, "where")
    assert [violation.field for violation in caught.value.violations] == ["where"]


def test_a_direct_conversation_keeps_its_id_and_is_no_group() -> None:
    direct = direct_conversation_id(SEVEN, UP, DOWN)
    assert parse_conversation(direct) == direct
    assert kind_of(direct) is ConversationKind.DIRECT
    with pytest.raises(InvalidArgument):
        parse_group(direct)


@pytest.mark.parametrize("bad", [b"", bytes(15), bytes(17), ZERO_ID])
def test_an_id_has_16_bytes_that_are_not_all_zero(bad: bytes) -> None:
    for parse in (parse_id, parse_user):
        with pytest.raises(InvalidArgument) as caught:
            parse(bad, "user_ids[3]")
        assert [violation.field for violation in caught.value.violations] == ["user_ids[3]"]


@pytest.mark.parametrize("tenant", [1, MAX_TENANT])
def test_tenants_are_all_but_zero(tenant: int) -> None:
    assert parse_tenant(tenant) == tenant


@pytest.mark.parametrize("tenant", [0, -1, MAX_TENANT + 1])
def test_a_tenant_out_of_its_range_is_refused(tenant: int) -> None:
    with pytest.raises(InvalidArgument):
        parse_tenant(tenant)


@pytest.mark.parametrize(
    ("tenant", "conversation", "buckets", "bucket"),
    [
        (1, GROUP, 256, 194),
        (1, GROUP, 1000, 554),
        (1, GROUP, 1, 0),
        (7, GROUP, 256, 217),
        (MAX_TENANT, GROUP, 256, 248),
        (1, UP, 256, 71),
        (1, DOWN, 64, 6),
    ],
)
def test_buckets_of_conversations_and_people(tenant: int, conversation: bytes, buckets: int, bucket: int) -> None:
    assert commit_bucket(TenantId(tenant), ConversationId(conversation), buckets) == bucket
    assert person_bucket(TenantId(tenant), UserId(conversation), buckets) == bucket
    topology = Topology(("a:1",), buckets, "i")
    assert topology.conversation_bucket(TenantId(tenant), ConversationId(conversation)) == bucket
    assert topology.person_bucket(TenantId(tenant), UserId(conversation)) == bucket


def test_derived_ids() -> None:
    assert derived_group_id(SEVEN, UP, UUID7).hex() == "022de4bbde8c565a8b26f7a3fd5b9a46"
    assert direct_conversation_id(SEVEN, UP, DOWN).hex() == "01d9bccf6d6bb2fb2f5dc4feecba468b"
    assert direct_conversation_id(SEVEN, DOWN, UP).hex() == "01d9bccf6d6bb2fb2f5dc4feecba468b"
    assert direct_conversation_id(SEVEN, UP, UP).hex() == "010f2d09d81a8c5c64d10daf70eadf45"


@pytest.mark.parametrize(
    ("op", "actor", "version", "people", "message_id"),
    [
        (MembershipOp.JOIN, ZERO_ID, 1, [UP], "dc3b94f265cbc84327208ab9b62a2c07"),
        (MembershipOp.JOIN, DOWN, 5, [DOWN, UP, DOWN], "23379859eee3917ae6613cf40f610ec2"),
        (MembershipOp.LEAVE, UP, 2**40, [UP], "f0e908564e20ce8b2f95c656a052fac6"),
        (MembershipOp.REMOVE, ZERO_ID, 7, [UP, DOWN], "4693d834cbdc6e927cce24e2cc6c0c8d"),
    ],
)
def test_the_message_id_of_a_membership_event(
    op: MembershipOp, actor: bytes, version: int, people: list[bytes], message_id: str
) -> None:
    assert membership_event_message_id(SEVEN, GROUP, op, actor, version, people).hex() == message_id


def test_a_control_body_has_everybody_once_in_ascending_order() -> None:
    body = control_body(MembershipOp.REMOVE, ZERO_ID, [DOWN, UP, DOWN])
    assert body == b"\x03" + ZERO_ID + b"\x00\x02" + UP + DOWN


@given(st.sampled_from(MembershipOp), ids, st.lists(ids, max_size=30))
def test_a_control_body_comes_back(op: MembershipOp, actor: bytes, people: list[bytes]) -> None:
    assert parse_control_body(control_body(op, actor, people)) == (op, actor, tuple(sorted(set(people))))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        control_body(MembershipOp.JOIN, UP, [UP])[:-1],
        control_body(MembershipOp.JOIN, UP, [UP]) + b"\0",
        b"\x04" + control_body(MembershipOp.JOIN, UP, [UP])[1:],
    ],
)
def test_a_control_body_that_is_none_is_an_error(body: bytes) -> None:
    with pytest.raises((struct.error, ValueError)):
        parse_control_body(body)


def test_the_time_of_a_uuid7_and_of_no_other_id() -> None:
    made = uuid7()
    assert uuid.UUID(bytes=made).version == 7
    assert uuid.UUID(bytes=made).variant == uuid.RFC_4122
    assert uuid7_millis(made) == int.from_bytes(made[:6], "big")
    assert uuid7_millis(UUID7) == 0x018F00000000
    assert uuid7_millis(uuid.uuid4().bytes) == 0
    assert uuid7_millis(UUID7[:8] + b"\x00" + UUID7[9:]) == 0, "version 7 of another variant"


def test_ids_are_shown_and_typed_as_uuids() -> None:
    assert parse_shown(show(UP), "user") == UP
    for text in ("", "ana", show(ZERO_ID)):
        with pytest.raises(InvalidArgument, match="user"):
            parse_shown(text, "user")


def test_instances_take_turns_with_the_buckets() -> None:
    topology = Topology(("a:1", "b:1", "c:1"), 8, "i")
    assert [topology.instance_of(bucket) for bucket in range(8)] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert [list(topology.buckets_of(instance)) for instance in range(3)] == [[0, 3, 6], [1, 4, 7], [2, 5]]


@pytest.mark.parametrize(("addresses", "buckets"), [((), 256), (("a:1",), 0), (("a:1",), 1001)])
def test_a_topology_that_cannot_be_is_refused(addresses: tuple[str, ...], buckets: int) -> None:
    with pytest.raises(ValueError, match=r"instance|buckets"):
        Topology(addresses, buckets, "i")

"""Between protobuf and the client's values: nothing is lost, nothing unset is mistaken."""

from __future__ import annotations

import pytest

from qim.admin.v1 import admin_pb2
from qim.common.v1 import types_pb2
from qim.session.v1 import session_pb2
from qim.writer.v1 import writer_pb2
from qim_client import convert, convert_operators, values
from qim_client.events import CUSTOM_TYPE, parse_membership_event
from qim_common.enums import LeaverHistory, MemberState, NewcomerPolicy, RejoinHistory
from qim_common.errors import GroupFrozen, to_status
from qim_common.identity import Actor
from qim_common.ids import ConversationId, DeviceId, MembershipOp, TenantId, UserId, control_body
from qim_common.records import Audience, RecordType, StateChange
from qim_common.settings_wire import settings_to_wire

GROUP = ConversationId(b"\x02" + b"g" * 15)
ANA, BEN = UserId(b"a" * 16), UserId(b"b" * 16)


def wire_message(**changes: object) -> types_pb2.Message:
    message = types_pb2.Message(
        conversation_id=GROUP,
        seq=7,
        generation=1,
        membership_version=3,
        time_ms=1_700_000_000_000,
        type=types_pb2.MESSAGE_TYPE_ORDINARY,
        sender_user_id=ANA,
        sender_device_id=ANA,
        client_message_id=b"m" * 16,
        body=b"hello",
        prev_seq=6,
        audience=types_pb2.AUDIENCE_BROADCAST,
    )
    message.MergeFrom(types_pb2.Message(**changes))  # type: ignore[arg-type]
    return message


@pytest.mark.parametrize(
    "settings",
    [
        values.GroupSettings(),
        values.GroupSettings(NewcomerPolicy.LAST_N, 100, RejoinHistory.ALL_STAYS),
        values.GroupSettings(leaver=LeaverHistory.NONE, broadcast_max_members=2, member_limit=9, retention_days=3),
    ],
)
def test_settings_survive_the_wire(settings: values.GroupSettings) -> None:
    assert convert.settings_from_wire(settings_to_wire(settings)) == settings


def test_unset_settings_are_the_defaults() -> None:
    assert convert.settings_from_wire(types_pb2.GroupSettings()) == values.GroupSettings()


def test_an_ordinary_message_has_no_event() -> None:
    message = convert.message(wire_message())
    assert (message.seq, message.type, message.audience) == (7, RecordType.ORDINARY, Audience.BROADCAST)
    assert (message.body, message.prev_seq, message.event) == (b"hello", 6, None)


def test_a_control_message_says_who_changed_whom() -> None:
    body = control_body(MembershipOp.JOIN, ANA, [BEN])
    message = convert.message(wire_message(type=types_pb2.MESSAGE_TYPE_CONTROL, custom_type=CUSTOM_TYPE, body=body))
    assert message.event == values.MembershipEvent(MembershipOp.JOIN, ANA, (BEN,))


def test_an_operators_event_has_no_actor_and_a_newer_type_no_event() -> None:
    event = parse_membership_event(CUSTOM_TYPE, control_body(MembershipOp.REMOVE, bytes(16), [BEN, ANA]))
    assert event == values.MembershipEvent(MembershipOp.REMOVE, None, (ANA, BEN))
    assert parse_membership_event("qim.membership.v2", b"") is None


@pytest.mark.parametrize("cut", [0, 18, 34])
def test_a_cut_event_is_an_error(cut: int) -> None:
    with pytest.raises(ValueError, match="membership event"):
        parse_membership_event(CUSTOM_TYPE, control_body(MembershipOp.LEAVE, ANA, [ANA])[:cut])


def test_an_item_is_sent_or_refused_with_its_reason() -> None:
    good = writer_pb2.SendResult(client_message_id=b"m" * 16, conversation_id=GROUP, seq=9, time_ms=5)
    bad = writer_pb2.SendResult(client_message_id=b"n" * 16, status=to_status(GroupFrozen()))
    assert convert.send_outcome(good).result().seq == 9
    refused = convert.send_outcome(bad)
    assert refused.client_message_id == b"n" * 16
    with pytest.raises(GroupFrozen):
        refused.result()


def test_a_message_to_a_person_names_no_conversation() -> None:
    actor = Actor(TenantId(1), ANA, DeviceId(ANA))
    wire = convert.outgoing_to_wire(values.Outgoing(actor, b"x", peer=BEN), 3)
    assert (wire.conversation_id, wire.peer_user_id, wire.actor_index) == (b"", BEN, 3)
    assert len(wire.client_message_id) == 16


def test_each_message_has_an_id_of_its_own_and_keeps_it() -> None:
    actor = Actor(TenantId(1), ANA, DeviceId(ANA))
    one, other = values.Outgoing(actor, b"x", conversation=GROUP), values.Outgoing(actor, b"x", conversation=GROUP)
    assert one.client_message_id != other.client_message_id
    assert convert.outgoing_to_wire(one).client_message_id == convert.outgoing_to_wire(one).client_message_id


def test_a_list_entry_without_a_visible_message_has_no_preview() -> None:
    wire = session_pb2.Conversation(
        conversation_id=GROUP,
        kind=types_pb2.CONVERSATION_KIND_GROUP,
        state=types_pb2.MEMBER_STATE_LEFT,
        stay=types_pb2.Stay(state=types_pb2.MEMBER_STATE_LEFT, left_at_conversation_seq=4, ended_version=2),
    )
    entry = convert.conversation(wire)
    assert (entry.preview, entry.state, entry.stay.left_at) == (None, MemberState.LEFT, 4)


def test_a_mailbox_entry_is_acknowledged_with_its_last_seq() -> None:
    page = convert.mailbox_page(
        session_pb2.PullMailboxResponse(
            entries=[
                session_pb2.MailboxEntry(conversation_id=GROUP, generation=1, message=wire_message()),
                session_pb2.MailboxEntry(
                    conversation_id=GROUP, generation=1, withheld=types_pb2.SeqRange(first_seq=8, last_seq=12)
                ),
            ]
        )
    )
    assert [entry.cursor.seq for entry in page.entries] == [7, 12]
    assert page.entries[1].message is None


def test_an_empty_group_has_no_owner() -> None:
    assert convert_operators.group_details(admin_pb2.GroupDetails(group_id=GROUP)).owner is None
    assert (
        convert_operators.group_details(admin_pb2.GroupDetails(group_id=GROUP, owner_user_id=bytes(16))).owner is None
    )


def test_an_event_whose_record_was_removed_has_no_kind_and_names_nobody() -> None:
    change = convert.membership_change(types_pb2.MembershipChange(version=4, seq=9))
    assert change == values.MembershipChange(4, None, 9, 0, (), None)


@pytest.mark.parametrize("kind", StateChange)
def test_every_kind_of_state_entry_is_known(kind: StateChange) -> None:
    wire = types_pb2.StateChange(revision=2, kind=types_pb2.StateChange.Kind.ValueType(kind), made_by="retention")
    assert convert_operators.state_entry(wire).kind is kind


def test_a_state_entry_says_only_what_it_set() -> None:
    floor = types_pb2.StateChange(kind=types_pb2.StateChange.KIND_FLOOR, group_floor_seq=7, made_by="operator:olga")
    entry = convert_operators.state_entry(floor)
    assert (entry.settings, entry.owner, entry.group_floor_seq, entry.made_by) == (None, None, 7, "operator:olga")
    owner = types_pb2.StateChange(
        kind=types_pb2.StateChange.KIND_OWNER, owner_user_id=BEN, settings=types_pb2.GroupSettings(), frozen=True
    )
    entry = convert_operators.state_entry(owner)
    assert (entry.settings, entry.owner, entry.frozen) == (values.GroupSettings(), BEN, True)


def test_a_decision_without_a_stay_has_none() -> None:
    wire = admin_pb2.ExplainVisibilityResponse(cause="never_member", sentence="The person never was in the group.")
    found = convert_operators.explanation(wire)
    assert (found.visible, found.delivered, found.cause, found.stay) == (False, False, "never_member", None)
    wire.stay.joined_at_conversation_seq = 3
    wire.stay.state = types_pb2.MEMBER_STATE_MEMBER
    stay = convert_operators.explanation(wire).stay
    assert stay is not None
    assert stay.joined_at == 3

"""From what a caller wrote to a checked message; every bad input by its field."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.writer.people import ANA, BEN, CARA, GROUP, TENANT

from qim_common.errors import InvalidArgument, MessageTooLarge, QimError
from qim_common.identity import Actor
from qim_common.ids import ZERO_ID, DeviceId, TenantId, UserId, direct_conversation_id
from qim_common.records import RecordType, unpack_tail
from qim_writer.commands.send import prepare_send
from qim_writer.storage import Conversation, Send

UUID7 = bytes.fromhex("018f0000000070008000000000000001")
DEVICE = DeviceId(b"d" * 16)
ACTOR = Actor(TENANT, ANA, DEVICE)


class Nowhere:
    """A sink that no outcome reaches: nothing is submitted here."""

    expired = False

    def committed(self, index: int, seq: int, time_ms: int, version: int, generation: int) -> None:
        raise AssertionError

    def refused(self, index: int, error: QimError) -> None:
        raise AssertionError


SINK = Nowhere()


def prepare(actor: Actor = ACTOR, **changes: Any) -> Send:
    """A good message to the group, but for the changes."""
    message: dict[str, Any] = {
        "conversation_id": GROUP,
        "peer": b"",
        "message_id": UUID7,
        "custom_type": "",
        "record_type": 0,
        "body": b"hello",
        "expected_version": 0,
        "max_bytes": 100,
    }
    return prepare_send(actor, **{**message, **changes}, sink=SINK, index=3)


def test_a_message_carries_the_actor_as_its_sender() -> None:
    send = prepare(custom_type="app.sticker", expected_version=9)
    assert (send.conversation, send.sender, send.people) == (Conversation(TENANT, GROUP), ANA, ())
    assert (send.expected_version, send.index, send.sink) == (9, 3, SINK)
    tail = unpack_tail(send.tail)
    assert (tail.type, tail.sender, tail.device) == (RecordType.ORDINARY, ANA, DEVICE)
    assert (tail.client_message_id, tail.custom_type, tail.body) == (UUID7, "app.sticker", b"hello")
    assert send.key.time_ms == 0x018F00000000


def test_a_raw_group_id_is_the_canonical_one() -> None:
    assert prepare(conversation_id=b"\0" + GROUP[1:]) == prepare()


@pytest.mark.parametrize(
    ("actor", "peer", "people"), [(ANA, BEN, (ANA, BEN)), (BEN, ANA, (ANA, BEN)), (ANA, ANA, (ANA,))]
)
def test_a_peer_stands_for_the_direct_conversation(actor: UserId, peer: UserId, people: tuple[UserId, ...]) -> None:
    send = prepare(Actor(TENANT, actor, DEVICE), conversation_id=b"", peer=peer)
    assert send.conversation.id == direct_conversation_id(TENANT, people[0], people[-1])
    assert send.people == people
    assert send.sender == actor


@pytest.mark.parametrize("change", [{"body": b""}, {"body": b"x" * 100}, {"custom_type": "x" * 128}])
def test_the_largest_and_the_smallest_are_taken(change: dict[str, Any]) -> None:
    prepare(**change)


@pytest.mark.parametrize("record_type", [0, RecordType.ORDINARY])
def test_the_type_may_be_left_out(record_type: int) -> None:
    assert prepare(record_type=record_type) == prepare()


def test_a_type_of_the_service_is_not_taken_for_a_longer_word() -> None:
    assert unpack_tail(prepare(custom_type="qimble").tail).custom_type == "qimble"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"conversation_id": b""}, "conversation_id"),
        ({"conversation_id": GROUP[:15]}, "conversation_id"),
        ({"conversation_id": GROUP + b"\0"}, "conversation_id"),
        ({"conversation_id": ZERO_ID}, "conversation_id"),
        ({"conversation_id": b"\3" + GROUP[1:]}, "conversation_id"),
        ({"peer": BEN}, "peer_user_id"),
        ({"conversation_id": b"", "peer": BEN[:15]}, "peer_user_id"),
        ({"conversation_id": b"", "peer": ZERO_ID}, "peer_user_id"),
        ({"message_id": b""}, "client_message_id"),
        ({"message_id": b"short"}, "client_message_id"),
        ({"message_id": ZERO_ID}, "client_message_id"),
        ({"record_type": RecordType.CONTROL}, "type"),
        ({"record_type": 3}, "type"),
        ({"record_type": -1}, "type"),
        ({"custom_type": "qim.membership.v1"}, "custom_type"),
        ({"custom_type": "qim."}, "custom_type"),
        ({"custom_type": "x" * 129}, "custom_type"),
        ({"custom_type": "é" * 65}, "custom_type"),
        ({"expected_version": 2**48}, "expected_membership_version"),
    ],
)
def test_bad_input_is_refused_by_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        prepare(**change)
    assert [violation.field for violation in caught.value.violations] == [field]


def test_a_body_above_the_limit_is_too_large() -> None:
    with pytest.raises(MessageTooLarge) as caught:
        prepare(body=b"x" * 101)
    assert caught.value.metadata == {"max_bytes": "100"}


def test_the_entry_belongs_to_the_person_not_to_the_device_and_the_digest_to_the_content() -> None:
    first = prepare()
    other_device = prepare(Actor(TENANT, ANA, DeviceId(b"e" * 16)))
    assert other_device.key == first.key
    assert prepare(expected_version=4).key == first.key, "what the sender expected is no content"
    for other in (prepare(body=b"bye"), prepare(custom_type="app.x"), prepare(custom_type="hello", body=b"")):
        assert other.key.field == first.key.field
        assert other.key.digest != first.key.digest
    for other in (
        prepare(Actor(TENANT, BEN, DEVICE)),
        prepare(Actor(TenantId(8), ANA, DEVICE)),
        prepare(conversation_id=b"\2" + CARA[1:]),
        prepare(message_id=CARA),
    ):
        assert other.key.field != first.key.field

"""What state blocks say, read as the writer packs them."""

from __future__ import annotations

import struct

import pytest
from tests.support.dispatch import TENANT, group, user

from qim.common.v1 import types_pb2
from qim.session.v1 import session_pb2
from qim_common.enums import LeaverHistory, NewcomerPolicy, RejoinHistory
from qim_common.ids import UserId
from qim_common.records import BlockFlags, StateBlock, StateChange
from qim_common.settings_wire import settings_to_wire
from qim_session.domain.state_entries import read_state
from qim_session.handlers.live_wire import LiveWire
from qim_writer.domain.policy import NOBODY, GroupSettings, Policy

SETTINGS = GroupSettings(
    member_limit=77,
    newcomer=NewcomerPolicy.LAST_N,
    last_n=1_000_000_000,
    rejoin=RejoinHistory.ALL_STAYS,
    leaver=LeaverHistory.NONE,
    broadcast_max_members=400,
    retention_days=36_500,
)


def block(change: StateChange, payload: bytes) -> StateBlock:
    return StateBlock(TENANT, group(1), BlockFlags.NONE, 1, 3, 9, 5, change, payload)


def sent(change: StateChange, payload: bytes, *, with_revision: bool = True) -> types_pb2.StateChange:
    wire = LiveWire().state(read_state(block(change, payload), 1_234), with_revision=with_revision)
    event = session_pb2.SubscribeEvent.FromString(wire)
    assert event.state.conversation_id == group(1)
    return event.state.change


@pytest.mark.parametrize("change", [StateChange.SETTINGS, StateChange.OWNER, StateChange.FROZEN])
@pytest.mark.parametrize("policy", [Policy(SETTINGS, user(4), frozen=True), Policy(GroupSettings(100_000), NOBODY)])
def test_a_policy_comes_out_as_the_writer_put_it_in(change: StateChange, policy: Policy) -> None:
    told = sent(change, policy.pack())
    assert told.settings == settings_to_wire(policy.settings)
    assert told.owner_user_id == (b"" if policy.owner == NOBODY else policy.owner)
    assert (int(told.kind), told.revision, told.time_ms, told.frozen) == (int(change), 9, 1_234, policy.frozen)
    assert (told.made_by, told.membership_version, told.head_seq) == ("", 0, 0)


def test_a_floor_says_nothing_else() -> None:
    told = sent(StateChange.FLOOR, (2**47).to_bytes(6, "big"))
    assert told.group_floor_seq == 2**47
    assert not told.HasField("settings")


def test_an_own_clear_names_whose_it_is_to_the_service_only() -> None:
    state = read_state(block(StateChange.OWN_CLEAR, user(4) + bytes(6)), 1)
    assert state.person == UserId(user(4))
    told = sent(StateChange.OWN_CLEAR, user(4) + bytes(6), with_revision=False)
    assert (told.revision, told.owner_user_id) == (0, b"")


def test_a_creation_says_itself() -> None:
    assert sent(StateChange.CREATED, b"").kind == types_pb2.StateChange.KIND_CREATED


def test_a_payload_that_is_no_policy_is_refused() -> None:
    with pytest.raises(struct.error):
        read_state(block(StateChange.SETTINGS, b"short"), 1)

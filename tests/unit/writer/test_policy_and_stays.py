"""Packed values: a group's policy, and a person's stays."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.writer.people import ANA, BEN

from qim_common.enums import LeaverHistory, MemberState, NewcomerPolicy, RejoinHistory
from qim_common.errors import InvalidArgument
from qim_common.ids import UserId
from qim_writer.domain.policy import EVERYTHING, LAST_N_MAX, NOBODY, RETENTION_DAYS_MAX, GroupSettings, Limits, Policy
from qim_writer.domain.stays import Stay, unpack_person

LIMITS = Limits(member_limit_max=5000, broadcast_max_members=500)
GOOD = GroupSettings(member_limit=100)

settings = st.builds(
    GroupSettings,
    member_limit=st.integers(1, 2**32 - 1),
    newcomer=st.sampled_from(NewcomerPolicy),
    last_n=st.integers(0, LAST_N_MAX),
    rejoin=st.sampled_from(RejoinHistory),
    leaver=st.sampled_from(LeaverHistory),
    broadcast_max_members=st.integers(0, 2**32 - 1),
    retention_days=st.integers(0, RETENTION_DAYS_MAX),
)
policies = st.builds(Policy, settings, st.binary(min_size=16, max_size=16).map(UserId), st.booleans())


@given(policies)
def test_a_policy_comes_back_as_it_was_packed(policy: Policy) -> None:
    packed = policy.pack()
    assert Policy.unpack(packed) == policy
    assert len(packed) == 37
    assert packed[0] == policy.frozen, "the send script reads the freeze here"


@given(policies, policies)
def test_different_policies_are_packed_differently(one: Policy, other: Policy) -> None:
    assert (one.pack() == other.pack()) is (one == other)


def test_zero_bytes_are_the_policy_of_a_direct_conversation() -> None:
    policy = Policy.unpack(bytes(37))
    assert policy == Policy(GroupSettings(member_limit=0), NOBODY)


def test_another_owner_changes_nothing_else() -> None:
    policy = Policy(GOOD, ANA, frozen=True)
    assert policy.with_owner(BEN) == Policy(GOOD, BEN, frozen=True)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"member_limit": 1},
        {"member_limit": 5000},
        {"newcomer": NewcomerPolicy.LAST_N, "last_n": 1},
        {"newcomer": NewcomerPolicy.LAST_N, "last_n": LAST_N_MAX},
        {"newcomer": NewcomerPolicy.ALL},
        {"broadcast_max_members": 500},
        {"retention_days": RETENTION_DAYS_MAX},
    ],
)
def test_settings_within_their_ranges_are_taken(change: dict[str, Any]) -> None:
    wanted = replace(GOOD, **change)
    assert wanted.validated(LIMITS) is wanted


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"member_limit": 0}, "settings.member_limit"),
        ({"member_limit": 5001}, "settings.member_limit"),
        ({"newcomer": NewcomerPolicy.LAST_N}, "settings.newcomer_history.last_n"),
        ({"newcomer": NewcomerPolicy.LAST_N, "last_n": LAST_N_MAX + 1}, "settings.newcomer_history.last_n"),
        ({"last_n": 1}, "settings.newcomer_history.last_n"),
        ({"newcomer": NewcomerPolicy.ALL, "last_n": 1}, "settings.newcomer_history.last_n"),
        ({"broadcast_max_members": 501}, "settings.broadcast_max_members"),
        ({"broadcast_max_members": -1}, "settings.broadcast_max_members"),
        ({"retention_days": RETENTION_DAYS_MAX + 1}, "settings.retention_days"),
        ({"retention_days": -1}, "settings.retention_days"),
    ],
)
def test_settings_out_of_their_ranges_name_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        replace(GOOD, **change).validated(LIMITS)
    assert [violation.field for violation in caught.value.violations] == [field]


@pytest.mark.parametrize(
    ("newcomer", "last_n", "back"),
    [(NewcomerPolicy.SINCE_JOIN, 0, 0), (NewcomerPolicy.LAST_N, 7, 7), (NewcomerPolicy.ALL, 0, EVERYTHING)],
)
def test_how_far_back_a_newcomer_sees(newcomer: NewcomerPolicy, last_n: int, back: int) -> None:
    assert replace(GOOD, newcomer=newcomer, last_n=last_n).history_back == back


def u48(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(6, "big") for number in numbers)


def current(flags: int, *numbers: int, version: int = 1) -> bytes:
    """A value of `grpcur`; numbers: joined, history, left, began, ended, clear."""
    return bytes((version, flags)) + b"\x00\x01\x02" + u48(*numbers)


def older(flags: int, *numbers: int) -> bytes:
    """One stay of `grpstays`."""
    return bytes((flags,)) + u48(*numbers)


def test_the_newest_stay_with_clear_point_and_ordinal() -> None:
    who = unpack_person(current(3, 36, 6, 0, 2**40, 0, 2**48 - 1), None)
    assert who.stays == (Stay(36, 6, 0, 2**40, 0, MemberState.MEMBER, keeps_earlier=True),)
    assert (who.own_clear, who.ordinal, who.present) == (2**48 - 1, b"\x00\x01\x02", True)
    assert who.versions == {2**40}


@pytest.mark.parametrize(
    ("flags", "state", "keeps", "revoked"),
    [
        (1, MemberState.MEMBER, False, False),
        (3, MemberState.MEMBER, True, False),
        (0, MemberState.LEFT, False, False),
        (2, MemberState.LEFT, True, False),
        (4, MemberState.LEFT, False, True),
        (8, MemberState.REMOVED, False, False),
        (14, MemberState.REMOVED, True, True),
    ],
)
def test_the_flags_of_a_stay(flags: int, state: MemberState, keeps: bool, revoked: bool) -> None:
    who = unpack_person(current(flags, 0, 0, 0, 1, 0, 0), older(flags, 0, 0, 0, 1, 0))
    for stay in who.stays:
        assert (stay.state, stay.keeps_earlier, stay.revoked) == (state, keeps, revoked)


def test_older_stays_come_first_and_their_versions_concern_the_person() -> None:
    who = unpack_person(current(1, 79, 79, 0, 9, 0, 0), older(0, 0, 0, 16, 1, 3) + older(8, 30, 30, 40, 5, 7))
    assert [(stay.joined_at, stay.left_at) for stay in who.stays] == [(0, 16), (30, 40), (79, 0)]
    assert who.newest is who.stays[-1]
    assert who.versions == {1, 3, 5, 7, 9}


@pytest.mark.parametrize("older_stays", [None, b""])
def test_nobody_needs_older_stays(older_stays: bytes | None) -> None:
    assert len(unpack_person(current(0, 0, 0, 5, 1, 2, 0), older_stays).stays) == 1


def test_a_value_of_another_version_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="version 2"):
        unpack_person(current(1, 0, 0, 0, 1, 0, 0, version=2), None)


@pytest.mark.parametrize(
    ("value", "before"), [(current(1, 0, 0, 0, 1, 0, 0)[:-1], None), (current(1, 0, 0, 0, 1, 0, 0), older(0, 1)[:-1])]
)
def test_a_value_that_is_cut_short_is_an_error(value: bytes, before: bytes | None) -> None:
    with pytest.raises(struct.error):
        unpack_person(value, before)

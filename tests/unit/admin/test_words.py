"""What operators read of a group's line: events and changes in one order, with who made them."""

from __future__ import annotations

import dataclasses

import pytest

from qim_admin.words import RECORD_REMOVED, maker_words, settings_rows, stay_words, timeline_lines
from qim_client import (
    GroupSettings,
    LeaverHistory,
    MembershipChange,
    MemberState,
    NewcomerPolicy,
    RejoinHistory,
    StateEntry,
    Stay,
)
from qim_common.ids import MembershipOp, UserId, show
from qim_common.records import StateChange

ANA, BEN = UserId(b"a" * 16), UserId(b"b" * 16)
NAMES = {ANA: "ana", BEN: "ben"}
PLAIN = GroupSettings(member_limit=100)


def name_of(user: bytes) -> str:
    return NAMES[UserId(user)]


def entry(kind: StateChange, revision: int, head: int, settings: GroupSettings | None = PLAIN) -> StateEntry:
    return StateEntry(
        revision=revision,
        kind=kind,
        time_ms=0,
        membership_version=1,
        head_seq=head,
        made_by="operator:olga",
        settings=settings,
        owner=BEN,
        frozen=True,
        group_floor_seq=7,
    )


@pytest.mark.parametrize(
    ("made_by", "words"),
    [
        (f"user:{show(ANA)}", "ana"),
        ("operator:olga", "operator olga"),
        ("backend:shop", "back end shop"),
        ("retention", "retention"),
        ("user:nonsense", "user:nonsense"),
        ("later:x\n", "later:x⏎"),
    ],
)
def test_who_made_a_change(made_by: str, words: str) -> None:
    assert maker_words(made_by, name_of) == words


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (StateChange.CREATED, "created, ben is the owner"),
        (StateChange.OWNER, "ben became the owner"),
        (StateChange.FLOOR, "cleared for all up to 7"),
        (StateChange.FROZEN, "frozen"),
        (StateChange.OWN_CLEAR, "a person cleared their own history"),
    ],
)
def test_what_a_change_without_a_seq_did(kind: StateChange, words: str) -> None:
    (line,) = timeline_lines([], [entry(kind, 2, 5)], name_of)
    assert (line.place, line.number, line.words) == ("after 5", "r2", f"{words}, by operator olga")


def test_of_changed_settings_only_the_changed_ones_are_told() -> None:
    after = dataclasses.replace(PLAIN, newcomer=NewcomerPolicy.LAST_N, last_n=3, retention_days=30)
    entries = [
        entry(StateChange.CREATED, 1, 0),
        entry(StateChange.FLOOR, 2, 0, settings=None),
        entry(StateChange.SETTINGS, 3, 0, settings=after),
        entry(StateChange.SETTINGS, 4, 0, settings=after),
    ]
    said = [line.words for line in timeline_lines([], entries, name_of)]
    assert said[2:] == [
        "settings: newcomers read since-join → last:3, messages are kept for ever → 30 days, by operator olga",
        "settings: nothing changed, by operator olga",
    ]


def test_events_and_changes_stand_in_the_order_in_which_they_were_made() -> None:
    changes = [
        MembershipChange(2, MembershipOp.JOIN, 5, 0, (BEN,), ANA),
        MembershipChange(3, MembershipOp.LEAVE, 6, 0, (BEN,), BEN),
    ]
    entries = [entry(StateChange.OWNER, 2, 4), entry(StateChange.FROZEN, 4, 5), entry(StateChange.FLOOR, 5, 5)]
    lines = timeline_lines(changes, entries, name_of)
    assert [(line.place, line.number) for line in lines] == [
        ("after 4", "r2"),
        ("5", "v2"),
        ("after 5", "r4"),
        ("after 5", "r5"),
        ("6", "v3"),
    ]
    assert [line.words for line in lines][1::3] == ["ben was added by ana", "ben left"]


def test_an_event_whose_record_was_removed_says_so() -> None:
    (line,) = timeline_lines([MembershipChange(2, None, 5, 0, (), None)], [], name_of)
    assert (line.place, line.number, line.time, line.words) == ("5", "v2", "", RECORD_REMOVED)


def test_settings_are_shown_as_they_are_typed() -> None:
    settings = GroupSettings(
        NewcomerPolicy.LAST_N, 100, RejoinHistory.ALL_STAYS, LeaverHistory.NONE, 20, 1000, retention_days=365
    )
    assert [value for _, value in settings_rows(settings)] == [
        "last:100",
        "all",
        "none",
        "20 members",
        "1,000",
        "365 days",
    ]
    assert [value for _, value in settings_rows(GroupSettings())] == [
        "since-join",
        "latest",
        "until-left",
        "the deployment's bound",
        "the deployment's",
        "ever",
    ]


def test_a_stay_says_all_that_was_fixed_into_it() -> None:
    inside = Stay(4, 2, 0, MemberState.MEMBER, 3, 0, keeps_earlier=True, revoked=False)
    ended = Stay(4, 4, 9, MemberState.REMOVED, 3, 4, keeps_earlier=False, revoked=True)
    assert stay_words(inside) == "joined with 5, history from 3 on, still in, keeps earlier stays"
    assert stay_words(ended) == "joined with 5, history 5 to 8, removed with 9, revoked"

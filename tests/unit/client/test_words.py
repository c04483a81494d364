"""What the command lines say and take: events in words, settings as typed, counts."""

from __future__ import annotations

import pytest

from qim_client import LeaverHistory, MembershipEvent, MemberState, RejoinHistory, SeqRange, Stay
from qim_client.words import (
    Leaver,
    Rejoin,
    counted,
    event_words,
    newcomer_words,
    parse_newcomer,
    seqs,
    stay_began,
    stay_ended,
    stay_history,
)
from qim_common.enums import NewcomerPolicy
from qim_common.errors import InvalidArgument
from qim_common.ids import MembershipOp, UserId

NAMES = {b"a" * 16: "ana", b"b" * 16: "ben", b"c" * 16: "cara"}
ANA, BEN, CARA = (UserId(user) for user in NAMES)


def name_of(user: bytes) -> str:
    return NAMES[user]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (MembershipEvent(MembershipOp.LEAVE, BEN, (BEN,)), "ben left"),
        (MembershipEvent(MembershipOp.JOIN, None, (CARA,)), "cara was added by an operator"),
        (MembershipEvent(MembershipOp.JOIN, ANA, (BEN, CARA)), "ben and cara were added by ana"),
        (MembershipEvent(MembershipOp.REMOVE, ANA, (BEN,)), "ben was removed by ana"),
        (MembershipEvent(MembershipOp.REMOVE, None, (BEN, CARA)), "ben and cara were removed by an operator"),
    ],
)
def test_events_in_words(event: MembershipEvent, words: str) -> None:
    assert event_words(event, name_of) == words


@pytest.mark.parametrize(
    ("text", "policy", "last_n"),
    [
        ("since-join", NewcomerPolicy.SINCE_JOIN, 0),
        ("all", NewcomerPolicy.ALL, 0),
        ("last:1", NewcomerPolicy.LAST_N, 1),
        ("last:1000000000", NewcomerPolicy.LAST_N, 1_000_000_000),
    ],
)
def test_what_newcomers_read_is_shown_as_it_is_typed(text: str, policy: NewcomerPolicy, last_n: int) -> None:
    assert parse_newcomer(text, "--newcomer") == (policy, last_n)
    assert newcomer_words(policy, last_n) == text


@pytest.mark.parametrize("text", ["", "last", "last:", "last:0", "last:1000000001", "last:-1", "last:\u0661", "ALL"])
def test_what_is_no_policy_is_refused_with_the_field(text: str) -> None:
    with pytest.raises(InvalidArgument, match="--newcomer: must be since-join, all, or last:N"):
        parse_newcomer(text, "--newcomer")


def test_the_other_settings_as_typed() -> None:
    assert [item.history for item in Rejoin] == [RejoinHistory.LATEST_STAY, RejoinHistory.ALL_STAYS]
    assert [item.history for item in Leaver] == [LeaverHistory.UNTIL_LEFT, LeaverHistory.NONE]


@pytest.mark.parametrize(
    ("joined_at", "history_from", "left_at", "state", "began_version", "words"),
    [
        (0, 0, 0, MemberState.MEMBER, 1, ["there from the start", "from 1 on", "still in"]),
        (0, 0, 0, MemberState.MEMBER, 2, ["joined with 1", "from 1 on", "still in"]),
        (0, 0, 1, MemberState.LEFT, 1, ["there from the start", "nothing", "left with 1"]),
        (3, 3, 0, MemberState.MEMBER, 2, ["joined with 4", "from 4 on", "still in"]),
        (3, 1, 5, MemberState.LEFT, 2, ["joined with 4", "2 to 4", "left with 5"]),
        (3, 3, 5, MemberState.REMOVED, 2, ["joined with 4", "4", "removed with 5"]),
    ],
)
def test_stays_are_told_by_the_seqs_of_their_events(
    joined_at: int, history_from: int, left_at: int, state: MemberState, began_version: int, words: list[str]
) -> None:
    stay = Stay(joined_at, history_from, left_at, state, began_version, 0, keeps_earlier=False, revoked=False)
    assert [stay_began(stay), stay_history(stay), stay_ended(stay)] == words


def test_counts_and_stretches() -> None:
    assert [counted(number, "seq", "seqs") for number in (0, 1, 4836)] == ["0 seqs", "1 seq", "4,836 seqs"]
    assert [seqs(SeqRange(*ends)) for ends in ((3, 3), (3, 9))] == ["3", "3 to 9"]

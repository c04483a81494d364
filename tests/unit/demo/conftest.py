"""The answers that the services give when everything is right, so that the pure parts of the demo have something."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from qim_client import MemberState, NewcomerPolicy, RejoinHistory, Stay
from qim_devkit.demo.chapter import ALL_STAYS, HUNDRED_BEFORE, POLICIES, SINCE_JOIN, Policy
from qim_devkit.demo.seqs import NO_SEQS, Seqs
from qim_devkit.demo.sights import Delivered, Played, Sight

BEFORE, BACK = Seqs.between(1, 4_815), Seqs.between(4_880, 4_900)
EVERYTHING = Seqs.between(1, 4_900)

READABLE_BY_BEN = {SINCE_JOIN: BACK, HUNDRED_BEFORE: Seqs.between(4_780, 4_900), ALL_STAYS: BEFORE | BACK}
READABLE_BY_CARA = {
    SINCE_JOIN: Seqs.between(4_837, 4_900),
    HUNDRED_BEFORE: Seqs.between(4_737, 4_900),
    ALL_STAYS: Seqs.between(4_837, 4_900),
}


def stay(joined_at: int, *, policy: Policy | None = None, left_at: int = 0) -> Stay:
    """A stay as the writer describes it; `policy` of the group when the person joined, None for an initial member."""
    back = policy.settings.last_n if policy and policy.settings.newcomer is NewcomerPolicy.LAST_N else 0
    return Stay(
        joined_at=joined_at,
        history_from=joined_at - back,
        left_at=left_at,
        state=MemberState.LEFT if left_at else MemberState.MEMBER,
        began_version=2 if joined_at else 1,
        ended_version=3 if left_at else 0,
        keeps_earlier=bool(policy and policy.settings.rejoin is RejoinHistory.ALL_STAYS),
        revoked=False,
    )


def sight(
    name: str,
    label: str,
    stays: Sequence[Stay],
    visible: Seqs,
    delivered: Seqs,
    *,
    unread: int,
    withheld: Seqs = NO_SEQS,
    head: int = 4_900,
) -> Sight:
    """What somebody sees; the history is what is visible."""
    return Sight(
        name=name,
        label=label,
        owner=name == "Ana",
        head=head,
        visible=visible,
        earliest=visible.ranges[0].first,
        state=stays[-1].state,
        stays=tuple(stays),
        history=visible,
        unread=unread,
        delivered=Delivered(delivered, withheld),
    )


def right_play(policy: Policy) -> Played:
    """How the play goes under a policy when everything is right."""
    first, leave = stay(0, left_at=4_816), Seqs.between(4_816, 4_816)
    ben, cara = READABLE_BY_BEN[policy], READABLE_BY_CARA[policy]
    got_by_ben = BEFORE | leave | BACK
    return Played(
        policy=policy,
        members=(499, 498, 499, 500),
        left=4_816,
        joined=4_837,
        returned=4_880,
        head=4_900,
        refusal="PERMISSION_DENIED",
        after_refusal=4_817,
        ana=sight("Ana", "Ana", [stay(0)], EVERYTHING, EVERYTHING, unread=4_886),
        ben_away=sight("Ben", "Ben, away", [first], BEFORE, BEFORE | leave, unread=4_806, head=4_879),
        ben=sight(
            "Ben",
            "Ben, back",
            [first, stay(4_879, policy=policy)],
            ben,
            got_by_ben,
            unread=19,
            withheld=got_by_ben - ben - leave,
        ),
        cara=sight("Cara", "Cara", [stay(4_836, policy=policy)], cara, Seqs.between(4_837, 4_900), unread=61),
    )


@pytest.fixture
def plays() -> list[Played]:
    """One play for each policy."""
    return [right_play(policy) for policy in POLICIES]


@pytest.fixture
def play_of(plays: list[Played]) -> Callable[[Policy], Played]:
    """The play under one policy."""
    return lambda policy: next(play for play in plays if play.policy is policy)

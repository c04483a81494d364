"""Plans of membership changes: who changes, who owns, whom the event reaches, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.writer.people import ANA, BEN, CARA, DAN, EVE, stay, user

from qim_common.enums import LeaverHistory, NewcomerPolicy, RejoinHistory
from qim_common.errors import (
    GroupFrozen,
    InvalidArgument,
    MemberLimitExceeded,
    OwnerCannotLeave,
    PermissionDenied,
    QimError,
)
from qim_common.ids import ZERO_ID, MembershipOp, UserId
from qim_common.records import Audience
from qim_writer.domain.changes import (
    ChangeRequest,
    GroupState,
    audience_of,
    distinct,
    fans_out_lazily,
    plan_change,
)
from qim_writer.domain.policy import EVERYTHING, NOBODY, GroupSettings, Limits, Policy
from qim_writer.domain.stays import Stay

JOIN, LEAVE, REMOVE = MembershipOp.JOIN, MembershipOp.LEAVE, MembershipOp.REMOVE
LIMITS = Limits()
SETTINGS = GroupSettings(member_limit=10)
IN, GONE, NEVER = stay(0), stay(0, 5, versions=(1, 3)), None


def state(
    stays: dict[UserId, Stay | None],
    *,
    count: int,
    owner: UserId = ANA,
    frozen: bool = False,
    settings: GroupSettings = SETTINGS,
    big: bool = False,
) -> GroupState:
    return GroupState(version=4, policy=Policy(settings, owner, frozen), count=count, stays=stays, big=big)


def test_people_are_taken_once_in_call_order() -> None:
    assert distinct([CARA, ANA, CARA, BEN, ANA]) == (CARA, ANA, BEN)


def test_joining_takes_those_outside_in_ascending_order_and_the_groups_settings() -> None:
    base = state({DAN: NEVER, BEN: IN, CARA: GONE}, count=2)
    plan = plan_change(base, ChangeRequest(JOIN, (DAN, BEN, CARA)), LIMITS)
    assert plan.people == (CARA, DAN)
    assert (plan.count, plan.policy, plan.base) == (4, base.policy, base)
    assert (plan.actor, plan.sender) == (ZERO_ID, ANA)
    assert (plan.history_back, plan.keeps_earlier, plan.revoked) == (0, False, False)
    assert plan.audience is Audience.BROADCAST
    assert not plan.big


@pytest.mark.parametrize(
    ("newcomer", "last_n", "back"),
    [(NewcomerPolicy.SINCE_JOIN, 0, 0), (NewcomerPolicy.LAST_N, 100, 100), (NewcomerPolicy.ALL, 0, EVERYTHING)],
)
@pytest.mark.parametrize("rejoin", RejoinHistory)
@pytest.mark.parametrize("before", [NEVER, GONE], ids=["new", "returning"])
def test_a_join_fixes_the_groups_policy_into_the_stay(
    newcomer: NewcomerPolicy, last_n: int, back: int, rejoin: RejoinHistory, before: Stay | None
) -> None:
    settings = replace(SETTINGS, newcomer=newcomer, last_n=last_n, rejoin=rejoin)
    plan = plan_change(state({BEN: before}, count=1, settings=settings), ChangeRequest(JOIN, (BEN,)), LIMITS)
    assert plan.people == (BEN,)
    assert plan.history_back == back
    assert plan.keeps_earlier is (rejoin is RejoinHistory.ALL_STAYS)


@pytest.mark.parametrize("op", [LEAVE, REMOVE])
@pytest.mark.parametrize(
    ("setting", "asked", "revoked"),
    [
        (LeaverHistory.UNTIL_LEFT, None, False),
        (LeaverHistory.NONE, None, True),
        (LeaverHistory.UNTIL_LEFT, LeaverHistory.NONE, True),
        (LeaverHistory.NONE, LeaverHistory.UNTIL_LEFT, False),
    ],
)
def test_a_departure_fixes_what_the_leaver_may_read(
    op: MembershipOp, setting: LeaverHistory, asked: LeaverHistory | None, revoked: bool
) -> None:
    base = state({BEN: IN}, count=3, settings=replace(SETTINGS, leaver=setting))
    plan = plan_change(base, ChangeRequest(op, (BEN,), BEN if op is LEAVE else None, leaver=asked), LIMITS)
    assert plan.revoked is revoked
    assert plan.count == 2


def test_leaving_is_the_leavers_own_event() -> None:
    plan = plan_change(state({BEN: IN}, count=3), ChangeRequest(LEAVE, (BEN,), BEN), LIMITS)
    assert (plan.people, plan.actor, plan.sender) == ((BEN,), BEN, BEN)


@pytest.mark.parametrize("op", [JOIN, REMOVE])
def test_an_initiator_is_the_bodys_actor_and_the_owner_stays_the_sender(op: MembershipOp) -> None:
    base = state({BEN: IN if op is REMOVE else NEVER}, count=3)
    plan = plan_change(base, ChangeRequest(op, (BEN,), CARA), LIMITS)
    assert (plan.actor, plan.sender) == (CARA, ANA)


@pytest.mark.parametrize(
    "request_",
    [
        ChangeRequest(JOIN, (BEN,)),
        ChangeRequest(REMOVE, (CARA, DAN)),
        ChangeRequest(LEAVE, (CARA,), CARA),
    ],
    ids=["add those inside", "remove those outside", "leave twice"],
)
def test_what_is_in_effect_already_changes_nobody(request_: ChangeRequest) -> None:
    base = state({BEN: IN, CARA: GONE, DAN: NEVER}, count=2)
    plan = plan_change(base, request_, LIMITS)
    assert (plan.people, plan.count, plan.policy) == ((), 2, base.policy)


def test_adding_those_inside_succeeds_above_the_limit() -> None:
    base = state({BEN: IN}, count=4, settings=replace(SETTINGS, member_limit=2))
    assert plan_change(base, ChangeRequest(JOIN, (BEN,)), LIMITS).people == ()


def test_the_limit_may_be_reached_and_not_exceeded() -> None:
    base = state({BEN: IN, CARA: NEVER, DAN: NEVER, EVE: NEVER}, count=8)
    assert plan_change(base, ChangeRequest(JOIN, (BEN, CARA, DAN)), LIMITS).count == 10
    with pytest.raises(MemberLimitExceeded):
        plan_change(base, ChangeRequest(JOIN, (BEN, CARA, DAN, EVE)), LIMITS)


@pytest.mark.parametrize(
    ("base", "request_", "error"),
    [
        (state({BEN: NEVER}, count=1, frozen=True), ChangeRequest(JOIN, (BEN,)), GroupFrozen),
        (state({BEN: IN}, count=2, frozen=True), ChangeRequest(JOIN, (BEN,)), GroupFrozen),
        (state({BEN: NEVER}, count=2), ChangeRequest(LEAVE, (BEN,), BEN), PermissionDenied),
        (state({ANA: IN}, count=2), ChangeRequest(LEAVE, (ANA,), ANA), OwnerCannotLeave),
        (state({ANA: IN, BEN: IN}, count=3), ChangeRequest(REMOVE, (ANA, BEN)), OwnerCannotLeave),
        (state({BEN: NEVER}, count=1), ChangeRequest(JOIN, (BEN,), owner=CARA), InvalidArgument),
        (state({BEN: NEVER}, count=1), ChangeRequest(JOIN, (BEN,), owner=BEN), InvalidArgument),
    ],
    ids=[
        "joining a frozen group",
        "adding somebody inside to a frozen group",
        "a stranger leaves",
        "the owner leaves others behind",
        "the owner is removed and others remain",
        "the named owner is not among the people",
        "the group has an owner",
    ],
)
def test_a_change_that_is_refused(base: GroupState, request_: ChangeRequest, error: type[QimError]) -> None:
    with pytest.raises(error):
        plan_change(base, request_, LIMITS)


@pytest.mark.parametrize("op", [LEAVE, REMOVE])
def test_leaving_and_removal_go_on_in_a_frozen_group(op: MembershipOp) -> None:
    base = state({BEN: IN}, count=2, frozen=True)
    assert plan_change(base, ChangeRequest(op, (BEN,), BEN if op is LEAVE else None), LIMITS).people == (BEN,)


@pytest.mark.parametrize("op", [LEAVE, REMOVE])
def test_the_last_one_out_leaves_a_group_without_an_owner(op: MembershipOp) -> None:
    plan = plan_change(state({ANA: IN}, count=1), ChangeRequest(op, (ANA,), ANA if op is LEAVE else None), LIMITS)
    assert (plan.count, plan.policy.owner, plan.sender) == (0, NOBODY, ANA)


def test_removing_everybody_at_once_is_allowed() -> None:
    plan = plan_change(state({ANA: IN, BEN: IN}, count=2), ChangeRequest(REMOVE, (BEN, ANA)), LIMITS)
    assert (plan.people, plan.count, plan.policy.owner) == ((ANA, BEN), 0, NOBODY)


@pytest.mark.parametrize(
    ("people", "named", "owner"),
    [((CARA, ANA), None, CARA), ((CARA, ANA), ANA, ANA), ((ANA,), None, ANA)],
    ids=["the first in call order", "the one that is named", "somebody who was there before"],
)
def test_an_empty_group_gets_an_owner(people: tuple[UserId, ...], named: UserId | None, owner: UserId) -> None:
    base = state({CARA: NEVER, ANA: GONE}, count=0, owner=NOBODY)
    plan = plan_change(base, ChangeRequest(JOIN, people, owner=named), LIMITS)
    assert (plan.policy.owner, plan.sender) == (owner, owner)
    assert plan.policy == base.policy.with_owner(owner)


def test_naming_the_owner_that_the_group_has_changes_nothing() -> None:
    base = state({ANA: IN, BEN: NEVER}, count=1)
    plan = plan_change(base, ChangeRequest(JOIN, (ANA, BEN), owner=ANA), LIMITS)
    assert (plan.people, plan.policy) == ((BEN,), base.policy)


@pytest.mark.parametrize(
    ("own", "deployment", "count", "audience"),
    [
        (0, 500, 500, Audience.BROADCAST),
        (0, 500, 501, Audience.CONCERNED),
        (3, 500, 3, Audience.BROADCAST),
        (3, 500, 4, Audience.CONCERNED),
        (400, 100, 100, Audience.BROADCAST),
        (400, 100, 101, Audience.CONCERNED),
        (0, 500, 0, Audience.BROADCAST),
    ],
)
def test_whom_an_event_reaches_depends_on_the_count_after_it(
    own: int, deployment: int, count: int, audience: Audience
) -> None:
    policy = Policy(replace(SETTINGS, broadcast_max_members=own), ANA)
    assert audience_of(policy, count, Limits(broadcast_max_members=deployment)) is audience


@pytest.mark.parametrize(("op", "audience"), [(JOIN, Audience.CONCERNED), (REMOVE, Audience.BROADCAST)])
def test_the_audience_counts_the_members_after_the_change(op: MembershipOp, audience: Audience) -> None:
    settings = GroupSettings(member_limit=1000)
    base = state({BEN: NEVER if op is JOIN else IN}, count=500 if op is JOIN else 501, settings=settings)
    assert plan_change(base, ChangeRequest(op, (BEN,)), LIMITS).audience is audience


@pytest.mark.parametrize(
    ("count", "before", "big"),
    [
        (1000, False, False),
        (1001, False, True),
        (1000, True, True),
        (500, True, True),
        (499, True, False),
        (499, False, False),
        (0, True, False),
    ],
)
def test_a_group_is_big_above_the_bound_until_it_falls_below_half_of_it(count: int, before: bool, big: bool) -> None:
    assert fans_out_lazily(count, Limits(fanout_max_members=1000), before=before) is big


def test_a_plan_remembers_that_the_group_was_big() -> None:
    limits = Limits(fanout_max_members=4)
    base = state({BEN: IN}, count=5, big=True)
    assert plan_change(base, ChangeRequest(REMOVE, (BEN,)), limits).big
    assert not plan_change(replace(base, big=False), ChangeRequest(REMOVE, (BEN,)), limits).big
    many = {user(number): IN for number in range(10, 14)}
    assert not plan_change(replace(base, stays=many), ChangeRequest(REMOVE, tuple(many)), limits).big
    joined = plan_change(state({BEN: NEVER}, count=4), ChangeRequest(JOIN, (BEN,)), limits)
    assert joined.big

"""Planning a membership change (design.md invariants 2, 4, 5 and 8; "Decisions between the sources").

A plan is made from one consistent look at the group, and the committing script compares version and policy with what
the plan was made from; so every rule stands here and the script only applies it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qim_common.enums import LeaverHistory, RejoinHistory
from qim_common.errors import (
    GroupFrozen,
    InvalidArgument,
    MemberLimitExceeded,
    OwnerCannotLeave,
    PermissionDenied,
)
from qim_common.ids import ZERO_ID, MembershipOp, UserId
from qim_common.records import Audience
from qim_writer.domain.policy import NOBODY, Limits, Policy
from qim_writer.domain.stays import Stay


@dataclass(frozen=True, slots=True)
class GroupState:
    """What a plan starts from. `stays` holds the newest stay of each person named, None where there is none; `big`
    whether the group is too large to be projected per message."""

    version: int
    policy: Policy
    count: int
    stays: Mapping[UserId, Stay | None]
    big: bool


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Who asks for what. `people` in call order, without duplicates.

    `actor` is the person (leaving), the initiator whom a back end names, or None for an operator. `owner` is the person
    of `people` who becomes the owner of an empty group. `leaver` overrides the group's setting on a removal.
    """

    op: MembershipOp
    people: tuple[UserId, ...]
    actor: UserId | None = None
    owner: UserId | None = None
    leaver: LeaverHistory | None = None


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What the script applies if version and policy are still those of `base`.

    `people` are those really changed, ascending; empty: everything is in effect already, and no event is made.
    `sender` is the sender of the event's record (ADR decision 2: the leaver, for operators the owner).
    """

    base: GroupState
    op: MembershipOp
    people: tuple[UserId, ...]
    policy: Policy
    count: int
    actor: bytes
    sender: UserId
    audience: Audience
    big: bool
    history_back: int = 0
    keeps_earlier: bool = False
    revoked: bool = False


def distinct(people: Sequence[UserId]) -> tuple[UserId, ...]:
    """The people in call order, each once."""
    return tuple(dict.fromkeys(people))


def plan_change(state: GroupState, request: ChangeRequest, limits: Limits) -> ChangePlan:
    """The plan of a change.

    Raises:
        PermissionDenied: the leaver never was in the group.
        GroupFrozen: joining a frozen group; leaving and removal go on.
        MemberLimitExceeded: nobody is added.
        OwnerCannotLeave: somebody else would remain.
        InvalidArgument: `owner` is none of the people, or the group is not empty.
    """
    if request.op is MembershipOp.JOIN:
        return _plan_join(state, request, limits)
    return _plan_departure(state, request, limits)


def _present(state: GroupState, user: UserId) -> bool:
    stay = state.stays[user]
    return stay is not None and not stay.left_at


def _plan_join(state: GroupState, request: ChangeRequest, limits: Limits) -> ChangePlan:
    if state.policy.frozen:
        raise GroupFrozen
    if request.owner is not None and request.owner not in request.people:
        raise InvalidArgument("owner_user_id", "must be one of user_ids")
    if request.owner is not None and state.count and request.owner != state.policy.owner:
        raise InvalidArgument("owner_user_id", "the group has an owner; transfer the ownership instead")
    people = tuple(sorted(user for user in request.people if not _present(state, user)))
    count = state.count + len(people)
    if people and count > state.policy.settings.member_limit:
        raise MemberLimitExceeded
    policy = state.policy
    if people and not state.count:
        policy = policy.with_owner(request.owner or request.people[0])
    settings = policy.settings
    return ChangePlan(
        base=state,
        op=request.op,
        people=people,
        policy=policy,
        count=count,
        actor=request.actor or ZERO_ID,
        sender=policy.owner,
        audience=audience_of(policy, count, limits),
        big=fans_out_lazily(count, limits, before=state.big),
        history_back=settings.history_back,
        keeps_earlier=settings.rejoin is RejoinHistory.ALL_STAYS,
    )


def _plan_departure(state: GroupState, request: ChangeRequest, limits: Limits) -> ChangePlan:
    leaving = request.op is MembershipOp.LEAVE
    if leaving and state.stays[request.people[0]] is None:
        raise PermissionDenied
    people = tuple(sorted(user for user in request.people if _present(state, user)))
    count = state.count - len(people)
    policy = state.policy
    if policy.owner in people:
        if count:
            raise OwnerCannotLeave
        policy = policy.with_owner(NOBODY)
    leaver = policy.settings.leaver if request.leaver is None else request.leaver
    return ChangePlan(
        base=state,
        op=request.op,
        people=people,
        policy=policy,
        count=count,
        actor=request.actor or ZERO_ID,
        sender=request.people[0] if leaving else state.policy.owner,
        audience=audience_of(policy, count, limits),
        big=fans_out_lazily(count, limits, before=state.big),
        revoked=leaver is LeaverHistory.NONE,
    )


def audience_of(policy: Policy, count: int, limits: Limits) -> Audience:
    """Whom a membership event reaches, by the number of members after the change (design.md invariant 4)."""
    own = policy.settings.broadcast_max_members or limits.broadcast_max_members
    # The deployment's bound may have been lowered below what the group chose when it was higher.
    bound = min(own, limits.broadcast_max_members)
    return Audience.BROADCAST if count <= bound else Audience.CONCERNED


def fans_out_lazily(count: int, limits: Limits, *, before: bool) -> bool:
    """Whether the group is too large to be projected per message: on above the bound, off below half of it, so that a
    group at the bound does not go back and forth (storage.md, "Session")."""
    return count > limits.fanout_max_members or (before and 2 * count >= limits.fanout_max_members)

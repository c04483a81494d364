"""Members in memory: moved on by events, bounded by people."""

from __future__ import annotations

import pytest
from tests.support.dispatch import TENANT, group, user

from qim_common.ids import MembershipOp
from qim_session.domain.membership import Members, MembersCache, MembershipChange

ANA, BEN, CARA = user(1), user(2), user(3)


@pytest.mark.parametrize(
    ("op", "people", "left"),
    [
        (MembershipOp.JOIN, (CARA,), {ANA, BEN, CARA}),
        (MembershipOp.LEAVE, (BEN,), {ANA}),
        (MembershipOp.REMOVE, (ANA, BEN), set()),
    ],
)
def test_a_change_moves_members_to_the_next_version(
    op: MembershipOp, people: tuple[bytes, ...], left: set[bytes]
) -> None:
    members = Members(4, {ANA, BEN})
    members.apply(MembershipChange(5, 30, op, people))  # type: ignore[arg-type]
    assert (members.version, members.people) == (5, left)


@pytest.mark.parametrize("version", [3, 4, 6])
def test_a_change_that_does_not_follow_is_refused(version: int) -> None:
    members = Members(4, {ANA})
    with pytest.raises(ValueError, match="does not follow"):
        members.apply(MembershipChange(version, 30, MembershipOp.JOIN, (BEN,)))
    assert members.people == {ANA}


def test_the_group_used_longest_ago_is_dropped_first() -> None:
    cache = MembersCache(people_max=4)
    cache.put(TENANT, group(1), Members(1, {ANA, BEN}))
    cache.put(TENANT, group(2), Members(1, {ANA, BEN}))
    assert cache.get(TENANT, group(1)) is not None
    cache.put(TENANT, group(3), Members(1, {CARA}))
    assert cache.get(TENANT, group(2)) is None
    assert cache.get(TENANT, group(1)) is not None
    assert cache.people == 3


def test_members_changed_in_place_are_weighed_again() -> None:
    cache = MembersCache(people_max=10)
    members = Members(1, {ANA})
    cache.put(TENANT, group(1), members)
    members.apply(MembershipChange(2, 1, MembershipOp.JOIN, (BEN, CARA)))
    cache.put(TENANT, group(1), members)
    assert cache.people == 3


def test_a_group_above_the_bound_is_kept_while_it_is_the_newest() -> None:
    cache = MembersCache(people_max=2)
    cache.put(TENANT, group(1), Members(1, {ANA}))
    cache.put(TENANT, group(2), Members(1, {ANA, BEN, CARA}))
    assert len(cache) == 1
    assert cache.get(TENANT, group(2)) is not None

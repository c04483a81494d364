"""What a stretch of the dispatch log means for lists where the group is big: seldom anything."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from tests.support.dispatch import TENANT, control, group, messages, ordinary, state, user

from qim_common.errors import MembershipVersionExpired
from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId
from qim_common.positions import Position
from qim_common.records import Audience, BlockFlags, StateChange
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.commands.audience import Audiences, Reached
from qim_session.domain.folding import DispatchEntry, fold
from qim_session.domain.membership import MembersCache, MembershipChange

ANA, BEN, CARA = user(1), user(2), user(3)
CITY = group(1)
BIG = BlockFlags.BIG
BEGAN = BlockFlags.BIG | BlockFlags.BIG_BEGAN


class Line:
    """A group whose members at each version are known."""

    def __init__(self, members: dict[int, set[UserId]]) -> None:
        self._members = members
        self.asked = 0

    async def members(self, tenant: TenantId, conversation: ConversationId, version: int) -> set[UserId]:
        self.asked += 1
        if version not in self._members:
            raise MembershipVersionExpired
        return set(self._members[version])

    async def change(self, tenant: TenantId, group: ConversationId, version: int) -> MembershipChange:
        raise MembershipVersionExpired


async def reached(line: Line, *blocks: bytes) -> Reached:
    """Whom one entry at 10 ms, and so on, reached."""
    entries = [DispatchEntry(Position(10 * number, 0), block) for number, block in enumerate(blocks, 1)]
    audiences = Audiences(line, MembersCache(1000), SessionMetrics(CollectorRegistry()))
    found = Reached()
    for run in fold(entries):
        assert (run.tenant, run.conversation) == (TENANT, CITY)
        one = await audiences.reached(run)
        found.times.update(one.times)
        found.big.update(one.big)
    return found


async def test_messages_of_a_big_group_move_no_list_and_ask_nobody() -> None:
    line = Line({5: {ANA, BEN}})
    found = await reached(line, messages(CITY, 5, 1, [ordinary(ANA), ordinary(BEN)], flags=BIG))
    assert found == Reached()
    assert line.asked == 0


@pytest.mark.parametrize("audience", list(Audience))
async def test_who_comes_or_goes_is_projected_as_in_a_big_group(audience: Audience) -> None:
    found = await reached(
        Line({}),
        messages(CITY, 5, 1, [control(MembershipOp.JOIN, [CARA], audience)], flags=BIG),
        messages(CITY, 6, 2, [control(MembershipOp.LEAVE, [BEN], audience)], flags=BIG),
        messages(CITY, 6, 3, [ordinary(ANA)], flags=BIG),
    )
    assert found == Reached({CARA: 10, BEN: 20}, {CARA, BEN})


async def test_all_members_are_projected_when_the_group_becomes_big() -> None:
    line = Line({5: {ANA, BEN, CARA}})
    event = control(MembershipOp.JOIN, [CARA], Audience.CONCERNED)
    found = await reached(line, messages(CITY, 5, 1, [event], flags=BEGAN))
    assert found == Reached({ANA: 10, BEN: 10, CARA: 10}, {ANA, BEN, CARA})


async def test_a_group_that_is_big_from_its_creation_is_projected_once() -> None:
    created = state(CITY, StateChange.CREATED, flags=BEGAN)
    found = await reached(Line({1: {ANA, BEN}}), created, messages(CITY, 1, 1, [ordinary(ANA)], flags=BIG))
    assert found == Reached({ANA: 10, BEN: 10}, {ANA, BEN})


async def test_a_group_that_shrank_is_projected_by_its_messages_again() -> None:
    line = Line({5: {ANA, BEN, CARA}, 6: {ANA, BEN}})
    found = await reached(
        line,
        messages(CITY, 5, 1, [control(MembershipOp.JOIN, [CARA])], flags=BEGAN),
        messages(CITY, 6, 2, [control(MembershipOp.LEAVE, [CARA])]),
        messages(CITY, 6, 3, [ordinary(ANA)]),
    )
    assert found == Reached({ANA: 30, BEN: 30, CARA: 20}, {ANA, BEN, CARA})

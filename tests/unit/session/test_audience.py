"""Whom a stretch of a conversation reached, and how seldom the writer is asked."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client import CollectorRegistry
from tests.support.dispatch import TENANT, group, user

from qim_common.errors import BackendUnavailable, MembershipVersionExpired
from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.commands.audience import Audiences
from qim_session.domain.folding import ConversationRun, Step
from qim_session.domain.membership import MembersCache, MembershipChange

ANA, BEN, CARA = user(1), user(2), user(3)


class Line:
    """A conversation whose versions are known: version to members, version to the change that made it."""

    def __init__(
        self, members: Mapping[int, set[UserId]], changes: Mapping[int, MembershipChange] | None = None
    ) -> None:
        self._members = members
        self._changes = changes or {}
        self.asked: list[str] = []
        self.down = False

    async def members(self, tenant: TenantId, conversation: ConversationId, version: int) -> set[UserId]:
        self.asked.append(f"members {version}")
        if self.down:
            raise BackendUnavailable
        if version not in self._members:
            raise MembershipVersionExpired
        return set(self._members[version])

    async def change(self, tenant: TenantId, group: ConversationId, version: int) -> MembershipChange:
        self.asked.append(f"change {version}")
        return self._changes[version]


def audiences(line: Line) -> tuple[Audiences, SessionMetrics]:
    metrics = SessionMetrics(CollectorRegistry())
    return Audiences(line, MembersCache(1000), metrics), metrics


def run(*steps: Step) -> ConversationRun:
    return ConversationRun(TENANT, group(1), steps)


def event(version: int, seq: int, op: MembershipOp, *people: UserId) -> MembershipChange:
    return MembershipChange(version, seq, op, people)


JOINED = event(2, 5, MembershipOp.JOIN, CARA)
LEFT = event(3, 6, MembershipOp.LEAVE, BEN)


async def test_an_ordinary_message_reaches_the_members_at_its_version() -> None:
    line = Line({1: {ANA, BEN}})
    found, _ = audiences(line)
    assert (await found.reached(run(Step(1, 10, 1, broadcast=True)))).times == {ANA: 10, BEN: 10}


async def test_members_are_asked_for_once_and_moved_on_by_the_log() -> None:
    line = Line({1: {ANA, BEN}})
    found, _ = audiences(line)
    await found.reached(run(Step(1, 10, 4, broadcast=True)))
    reached = await found.reached(
        run(
            Step(2, 11, 5, broadcast=True, change=JOINED),
            Step(3, 12, 6, broadcast=True, change=LEFT),
            Step(3, 13, 7, broadcast=True),
        )
    )
    assert reached.times == {ANA: 13, BEN: 12, CARA: 13}
    assert line.asked == ["members 1"]


async def test_the_leaver_gets_the_own_event_and_nothing_after_it() -> None:
    line = Line({3: {ANA, CARA}})
    found, _ = audiences(line)
    left = Step(3, 12, 6, broadcast=True, change=LEFT)
    reached = (await found.reached(run(left, Step(3, 13, 7, broadcast=True)))).times
    assert reached[BEN] == 12
    assert reached[ANA] == 13


async def test_a_concerned_event_reaches_the_people_in_it_without_asking_anybody() -> None:
    line = Line({})
    found, _ = audiences(line)
    reached = (await found.reached(run(Step(3, 12, 6, broadcast=False, change=LEFT)))).times
    assert reached == {BEN: 12}
    assert line.asked == []


async def test_a_stretch_that_is_read_again_gets_the_members_of_its_own_version() -> None:
    line = Line({1: {ANA, BEN}, 2: {ANA, BEN, CARA}})
    found, _ = audiences(line)
    await found.reached(run(Step(2, 11, 5, broadcast=True, change=JOINED)))
    assert (await found.reached(run(Step(1, 10, 4, broadcast=True)))).times == {ANA: 10, BEN: 10}


async def test_the_people_of_a_large_event_are_asked_for() -> None:
    line = Line({2: {ANA, BEN, CARA}, 3: {ANA, CARA}}, {3: LEFT})
    found, _ = audiences(line)
    await found.reached(run(Step(2, 11, 5, broadcast=True)))
    assert (await found.reached(run(Step(3, 12, 6, broadcast=True, opaque=True)))).times == {ANA: 12, BEN: 12, CARA: 12}
    assert line.asked == ["members 2", "change 3"]


async def test_a_version_that_nobody_knows_is_counted_and_the_rest_still_reached() -> None:
    line = Line({9: {ANA}})
    found, metrics = audiences(line)
    reached = (await found.reached(run(Step(8, 10, 1, broadcast=True), Step(9, 11, 2, broadcast=True)))).times
    assert reached == {ANA: 11}
    assert metrics.audiences_unresolved._value.get() == 1


async def test_a_writer_that_does_not_answer_fails_the_stretch() -> None:
    line = Line({1: {ANA}})
    line.down = True
    found, _ = audiences(line)
    with pytest.raises(BackendUnavailable):
        await found.reached(run(Step(1, 10, 1, broadcast=True)))

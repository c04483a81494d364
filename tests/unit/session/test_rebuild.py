"""Who is rebuilt, when, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from prometheus_client import CollectorRegistry
from tests.support.dispatch import TENANT, group, user
from tests.unit.session.people_in_memory import Owner, state

from qim_common.errors import BackendUnavailable
from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.telemetry.metrics import SessionMetrics
from qim_common.topology import Topology
from qim_session.commands.rebuild import Rebuild
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.list_pages import ListPosition

ANA = user(1)


class Store:
    """One session instance: epoch, Ana's mark and list, the authority, and what waits to get into it."""

    def __init__(self) -> None:
        self.now = 3
        self.marked: int | None = None
        self.times: dict[ConversationId, int] = {}
        self.big: set[ConversationId] = set()
        self.authority: list[ConversationId] = []
        self.waiting: list[ConversationId] = []
        self.when_asked: Callable[[], Awaitable[None]] | None = None

    async def epoch(self, tenant: TenantId, user: UserId) -> tuple[int, int | None]:
        return self.now, self.marked

    async def restore(
        self, tenant: TenantId, user: UserId, places: Sequence[ListPosition], big: Sequence[ConversationId]
    ) -> None:
        self.times.update({place.conversation: place.time_ms for place in places})
        self.big.update(big)

    async def mark(self, tenant: TenantId, user: UserId, epoch: int) -> None:
        self.marked = epoch

    async def flush(self) -> None:
        self.authority += self.waiting
        self.waiting.clear()

    async def of(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        if self.when_asked is not None:
            await self.when_asked()
        return list(self.authority)

    async def register(self, entries: Sequence[ProjectionEntry]) -> None:
        raise AssertionError("a rebuild registers nothing")


class Case:
    """A store, its writer, and the rebuild between them."""

    def __init__(self) -> None:
        self.store, self.owner = Store(), Owner()
        self.metrics = SessionMetrics(CollectorRegistry())
        topology = Topology(("here:1",), 8, "test")
        self.rebuild = Rebuild(self.store, self.store, self.owner, [self.store], topology, self.metrics)

    def has(self, number: int, time_ms: int, *, big: bool = False) -> None:
        self.store.authority.append(group(number))
        self.owner.known[group(number)] = state(group(number), time_ms, big=big)

    @property
    def runs(self) -> float:
        return float(self.metrics.users_rebuilt._value.get())


async def test_a_person_without_a_mark_is_rebuilt_by_last_activity_and_marked() -> None:
    case = Case()
    case.has(1, 50)
    case.has(2, 70, big=True)
    await case.rebuild.ensure(TENANT, ANA)
    assert case.store.times == {group(1): 50, group(2): 70}
    assert case.store.big == {group(2)}
    assert (case.store.marked, case.runs) == (3, 1)


async def test_a_person_of_this_epoch_is_not_touched() -> None:
    case = Case()
    case.has(1, 50)
    case.store.marked = 3
    await case.rebuild.ensure(TENANT, ANA)
    assert (case.store.times, case.runs, case.owner.calls) == ({}, 0, [])


@pytest.mark.parametrize("mark", [2, 4])
async def test_every_other_mark_is_old(mark: int) -> None:
    case = Case()
    case.has(1, 50)
    case.store.marked = mark
    await case.rebuild.ensure(TENANT, ANA)
    assert (case.store.times, case.store.marked) == ({group(1): 50}, 3)


async def test_what_waits_to_be_registered_is_in_the_set_that_is_read() -> None:
    case = Case()
    case.has(1, 50)
    case.store.waiting, case.store.authority = case.store.authority, []
    await case.rebuild.ensure(TENANT, ANA)
    assert case.store.times == {group(1): 50}


async def test_calls_at_the_same_time_share_one_run() -> None:
    case = Case()
    case.has(1, 50)
    await asyncio.gather(*(case.rebuild.ensure(TENANT, ANA) for _ in range(20)))
    assert (case.runs, case.owner.calls) == (1, [1])


async def test_an_epoch_that_rises_meanwhile_is_rebuilt_again() -> None:
    case = Case()
    case.has(1, 50)

    async def rise() -> None:
        case.store.when_asked = None
        case.store.now += 1

    case.store.when_asked = rise
    await case.rebuild.ensure(TENANT, ANA)
    assert (case.store.marked, case.runs) == (4, 2)


async def test_a_failure_reaches_everybody_and_leaves_the_mark_old() -> None:
    case = Case()
    case.has(1, 50)
    case.owner.down = True
    outcomes = await asyncio.gather(*(case.rebuild.ensure(TENANT, ANA) for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [BackendUnavailable] * 3
    assert (case.store.marked, case.runs) == (None, 0)
    case.owner.down = False
    await case.rebuild.ensure(TENANT, ANA)
    assert (case.store.marked, case.store.times) == (3, {group(1): 50})


async def test_a_run_goes_on_when_its_caller_has_gone() -> None:
    case = Case()
    case.has(1, 50)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def stop() -> None:
        begun.set()
        await go_on.wait()

    case.store.when_asked = stop
    first = asyncio.create_task(case.rebuild.ensure(TENANT, ANA))
    await begun.wait()
    second = asyncio.create_task(case.rebuild.ensure(TENANT, ANA))
    first.cancel()
    await asyncio.wait([first])
    go_on.set()
    await second
    assert (case.runs, case.store.times) == (1, {group(1): 50})


async def test_states_are_asked_for_500_at_a_time() -> None:
    case = Case()
    for number in range(1, 1002):
        case.has(number, number)
    await case.rebuild.ensure(TENANT, ANA)
    assert case.owner.calls == [500, 500, 1]
    assert len(case.store.times) == 1001


async def test_a_registered_conversation_that_its_owner_denies_is_noticed() -> None:
    case = Case()
    case.has(1, 50)
    case.store.authority.append(group(2))
    await case.rebuild.ensure(TENANT, ANA)
    assert case.store.times == {group(1): 50}
    assert case.metrics.group_interval_missing._value.get() == 1


async def test_a_person_without_conversations_is_marked_too() -> None:
    case = Case()
    await case.rebuild.ensure(TENANT, ANA)
    assert (case.store.marked, case.owner.calls) == (3, [])

"""Registration: whichever lane comes first registers, once, and the authority has it (the ADR's acceptance)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.integration.session.conftest import BUCKETS, Running, Store, until
from tests.support.dispatch import TENANT, control, group, messages, ordinary, state, user

from qim_common.errors import BackendUnavailable, InvalidArgument, TooManyItems
from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId
from qim_common.keys import checkpoints
from qim_common.records import StateChange
from qim_session.commands.audience import Audiences
from qim_session.commands.project import CONCERNED_MAX, RUNS_MAX, WAITING_MAX, Project
from qim_session.commands.projection import Projector
from qim_session.commands.register import Registrar
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.hints import Hint
from qim_session.domain.membership import MembersCache
from qim_session.storage.projection import ENTRIES_PER_CALL

ANA, BEN, CARA = user(1), user(2), user(3)
HIKERS = group(1)
FIRST = Hint(TENANT, HIKERS, version=1, time_ms=20, broadcast=True)
pytestmark = pytest.mark.server


def project_of(store: Store) -> Project:
    """The low-latency lane of another process."""
    return Project(
        Projector([store.projection], store.topology),
        Audiences(store.members, MembersCache(10_000), store.metrics),
        store.progress(),
        store.topology,
        store.metrics,
    )


def registrar_of(store: Store) -> Registrar:
    return Registrar(store.projection, store.people, store.metrics)


@asynccontextmanager
async def running(*workers: Project | Registrar) -> AsyncIterator[None]:
    """These at work; leaving the context ends them."""
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def are_listed(store: Store, people: Sequence[UserId], expected: dict[ConversationId, int]) -> bool:
    return all([await store.listed(person) == expected for person in people])


async def are_registered(store: Store, people: Sequence[UserId], expected: dict[ConversationId, int]) -> bool:
    return all([await store.registered(person) == expected for person in people])


async def nothing_waits(store: Store) -> bool:
    return (await store.projection.pending(1))[1] == 0


def written(store: Store) -> float:
    """How many registrations have been written, repeated ones included."""
    count: float = store.metrics.conversation_state_written._value.get()
    return count


async def caught_up(store: Store, time_ms: int) -> bool:
    return (await store.progress().partitions())[store.partition(HIKERS)] >= time_ms


async def test_the_low_latency_lane_first_registers_once_and_reads_back(store: Store) -> None:
    """The ADR's regression: the lane without a checkpoint comes first, and nobody is registered twice or not at all."""
    store.members.versions[HIKERS, 1] = {ANA, BEN}
    project = project_of(store)
    async with running(project, registrar_of(store)):
        project([FIRST])
        await until(lambda: are_registered(store, (ANA, BEN), {HIKERS: 20}))
        await until(lambda: nothing_waits(store))
        assert written(store) == 2
        assert await store.people.of(TENANT, ANA) == await store.people.of(TENANT, BEN) == [HIKERS]

        await store.append(HIKERS, state(HIKERS, StateChange.CREATED), at="10-0")
        await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="20-0")
        for _ in ("the durable lane", "its replay after its checkpoint was lost"):
            async with Running(store.consumer()):
                await until(lambda: caught_up(store, 20))
            await store.instance.call("DEL", checkpoints(0), "{u000}:progress")
        project([FIRST])
        project([replace(FIRST, time_ms=30)])
        await until(lambda: are_listed(store, (ANA, BEN), {HIKERS: 30}))
        assert await nothing_waits(store)
    assert written(store) == 2
    assert await are_registered(store, (ANA, BEN), {HIKERS: 20})


async def test_the_durable_lane_first_registers_once_as_well(store: Store) -> None:
    store.members.versions[HIKERS, 1] = {ANA}
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(ANA)]), at="20-0")
    project = project_of(store)
    async with running(project, registrar_of(store)):
        async with Running(store.consumer()):
            await until(lambda: are_registered(store, (ANA,), {HIKERS: 20}))
        await store.instance.call("DEL", "{u000}:progress")
        project([FIRST, replace(FIRST, time_ms=30)])
        await until(lambda: are_listed(store, (ANA,), {HIKERS: 30}))
    assert written(store) == 1


async def test_both_lanes_at_once_register_everybody_once(store: Store) -> None:
    people = [user(number) for number in range(1, 51)]
    groups = [group(number) for number in range(1, 41)]
    project = project_of(store)
    registrars = [registrar_of(store) for _ in range(3)]
    async with running(project, *registrars), Running(store.consumer()):
        for number, conversation in enumerate(groups, 1):
            store.members.versions[conversation, 1] = set(people)
            hint = replace(FIRST, conversation=conversation, time_ms=number)
            project([hint])
            await store.append(conversation, messages(conversation, 1, 1, [ordinary(ANA)]), at=f"{number}-0")
        expected = {conversation: number for number, conversation in enumerate(groups, 1)}
        await until(lambda: are_listed(store, people, expected))
        await until(lambda: nothing_waits(store))
    assert await are_registered(store, people, expected)


async def test_what_the_durable_lane_has_passed_is_skipped(store: Store) -> None:
    await store.instance.call("HSET", "{u000}:progress", str(store.partition(HIKERS)), 21)
    other = replace(FIRST, conversation=group(2), concerned=(CARA,), broadcast=False, time_ms=5000)
    project = project_of(store)
    async with running(project):
        project([replace(FIRST, concerned=(BEN,)), other])
        await until(lambda: are_listed(store, (CARA,), {group(2): 5000}))
    assert await store.listed(BEN) == {}


async def test_a_big_group_is_hinted_to_those_concerned_only(store: Store) -> None:
    store.members.versions[HIKERS, 3] = {ANA, BEN, CARA}
    project = project_of(store)
    async with running(project):
        project([replace(FIRST, big=True)])
        project([replace(FIRST, version=2, big=True, concerned=(CARA,))])
        await until(lambda: are_listed(store, (CARA,), {HIKERS: 20}))
        assert await store.listed(ANA) == {}
        project([replace(FIRST, version=3, big=True, became_big=True, concerned=(CARA,), time_ms=30)])
        await until(lambda: are_listed(store, (ANA, BEN, CARA), {HIKERS: 30}))
    assert await store.big(ANA) == await store.big(CARA) == {HIKERS}


@pytest.mark.parametrize(
    ("hints", "refusal"),
    [
        ([], InvalidArgument),
        ([replace(FIRST, version=0)], InvalidArgument),
        ([replace(FIRST, time_ms=0)], InvalidArgument),
        ([replace(FIRST, time_ms=-5)], InvalidArgument),
        ([FIRST] * (RUNS_MAX + 1), TooManyItems),
        ([replace(FIRST, concerned=(ANA,) * (CONCERNED_MAX + 1))], TooManyItems),
    ],
)
async def test_a_call_that_makes_no_sense_is_refused_whole(
    store: Store, hints: list[Hint], refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        project_of(store)(hints)


async def test_what_does_not_fit_is_dropped_and_counted(store: Store) -> None:
    project = project_of(store)
    for start in range(0, WAITING_MAX, RUNS_MAX):
        project([replace(FIRST, conversation=group(start + number)) for number in range(1, RUNS_MAX + 1)])
    assert store.metrics.hints_dropped._value.get() == 0
    project([replace(FIRST, conversation=group(WAITING_MAX + 1)), FIRST])
    assert store.metrics.hints_dropped._value.get() == 1


async def test_what_the_writer_does_not_tell_is_left_to_the_durable_lane(store: Store) -> None:
    store.members.versions[HIKERS, 1] = {ANA}
    store.members.down = True
    project = project_of(store)

    async def dropped() -> bool:
        return bool(store.metrics.hints_dropped._value.get() == 1)

    async with running(project):
        project([FIRST])
        await until(dropped)
        store.members.down = False
        project([FIRST])
        await until(lambda: are_listed(store, (ANA,), {HIKERS: 20}))


async def test_a_leaver_is_hinted_with_the_own_event(store: Store) -> None:
    store.members.versions |= {(HIKERS, 1): {ANA, BEN}, (HIKERS, 2): {ANA}}
    project = project_of(store)
    async with running(project), Running(store.consumer()):
        project([replace(FIRST, version=2, time_ms=20, concerned=(BEN,)), replace(FIRST, version=2, time_ms=30)])
        await until(lambda: are_listed(store, (ANA,), {HIKERS: 30}))
        assert await store.listed(BEN) == {HIKERS: 20}
        leave = messages(HIKERS, 2, 1, [control(MembershipOp.LEAVE, [BEN]), ordinary(ANA)])
        await store.append(HIKERS, leave, at="20-0")
        await until(lambda: caught_up(store, 20))
    assert await store.listed(BEN) == {HIKERS: 20}


def waiting(count: int) -> list[ProjectionEntry]:
    return [ProjectionEntry(TENANT, user(number), HIKERS, 10) for number in range(1, count + 1)]


async def fill(store: Store, count: int) -> None:
    entries = waiting(count)
    for start in range(0, count, ENTRIES_PER_CALL):
        await store.projection.project(entries[start : start + ENTRIES_PER_CALL], None)


async def test_several_registrars_at_once_lose_nothing(store: Store) -> None:
    await fill(store, 1100)
    async with running(*(registrar_of(store) for _ in range(4))):
        await until(lambda: nothing_waits(store))
    assert await are_registered(store, [user(number) for number in range(1, 1101)], {HIKERS: 10})


async def test_a_registrar_that_died_between_writing_and_popping_is_followed_by_another(store: Store) -> None:
    await fill(store, 3)
    await store.people.register(waiting(2))
    async with running(registrar_of(store)):
        await until(lambda: nothing_waits(store))
    assert await are_registered(store, (ANA, BEN, CARA), {HIKERS: 10})


async def test_a_flush_registers_everything_that_waits(store: Store) -> None:
    await fill(store, 600)
    registrar, other = registrar_of(store), registrar_of(store)
    await asyncio.gather(registrar.flush(), registrar.flush(), other.flush())
    assert await nothing_waits(store)
    assert await are_registered(store, [user(1), user(300), user(600)], {HIKERS: 10})
    await registrar.flush()


class DownSets:
    """An authority that does not answer."""

    async def register(self, entries: Sequence[ProjectionEntry]) -> None:
        raise BackendUnavailable

    async def of(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        raise BackendUnavailable


async def test_a_flush_that_cannot_write_says_so_and_pops_nothing(store: Store) -> None:
    await fill(store, 3)
    registrar = Registrar(store.projection, DownSets(), store.metrics)
    outcomes = await asyncio.gather(registrar.flush(), registrar.flush(), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [BackendUnavailable] * 2
    assert (await store.projection.pending(10))[1] == 3


async def test_all_partitions_registrations_come_through_one_list(store: Store) -> None:
    groups = [group(number) for number in range(1, 2 * BUCKETS + 1)]
    await store.projection.project([ProjectionEntry(TENANT, ANA, one, 10) for one in groups], None)
    await registrar_of(store).flush()
    assert await store.registered(ANA) == dict.fromkeys(groups, 10)

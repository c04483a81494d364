"""Big groups on a real Valkey: nothing is written for a message, and everybody's list knows that the group is big."""

from __future__ import annotations

import pytest
from tests.integration.session.conftest import Running, Store, until
from tests.support.dispatch import TENANT, control, group, messages, ordinary, state, user

from qim_common.ids import MembershipOp
from qim_common.records import Audience, BlockFlags, StateChange
from qim_session.domain.entries import ProjectionEntry
from qim_session.storage.projection import Projected

ANA, BEN, CARA = user(1), user(2), user(3)
CITY, HIKERS = group(1), group(2)
BIG = BlockFlags.BIG
BEGAN = BlockFlags.BIG | BlockFlags.BIG_BEGAN
pytestmark = pytest.mark.server


async def consume_up_to(store: Store, time_ms: int) -> None:
    async def reached() -> bool:
        return (await store.progress().partitions())[store.partition(CITY)] >= time_ms

    async with Running(store.consumer()):
        await until(reached)


async def test_a_message_of_a_big_group_writes_no_entry(store: Store) -> None:
    store.members.versions[CITY, 1] = {ANA, BEN}
    await store.append(CITY, state(CITY, StateChange.CREATED, flags=BEGAN), at="10-0")
    await consume_up_to(store, 10)
    projected = store.metrics.projected_entries._value.get()
    assert projected == 2
    last = ""
    for number in range(1, 101):
        last = await store.append(CITY, messages(CITY, 1, number, [ordinary(ANA)], flags=BIG))
    await consume_up_to(store, int(last.partition("-")[0]))
    assert store.metrics.projected_entries._value.get() == projected
    assert await store.listed(ANA) == await store.listed(BEN) == {CITY: 10}
    assert await store.big(ANA) == await store.big(BEN) == {CITY}


async def test_when_a_group_becomes_big_all_its_members_lists_learn_it(store: Store) -> None:
    store.members.versions |= {(CITY, 1): {ANA, BEN}, (CITY, 2): {ANA, BEN, CARA}}
    join = control(MembershipOp.JOIN, [CARA], Audience.CONCERNED)
    await store.append(CITY, state(CITY, StateChange.CREATED), at="10-0")
    await store.append(CITY, messages(CITY, 2, 1, [join], flags=BEGAN), at="20-0")
    await consume_up_to(store, 20)
    for person in (ANA, BEN, CARA):
        assert (await store.listed(person), await store.big(person)) == ({CITY: 20}, {CITY})
    assert (await store.projection.pending(10))[1] == 3


async def test_whoever_joins_a_big_group_has_it_and_is_registered(store: Store) -> None:
    join = control(MembershipOp.JOIN, [CARA], Audience.CONCERNED)
    await store.append(CITY, messages(CITY, 2, 1, [join], flags=BIG), at="20-0")
    await store.append(CITY, messages(CITY, 2, 2, [ordinary(ANA)], flags=BIG), at="30-0")
    await consume_up_to(store, 30)
    assert (await store.listed(CARA), await store.big(CARA)) == ({CITY: 20}, {CITY})
    assert (await store.projection.pending(10))[0] == [ProjectionEntry(TENANT, CARA, CITY, 20)]


async def test_a_group_that_shrank_goes_on_by_its_messages_and_stays_noted(store: Store) -> None:
    store.members.versions |= {(CITY, 2): {ANA, BEN}, (CITY, 3): {ANA}}
    await store.append(CITY, messages(CITY, 2, 1, [control(MembershipOp.JOIN, [BEN])], flags=BEGAN), at="10-0")
    await store.append(CITY, messages(CITY, 3, 2, [control(MembershipOp.LEAVE, [BEN])]), at="20-0")
    await store.append(CITY, messages(CITY, 3, 3, [ordinary(ANA)]), at="30-0")
    await consume_up_to(store, 30)
    assert (await store.listed(ANA), await store.listed(BEN)) == ({CITY: 30}, {CITY: 20})
    assert await store.big(ANA) == await store.big(BEN) == {CITY}


async def test_one_call_takes_entries_of_both_kinds(store: Store) -> None:
    entries = [
        ProjectionEntry(TENANT, ANA, HIKERS, 10),
        ProjectionEntry(TENANT, ANA, CITY, 20, big=True),
        ProjectionEntry(TENANT, BEN, HIKERS, 30),
        ProjectionEntry(TENANT, CARA, CITY, 40, big=True),
    ]
    assert await store.projection.project(entries, None) == Projected(new=4)
    assert await store.projection.project(entries, None) == Projected(new=0)
    assert await store.listed(ANA) == {HIKERS: 10, CITY: 20}
    assert (await store.listed(BEN), await store.listed(CARA)) == ({HIKERS: 30}, {CITY: 40})
    assert [await store.big(person) for person in (ANA, BEN, CARA)] == [{CITY}, set(), {CITY}]

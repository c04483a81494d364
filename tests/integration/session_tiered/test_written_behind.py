"""Read marks, device cursors and flags survive the loss of the session store, up to the last flush."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.session.conftest import until
from tests.integration.session_tiered.conftest import LAPTOP, PHONE, People
from tests.support.dispatch import group, user

from qim_common.errors import BackendUnavailable
from qim_common.keys import unflushed, usig
from qim_session.backends.redis_flags import RedisFlags
from qim_session.backends.redis_people import RedisPeople
from qim_session.domain.cursors import NOTHING, Cursor

pytestmark = pytest.mark.server
ANA, BEN = user(1), user(2)
GROUPS = [group(number) for number in range(1, 5)]
A, B, C, D = GROUPS


async def a_full_life(people: People) -> None:
    """Ana has read, received on two devices, hidden and muted; Ben has read."""
    await people.read(ANA, A, Cursor(0, 3))
    await people.read(ANA, A, Cursor(0, 7))
    await people.read(ANA, B, Cursor(1, 2))
    await people.received(ANA, PHONE, {A: Cursor(0, 7), C: Cursor(2, 9)})
    await people.received(ANA, LAPTOP, {A: Cursor(0, 4)})
    await people.set(ANA, C, hidden=True)
    await people.set(ANA, D, muted=True)
    await people.set(ANA, D, hidden=True)
    await people.set(ANA, D, hidden=False)
    await people.read(BEN, A, Cursor(0, 1))


async def wipe(people: People) -> None:
    await people.store.instance.call("FLUSHALL")


async def test_after_a_wipe_everything_is_what_it_was(people: People) -> None:
    await a_full_life(people)
    before = await people.sights(ANA, GROUPS)
    assert await people.flusher().flush() == 8
    assert await people.unflushed() == 0

    await wipe(people)
    assert (await people.sights(ANA, GROUPS))[0][A].read == NOTHING
    await people.restore(people.tenant, ANA)

    assert await people.sights(ANA, GROUPS) == before
    assert (await people.people.read(people.tenant, BEN, [A]))[A] == NOTHING, "each person comes back on their own"
    assert await people.unflushed() == 0, "what came from there is not written again"
    assert await people.store.instance.call("EXISTS", usig(0)) == 0, "nobody is told of what they know"


async def test_what_was_set_after_the_last_flush_is_lost_and_no_more(people: People) -> None:
    await people.read(ANA, A, Cursor(0, 3))
    await people.flusher().flush()
    await people.read(ANA, A, Cursor(0, 9))
    await wipe(people)
    await people.restore(people.tenant, ANA)
    assert (await people.people.read(people.tenant, ANA, [A]))[A] == Cursor(0, 3)


async def test_what_is_newer_in_the_store_stays_whenever_the_rest_comes_back(people: People) -> None:
    await a_full_life(people)
    await people.flusher().flush()
    await people.read(ANA, A, Cursor(1, 1))
    await people.received(ANA, PHONE, {A: Cursor(0, 8)})
    await people.set(ANA, D, muted=False)
    newer = await people.sights(ANA, GROUPS)
    await people.restore(people.tenant, ANA)
    assert await people.sights(ANA, GROUPS) == newer


async def test_flags_that_came_back_are_counted_on(people: People) -> None:
    await people.set(ANA, A, muted=True)
    await people.set(ANA, A, hidden=True)
    await people.flusher().flush()
    await wipe(people)
    await people.restore(people.tenant, ANA)
    await people.set(ANA, A, muted=False)
    await people.flusher().flush()
    expected = await people.sights(ANA, GROUPS)
    assert expected[0][A].flags.changes == 3
    await wipe(people)
    await people.restore(people.tenant, ANA)
    assert await people.sights(ANA, GROUPS) == expected


async def test_a_flusher_that_dies_between_writing_and_noting_it_leaves_it_to_the_next_one(people: People) -> None:
    await a_full_life(people)
    before = await people.sights(ANA, GROUPS)
    people.archive.dies_after = 0
    with pytest.raises(BackendUnavailable):
        await people.flusher().flush()
    assert await people.unflushed() == 8
    people.archive.dies_after = None
    await people.flusher().flush()
    assert await people.unflushed() == 0
    await wipe(people)
    await people.restore(people.tenant, ANA)
    assert await people.sights(ANA, GROUPS) == before


async def test_what_moves_between_the_write_and_its_note_is_written_again(people: People) -> None:
    await people.read(ANA, A, Cursor(0, 3))
    written = people.archive.write

    async def and_meanwhile(marks: object) -> None:
        await written(marks)  # type: ignore[arg-type]
        await people.read(ANA, A, Cursor(0, 4))

    people.archive.write = and_meanwhile  # type: ignore[method-assign]
    await people.flusher().flush()
    assert await people.unflushed() == 1
    people.archive.write = written  # type: ignore[method-assign]
    await people.flusher().flush()
    await wipe(people)
    await people.restore(people.tenant, ANA)
    assert (await people.people.read(people.tenant, ANA, [A]))[A] == Cursor(0, 4)


async def test_several_flushers_at_once_do_no_harm(people: People) -> None:
    for number in range(1, 30):
        await people.received(user(number), PHONE, {one: Cursor(0, number) for one in GROUPS})
    await asyncio.gather(*(people.flusher().flush() for _ in range(3)))
    assert await people.unflushed() == 0
    await wipe(people)
    for number in (1, 15, 29):
        await people.restore(people.tenant, user(number))
        found = await people.people.device(people.tenant, user(number), PHONE, GROUPS)
        assert found == dict.fromkeys(GROUPS, Cursor(0, number))


async def test_while_cassandra_is_away_cursors_move_and_wait_and_are_written_afterwards(people: People) -> None:
    people.archive.refuses = True
    flusher = people.flusher()
    flusher.hold(range(8))
    task = asyncio.create_task(flusher.run())
    failures = people.store.metrics.mark_failures
    await people.read(ANA, A, Cursor(0, 3))

    async def refused() -> bool:
        return bool(failures._value.get() >= 2)

    await until(refused)
    assert (await people.people.read(people.tenant, ANA, [A]))[A] == Cursor(0, 3)
    assert people.store.metrics.marks_unflushed.labels("0")._value.get() == 1
    people.archive.refuses = False

    async def written() -> bool:
        return await people.unflushed() == 0

    await until(written)
    task.cancel()
    await asyncio.wait([task])


async def test_only_the_holder_of_the_instance_s_own_partition_writes(people: People) -> None:
    await people.read(ANA, A, Cursor(0, 3))
    idle, working = people.flusher(), people.flusher()
    idle.hold([1, 2, 3])
    tasks = [asyncio.create_task(idle.run())]
    working.hold([0])
    tasks.append(asyncio.create_task(working.run()))
    marks_written = people.store.metrics.marks_written

    async def written() -> bool:
        return bool(marks_written._value.get() == 1)

    await until(written)
    working.hold([])
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert (marks_written._value.get(), await people.unflushed()) == (1, 0)


async def test_what_cannot_be_read_is_left_out_and_counted_and_holds_up_nothing(people: People) -> None:
    await people.read(ANA, A, Cursor(0, 3))
    rows = [b"short", b"x", b"\x09" + bytes(56), bytes(12), b"\x01" + bytes(56), b"y"]
    await people.store.instance.call("HSET", unflushed(0), *rows)
    assert await people.flusher().flush() == 1
    assert await people.unflushed() == 0
    assert people.store.metrics.mark_failures._value.get() == 3


async def test_the_redis_backend_notes_nothing(people: People) -> None:
    store = people.store
    people.people = RedisPeople([store.instance], store.topology)
    people.flags = RedisFlags([store.instance], store.topology)
    await a_full_life(people)
    assert await people.unflushed() == 0

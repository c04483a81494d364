"""How far the projection is: one read for all who ask, and the slowest of partitions and instances counts."""

from __future__ import annotations

import asyncio

import pytest

from qim_common.errors import BackendUnavailable
from qim_session.commands.progress import CACHED_SECONDS, ProgressReader


class Instance:
    """A session instance that answers when it is let."""

    def __init__(self, **stored: int) -> None:
        self.stored = {int(name[1:]): time_ms for name, time_ms in stored.items()}
        self.go = asyncio.Event()
        self.go.set()
        self.reads = 0
        self.down = False

    async def progress(self) -> dict[int, int]:
        self.reads += 1
        await self.go.wait()
        if self.down:
            raise BackendUnavailable
        return dict(self.stored)


async def test_the_slowest_instance_and_partition_count() -> None:
    reader = ProgressReader([Instance(p0=10, p1=40), Instance(p0=30, p1=20)], range(2))
    assert await reader.partitions() == {0: 10, 1: 20}
    assert await reader.settled_ms() == 10


async def test_a_partition_without_progress_counts_as_nothing() -> None:
    reader = ProgressReader([Instance(p0=10), Instance(p0=10, p1=20)], range(2))
    assert await reader.partitions() == {0: 10, 1: 0}


async def test_all_who_ask_at_once_share_a_read() -> None:
    instance = Instance(p0=10)
    reader = ProgressReader([instance], range(1))
    assert await asyncio.gather(*(reader.settled_ms() for _ in range(20))) == [10] * 20
    assert instance.reads == 1


async def test_a_read_that_takes_longer_than_an_answer_lasts_is_an_answer() -> None:
    class Slow(Instance):
        async def progress(self) -> dict[int, int]:
            await asyncio.sleep(CACHED_SECONDS * 1.5)
            return await super().progress()

    instance = Slow(p0=10)
    reader = ProgressReader([instance], range(1))
    async with asyncio.timeout(10):
        assert await reader.settled_ms() == 10
    assert instance.reads == 1


async def test_a_caller_that_goes_away_takes_nothing_from_the_others() -> None:
    instance = Instance(p0=10)
    instance.go.clear()
    reader = ProgressReader([instance], range(1))
    first, second = (asyncio.create_task(reader.settled_ms()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    instance.go.set()
    assert await second == 10
    assert instance.reads == 1


async def test_an_instance_that_is_down_is_told_and_asked_again() -> None:
    instance = Instance(p0=10)
    instance.down = True
    reader = ProgressReader([instance], range(1))
    outcomes = await asyncio.gather(reader.settled_ms(), reader.settled_ms(), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [BackendUnavailable] * 2
    instance.down = False
    assert await reader.settled_ms() == 10


async def test_waiting_for_a_moment_ends_when_every_partition_has_reached_it() -> None:
    instance = Instance(p0=10, p1=30)
    reader = ProgressReader([instance], range(2))
    await reader.reached(10)
    waiting = asyncio.create_task(reader.reached(20))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.shield(waiting)
    instance.stored[0] = 20
    async with asyncio.timeout(10):
        await waiting

"""Work that survives its caller."""

import asyncio

import pytest

from qim_common.server.tasks import TaskKeeper


async def test_work_gives_its_result_to_the_caller() -> None:
    async def work() -> int:
        return 7

    assert await TaskKeeper().shield(work()) == 7


async def test_a_failure_reaches_the_caller() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await TaskKeeper().shield(work())


async def test_a_cancelled_caller_leaves_the_work_running_and_drain_waits_for_it() -> None:
    keeper = TaskKeeper()
    entered, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        entered.set()
        await go_on.wait()
        done.set()

    caller = asyncio.create_task(keeper.shield(work()))
    await entered.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert len(keeper) == 1

    go_on.set()
    assert await keeper.drain(5) == 0
    assert done.is_set()
    assert len(keeper) == 0


async def test_a_failure_after_the_caller_has_gone_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    keeper = TaskKeeper()
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        entered.set()
        await go_on.wait()
        raise ValueError("lost")

    caller = asyncio.create_task(keeper.shield(work()))
    await entered.wait()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    go_on.set()
    await keeper.drain(5)

    assert [record.message for record in caplog.records] == ["work failed after its caller had gone"]


async def test_drain_waits_for_work_that_was_started_meanwhile() -> None:
    keeper = TaskKeeper()
    seen: list[str] = []

    async def second() -> None:
        await asyncio.sleep(0)
        seen.append("second")

    async def first() -> None:
        await asyncio.sleep(0)
        callers.append(asyncio.create_task(keeper.shield(second())))
        await asyncio.sleep(0)

    callers = [asyncio.create_task(keeper.shield(first()))]
    await asyncio.sleep(0)
    await keeper.drain(5)

    assert seen == ["second"]
    await asyncio.gather(*callers)


async def test_drain_ends_in_time_and_cancels_what_does_not() -> None:
    keeper = TaskKeeper()
    caller = asyncio.create_task(keeper.shield(asyncio.Event().wait()))
    await asyncio.sleep(0)

    assert await keeper.drain(0.01) == 1
    with pytest.raises(asyncio.CancelledError):
        await caller

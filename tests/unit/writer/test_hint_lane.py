"""The task that sends what gathered: one call at a time, and what fails is dropped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.writer.people import GROUP, TENANT

from qim_common.errors import BackendUnavailable
from qim_common.ids import ConversationId
from qim_common.telemetry.metrics import WriterMetrics
from qim_writer.commands.hints import RUNS_PER_CALL, HintLane
from qim_writer.domain.hints import HintRun


class Session:
    """The other end of the lane, which answers when the test says so."""

    def __init__(self) -> None:
        self.calls: list[list[HintRun]] = []
        self.answers: list[Exception | None] = []
        self.open = asyncio.Semaphore(0)
        self.called = asyncio.Condition()
        self.at_once = 0

    async def project(self, runs: Sequence[HintRun]) -> None:
        self.at_once += 1
        assert self.at_once == 1, "one call at a time"
        async with self.called:
            self.calls.append(list(runs))
            self.called.notify_all()
        await self.open.acquire()
        self.at_once -= 1
        if self.answers and (error := self.answers.pop(0)) is not None:
            raise error

    async def heard(self, calls: int) -> None:
        """Returns when so many calls have come."""
        async with asyncio.timeout(10), self.called:
            await self.called.wait_for(lambda: len(self.calls) >= calls)


class Rig:
    """A lane that waits for nothing but its calls."""

    def __init__(self) -> None:
        self.session = Session()
        self.registry = CollectorRegistry()
        self.metrics = WriterMetrics(self.registry)
        self.lane = HintLane(self.session, metrics=self.metrics, flush_seconds=0, pause_seconds=0)

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.lane.sent(TENANT, ConversationId(b"\2" + number.to_bytes(15, "big")), 1, number)

    def counted(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"qim_writer_hints_{name}_total")

    async def dropped(self, runs: int) -> None:
        """Returns when so many runs are counted as dropped."""
        async with asyncio.timeout(10):
            while self.counted("dropped") != runs:  # noqa: ASYNC110  a counter tells nobody
                await asyncio.sleep(0)


@asynccontextmanager
async def running() -> AsyncIterator[Rig]:
    rig = Rig()
    task = asyncio.create_task(rig.lane.run())
    try:
        yield rig
    finally:
        assert not task.done(), "the lane goes on whatever happens"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def times(call: list[HintRun]) -> list[int]:
    return [run.time_ms for run in call]


async def test_what_gathers_while_a_call_is_on_its_way_goes_with_the_next() -> None:
    async with running() as rig:
        rig.send(1)
        await rig.session.heard(1)
        rig.send(2, 3)
        rig.lane.changed(HintRun(TENANT, GROUP, 2, 4, broadcast=False))
        rig.session.open.release()
        await rig.session.heard(2)
        assert [times(call) for call in rig.session.calls] == [[1], [4, 2, 3]]


async def test_a_call_carries_at_most_250_runs_and_the_rest_follows() -> None:
    async with running() as rig:
        rig.send(*range(1, 2 * RUNS_PER_CALL + 2))
        for call in range(1, 4):
            await rig.session.heard(call)
            rig.session.open.release()
        assert [len(call) for call in rig.session.calls] == [250, 250, 1]
        rig.send(1000)
        await rig.session.heard(4)
        assert (rig.counted("sent"), rig.counted("dropped")) == (501, 0)


@pytest.mark.parametrize("error", [BackendUnavailable(), RuntimeError("a fault of this process")])
async def test_a_failed_call_is_not_repeated_and_drops_what_waits_with_it(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "qim_writer.commands.hints")
    async with running() as rig:
        rig.session.answers = [error, None]
        rig.send(1)
        await rig.session.heard(1)
        rig.send(2, 3)
        rig.session.open.release()
        await rig.dropped(3)
        rig.send(4)
        await rig.session.heard(2)
        rig.session.open.release()
        rig.send(5)
        await rig.session.heard(3)
        assert [times(call) for call in rig.session.calls] == [[1], [4], [5]]
        assert (rig.counted("sent"), rig.counted("dropped")) == (1, 3)
    assert caplog.messages[-1] == "the low-latency lane works again"


async def test_a_lane_that_stays_down_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as rig:
        rig.session.answers = [BackendUnavailable() for _ in range(3)]
        for number in range(1, 4):
            rig.send(number)
            await rig.session.heard(number)
            rig.session.open.release()
            await rig.dropped(number)
    assert [record.levelname for record in caplog.records] == ["WARNING"]

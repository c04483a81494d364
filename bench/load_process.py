"""The load generator's process, seen from the benchmark."""

from __future__ import annotations

import array
import asyncio
from dataclasses import asdict
from pathlib import Path

from bench.child import STAGE_SLACK_SECONDS, Child, LoadFailed
from bench.plan import Ledger, LoadPlan, Stage, StageResult

__all__ = ["LoadFailed", "LoadProcess"]


class LoadProcess(Child):
    """One gateway that makes load. Leaving the context ends it."""

    def __init__(self, plan: LoadPlan) -> None:
        super().__init__("bench.load", plan.to_line())

    async def begin(self, stage: Stage) -> None:
        """Let it run a stage."""
        await self.order(asdict(stage))

    async def answered(self, stage: Stage) -> int:
        """Wait until the stage's last answer is there; how many messages were sent. Raises LoadFailed."""
        answer = await self.answer(stage.seconds + STAGE_SLACK_SECONDS)
        return int(answer["answered"])

    async def result(self) -> tuple[StageResult, array.array[float]]:
        """The figures of the stage, and its latencies in seconds. Raises LoadFailed."""
        await self.order({"evaluate": True})
        result = StageResult(**await self.answer(STAGE_SLACK_SECONDS))
        return result, await asyncio.to_thread(_take, Path(result.latencies))

    async def ledger(self) -> Ledger:
        """What was acknowledged over all stages. Raises LoadFailed."""
        await self.order({"verify": True})
        document = await self.answer(STAGE_SLACK_SECONDS)
        return Ledger({group: (count, distinct, top) for group, (count, distinct, top) in document["groups"].items()})


def _take(file: Path) -> array.array[float]:
    latencies = array.array("f")
    latencies.frombytes(file.read_bytes())
    file.unlink()
    return latencies

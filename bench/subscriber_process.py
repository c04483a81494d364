"""The subscriber's process, seen from the benchmark."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.child import STAGE_SLACK_SECONDS, Child
from bench.plan import Delivered, Deliveries, SubscriberPlan
from bench.trace import Received


class SubscriberProcess(Child):
    """All subscribed devices; ready when every one is attached. Leaving the context ends it."""

    def __init__(self, plan: SubscriberPlan) -> None:
        super().__init__("bench.subscriber", plan.to_line())

    async def delivered(self, deliveries: int) -> int:
        """Wait until so many messages times devices came, or nothing more comes; how many came. Raises LoadFailed."""
        await self.order({"deliveries": deliveries})
        answer = await self.answer(STAGE_SLACK_SECONDS)
        return int(answer["delivered"])

    async def result(self) -> tuple[Delivered, Received]:
        """What came since the last time. Raises LoadFailed."""
        await self.order({"evaluate": True})
        delivered = Delivered(**await self.answer(STAGE_SLACK_SECONDS))
        return delivered, await asyncio.to_thread(Received.take, Path(delivered.trace))

    async def everything(self) -> Deliveries:
        """What came since the start. Raises LoadFailed."""
        await self.order({"verify": True})
        document = await self.answer(STAGE_SLACK_SECONDS)
        return Deliveries([tuple(row) for row in document["devices"]], document["unexpected"])

"""Loses the projection once in the middle of each of some scenarios that are performed at the same time.

Every scenario plays up to a step of its own, chosen by the seed, and waits there. When all stand, everything projected
for all their people is deleted, with every checkpoint; then they go on. What people see must not change.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.conformance.runner.scenario import Expect, Scenario


class Intermission:
    """The pause of `performances` scenarios, during which `change` is carried out once."""

    def __init__(self, performances: int, change: Callable[[], Awaitable[None]]) -> None:
        self._expected = performances
        self._arrived = 0
        self._change = change
        self._over = asyncio.Event()

    async def arrive(self) -> None:
        """A scenario stands; returns when all did and the change is carried out."""
        self._arrived += 1
        await self._begin()
        await self._over.wait()

    async def leave(self) -> None:
        """A scenario ended without a pause, by an error; the others do not wait for it."""
        self._expected -= 1
        await self._begin()

    async def _begin(self) -> None:
        if self._arrived == self._expected and not self._over.is_set():
            try:
                await self._change()
            finally:
                self._over.set()


class Pause:
    """Where one scenario pauses: before the step `place`."""

    def __init__(self, intermission: Intermission, place: int) -> None:
        self._intermission = intermission
        self._place = place
        self._made = False

    async def before(self, place: int) -> None:
        """The scenario is about to carry out this step."""
        if place >= self._place and not self._made:
            self._made = True
            await self._intermission.arrive()

    async def end(self) -> None:
        """The scenario has ended, in whatever way."""
        if not self._made:
            self._made = True
            await self._intermission.leave()


def step_of(scenario: Scenario, seed: int) -> int:
    """Before which step the scenario pauses: any up to its last `expect`, always the same for one seed."""
    last = max((at for at, step in enumerate(scenario.steps) if isinstance(step, Expect)), default=0)
    return random.Random(f"{seed}/{Path(scenario.file).name}/{scenario.name}").randint(0, last)  # noqa: S311

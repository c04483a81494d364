"""A running suite's clients, and the modes in which scenarios are performed on it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final

from tests.conformance.runner.cast import Cast
from tests.conformance.runner.checks import Check
from tests.conformance.runner.performance import Performance
from tests.conformance.runner.scenario import Direct, Scenario
from tests.conformance.runner.stalls import Stalls
from tests.conformance.runner.wiping import Intermission, Pause, step_of
from tests.support.archived import Below
from tests.support.projection import Projection
from tests.support.subscribers import Subscriptions

from qim_client import GatewayClient, OperatorClient
from qim_common.errors import QimError
from qim_common.ids import TenantId, UserId, direct_conversation_id, show, uuid7
from qim_devkit.suite import Suite
from qim_devkit.tiered import Backend

CALL_SECONDS: Final = 30.0
"""The deadline of every call: generous, so that a busy machine makes a run slow and not wrong."""

ACT: Final = 16
"""Scenarios that are performed at the same time. They share no person and no conversation."""


class Mode(StrEnum):
    """How a scenario is performed; each mode compares everything that the one before it does."""

    PULL = "pull"
    """Every person has one device, which pulls."""

    SUBSCRIBE = "subscribe"
    """And one that is attached to a live stream from the start, and at each `expect` one that is attached late."""

    WIPED = "wiped"
    """And the projection is lost once, at a step that the seed chooses."""


SESSIONS: Final = {Mode.PULL: 1, Mode.SUBSCRIBE: 3, Mode.WIPED: 3}
"""Session replicas of a suite on which all of a mode can be seen."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a performance came to: its comparisons, or why its conversation could not be created."""

    scenario: Scenario
    checks: Sequence[Check] = ()
    error: QimError | None = None


@dataclass
class Theatre:
    """The clients of one suite and its first tenant, for any number of scenarios. Use it as a context manager.

    With the backend `tiered` each `expect` waits until messages have left Redis, as far as they may: they come from the
    archive then. The suite's records leave as soon as they are archived (qim_devkit.tiered.COLD).

    Attributes:
        seed: chooses the steps at which the projection is lost.
    """

    suite: Suite
    mode: Mode = Mode.PULL
    seed: int = 0
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack, init=False)

    async def __aenter__(self) -> Theatre:
        suite, addresses = self.suite, self.suite.addresses
        self._tenant = TenantId(suite.tenants[0])
        self._gateways = [
            GatewayClient(addresses["writer"], addresses[name], suite.gateway_files(), timeout=CALL_SECONDS)
            for name in suite.session_names
        ]
        for gateway in self._gateways:
            await self._stack.enter_async_context(gateway)
        self._operator = OperatorClient(addresses["admin"], suite.operator_files(), self._tenant, timeout=CALL_SECONDS)
        self._stack.push_async_callback(self._operator.close)
        self._stream = self._gateways[0].open_stream()
        self._stack.push_async_callback(self._stream.close)
        self._projection = await self._stack.enter_async_context(Projection(suite, self._tenant))
        self._below = await self._stack.enter_async_context(Below(suite)) if suite.backend == Backend.TIERED else None
        self._subscriptions = Subscriptions(self._gateways)
        if self.mode is not Mode.PULL:
            await self._stack.enter_async_context(self._subscriptions)
        self._run = show(uuid7())
        self._numbers = itertools.count()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def perform(self, scenario: Scenario) -> list[Check]:
        """All comparisons of one scenario. Raises the QimError of a group that cannot be created."""
        (outcome,) = await self._act([scenario])
        if outcome.error is not None:
            raise outcome.error
        return list(outcome.checks)

    async def perform_all(self, scenarios: Sequence[Scenario]) -> AsyncIterator[Outcome]:
        """Scenarios in their order, ACT of them at a time."""
        for start in range(0, len(scenarios), ACT):
            for outcome in await self._act(scenarios[start : start + ACT]):
                yield outcome

    async def _act(self, scenarios: Sequence[Scenario]) -> list[Outcome]:
        casts = [Cast(self._gateways, self._tenant, f"{self._run}/{next(self._numbers)}") for _ in scenarios]

        async def wipe() -> None:
            people: list[UserId] = [user for cast in casts for user in cast.people]
            await self._projection.wipe(people)

        intermission = Intermission(len(scenarios), wipe)
        return await asyncio.gather(
            *(self._play(scenario, cast, intermission) for scenario, cast in zip(scenarios, casts, strict=True))
        )

    async def _play(self, scenario: Scenario, cast: Cast, intermission: Intermission) -> Outcome:
        start = scenario.start
        conversation = (
            direct_conversation_id(self._tenant, *cast.ids(start.people)) if isinstance(start, Direct) else cast.group
        )
        live = self.mode is not Mode.PULL
        pause = Pause(intermission, step_of(scenario, self.seed)) if self.mode is Mode.WIPED else None
        performance = Performance(
            scenario,
            cast,
            self._operator,
            self._stream,
            conversation,
            stalls=Stalls(cast, conversation, self._subscriptions) if live else None,
            pause=pause,
            cooled=partial(self._below.cold, self._tenant, conversation) if self._below is not None else None,
        )
        try:
            return Outcome(scenario, await performance.play())
        except QimError as error:
            return Outcome(scenario, error=error)
        finally:
            if pause is not None:
                await pause.end()

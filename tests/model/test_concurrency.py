"""Real parallel clients on two writer processes; afterwards the history tells in which order it all happened, and must
hold what the model makes of that order (design.md invariants 1 to 5)."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.model.doors import Call, Door, carry_out, two_doors
from tests.model.histories import History, check_sights
from tests.model.moves import settings_of, wire_settings
from tests.model.reference import Conversation
from tests.model.world import World
from tests.support.writers import AnotherWriter

from qim_common.ids import ConversationId, UserId, uuid7

GROUPS = 4
MESSAGES, CHANGES, SETTINGS = 25, 20, 6
"""Calls of each person, of each of two operators, and of the third one."""

ALL_SETTINGS = [
    settings_of(newcomer=newcomer, last_n=back, rejoin=rejoin, leaver=leaver, broadcast_max=broadcast)
    for (newcomer, back), rejoin, leaver, broadcast in itertools.product(
        (("SINCE_JOIN", 0), ("LAST_N", 3), ("ALL", 0)),
        ("LATEST_STAY", "ALL_STAYS"),
        ("UNTIL_LEFT", "NONE"),
        (500, 4),
    )
]
BY_VALUE = {repr(wire_settings(settings)): settings for settings in ALL_SETTINGS}

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass
class Crowd:
    """The people of one group and what they do at the same time."""

    doors: Sequence[Door]
    random: random.Random
    group: ConversationId = field(default_factory=lambda: ConversationId(b"\x02" + uuid.uuid4().bytes[1:]))
    people: list[UserId] = field(default_factory=lambda: [UserId(uuid.uuid4().bytes) for _ in range(6)])
    calls: list[Call] = field(default_factory=list)

    @property
    def auditor(self) -> UserId:
        """Who was there from the start and is never touched."""
        return self.people[0]

    async def create(self, world: World) -> Conversation:
        """The group with its owner, the auditor and one more; the model of it."""
        owner, present = self.people[1], self.people[:3]
        await world.person(owner).create_group(present, group=self.group, settings=wire_settings(ALL_SETTINGS[0]))
        model = Conversation(settings=ALL_SETTINGS[0])
        model.create(present, owner=owner)
        return model

    def _doors(self) -> list[Door]:
        """One door, or both at once with the same id."""
        return list(self.doors) if self.random.random() < 0.2 else [self.random.choice(self.doors)]

    async def _call(self, call: Call, attempt: Callable[[Door], Awaitable[Any]]) -> None:
        self.calls.append(await carry_out(call, self._doors(), attempt))

    async def chat(self, who: UserId) -> None:
        """Somebody who sends, whether or not they are in, and now and then leaves."""
        for number in range(MESSAGES):
            request = uuid7()
            if who not in self.people[:2] and self.random.random() < 0.1:
                await self._leave(who, request)
            else:
                await self._send(who, str(number).encode(), request)

    async def _leave(self, who: UserId, request: bytes) -> None:
        await self._call(Call("leave", (who,)), lambda door: door.leave(self.group, who, request))

    async def _send(self, who: UserId, body: bytes, request: bytes) -> None:
        call = Call("send", (who,), message_id=request)
        await self._call(call, lambda door: door.send(self.group, who, body, request))

    async def operate(self) -> None:
        """An operator who adds and removes anybody but the auditor."""
        for _ in range(CHANGES):
            people = tuple(self.random.sample(self.people[1:], self.random.randint(1, 3)))
            remove = self.random.random() < 0.5
            await self._change(people, self.random.choice(["", "UNTIL_LEFT", "NONE"]) if remove else "", remove=remove)

    async def _change(self, people: tuple[UserId, ...], leaver: str, *, remove: bool) -> None:
        request = uuid7()
        call = Call("remove" if remove else "add", people, leaver)
        await self._call(call, lambda door: door.change(self.group, people, request, remove=remove, leaver=leaver))

    async def govern(self) -> None:
        """An operator who changes settings and the owner."""
        for _ in range(SETTINGS):
            await self._set(self.random.choice(ALL_SETTINGS))
            await self._transfer(self.random.choice(self.people))

    async def _set(self, settings: dict[str, Any]) -> None:
        request = uuid7()
        await self._call(Call("state", ()), lambda door: door.settings(self.group, settings, request))

    async def _transfer(self, owner: UserId) -> None:
        request = uuid7()
        await self._call(Call("state", (owner,)), lambda door: door.transfer(self.group, owner, request))

    async def run(self) -> None:
        """Everybody at once."""
        await asyncio.gather(*map(self.chat, self.people), self.operate(), self.operate(), self.govern())


async def run_and_check(world: World, doors: Sequence[Door], seed: int, crash: AnotherWriter | None) -> None:
    """Let several groups run, the second writer crashing in the middle where one is given, and check each history."""
    crowds = [Crowd(doors, random.Random(f"{seed}/{number}")) for number in range(GROUPS)]  # noqa: S311
    models = [await crowd.create(world) for crowd in crowds]
    async with asyncio.TaskGroup() as running:
        for crowd in crowds:
            running.create_task(crowd.run())
        if crash is not None:
            running.create_task(crash_in_the_middle(crowds, crash))
    for crowd, model in zip(crowds, models, strict=True):
        history = await History.read(world, crowd.group, crowd.auditor, crowd.calls)
        history.check_order()
        history.check_answers()
        history.lead(model, BY_VALUE)
        await check_sights(world, crowd.group, model, [*crowd.people, UserId(uuid.uuid4().bytes)])
        assert model.version > 10, "something must have happened"


async def crash_in_the_middle(crowds: Sequence[Crowd], writer: AnotherWriter) -> None:
    """Kill the writer once half of the calls are answered, and start it again."""
    half = GROUPS * (6 * MESSAGES + 2 * CHANGES + 2 * SETTINGS) // 2
    while sum(len(crowd.calls) for crowd in crowds) < half:  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.01)
    await writer.kill()
    await writer.start()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of --hypothesis-seed, else a new one; a failing test names it among its arguments."""
    given = request.config.getoption("--hypothesis-seed")
    return random.SystemRandom().randrange(2**32) if given is None else int(given)


async def test_every_history_of_two_writers_is_one_that_the_model_can_do(world: World, seed: int) -> None:
    async with two_doors(world) as (doors, _):
        await run_and_check(world, doors, seed, None)


async def test_histories_stay_exact_while_a_writer_crashes(world: World, seed: int) -> None:
    async with two_doors(world) as (doors, second):
        await run_and_check(world, doors, seed, second)

"""Performs a scenario on a running suite and compares everything that it expects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from tests.conformance.runner import scenario as values
from tests.conformance.runner.cast import Cast
from tests.conformance.runner.checks import NOBODY, Check, shown
from tests.conformance.runner.operations import Answer, Operations, Request
from tests.conformance.runner.scenario import Direct, Expect, Group, Operation, Scenario, Value
from tests.conformance.runner.sights import DELIVERED, Sights
from tests.conformance.runner.stalls import Stalls, View
from tests.conformance.runner.wiping import Pause

from qim_client import GroupSettings, OperatorClient, SendStream
from qim_common.errors import PermissionDenied, QimError
from qim_common.ids import ConversationId

NOTHING: Final = "nothing"


@dataclass(slots=True)
class _Asked:
    """A request and its first answer, None while it has been refused: only successes are stored."""

    request: Request
    first: Answer | None = None


class Performance:
    """One scenario while it is played.

    Parameters:
        stalls: people's further devices, which are compared as well; None: there are none.
        pause: where it pauses, if it does.
        cooled: waits until what is read has to come from the archive; None: there is none.
    """

    def __init__(
        self,
        scenario: Scenario,
        cast: Cast,
        operator: OperatorClient,
        stream: SendStream,
        conversation: ConversationId,
        *,
        stalls: Stalls | None = None,
        pause: Pause | None = None,
        cooled: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        start = scenario.start
        self._scenario = scenario
        self._cast = cast
        self._operator = operator
        self._conversation = conversation
        self._direct = start.people if isinstance(start, Direct) else None
        self._operations = Operations(cast, operator, stream, conversation, self._direct)
        self._sights = Sights(cast, operator, conversation)
        self._stalls = stalls
        self._pause = pause
        self._cooled = cooled
        self._insiders = {start.owner, *start.members} if isinstance(start, Group) else set()
        self._asked: dict[int, _Asked] = {}
        self._known_head = 0  # nobody else writes
        self._checks: list[Check] = []

    async def play(self) -> list[Check]:
        """All comparisons. Raises the QimError of a group that cannot be created."""
        if self._stalls is not None:
            await self._stalls.open(_names(self._scenario))
        await self._begin(self._scenario.start)
        for place, step in enumerate(self._scenario.steps):
            if self._pause is not None:
                await self._pause.before(place)
            if isinstance(step, Expect):
                await self._expect(place, step)
            else:
                await self._operate(place, step)
        return self._checks

    async def _begin(self, start: Group | Direct) -> None:
        if isinstance(start, Group):
            await self._cast.acting(start.owner).create_group(
                self._cast.ids(start.members),
                group=self._conversation,
                settings=start.settings.applied_to(GroupSettings()),
            )

    async def _operate(self, place: int, step: Operation) -> None:
        before = self._known_head
        answer: Answer | None = None
        refused = ""
        asked = self._asked[step.number] = self._of(step)
        first = asked.first
        try:
            answer = await asked.request()
            asked.first = first or answer
        except QimError as error:
            refused = str(error.reason) or error.code.name
        self._known_head = await self._head()
        taken = self._known_head - before
        person = getattr(step.action, "by", NOBODY)
        if step.error or refused:
            self._compare(place, person, "error", step.error or NOTHING, refused or NOTHING)
        if answer is None:
            self._compare(place, person, "no_event", "true", "true" if taken == 0 else f"{taken} seqs taken")
            return
        self._enter(step.action)
        if first is not None:
            self._compare(place, person, "answer", str(first.everything), str(answer.everything))
            self._compare(place, person, "no_event", "true", "true" if taken == 0 else f"{taken} seqs taken")
            if step.seq is not None:
                self._compare(place, person, "seq", str(step.seq), str(answer.seq))
        elif step.seq is not None:
            self._compare(place, person, "seq", str(step.seq), str(answer.seq) if taken else NOTHING)
        elif step.no_event:
            self._compare(place, person, "no_event", "true", "true" if taken == 0 else f"{taken} seqs taken")

    def _of(self, step: Operation) -> _Asked:
        """The request of an operation; a retry shares another's."""
        if isinstance(step.action, values.Retry):
            return self._asked[step.action.step]
        return _Asked(self._operations.request(step.action))

    def _enter(self, action: values.Action) -> None:
        """Remember who has been in the conversation: it comes into their lists."""
        if isinstance(action, values.Add):
            self._insiders.update(action.users)
        elif self._direct is not None:
            self._insiders.update(self._direct)

    async def _expect(self, place: int, step: Expect) -> None:
        if self._cooled is not None:
            await self._cooled()
        await self._sights.settled([name for name in step.people if name in self._insiders])
        looks = await asyncio.gather(*(self._look(name, expected) for name, expected in step.people.items()))
        for (name, expected), (got, further) in zip(step.people.items(), looks, strict=True):
            for key, value in expected.items():
                self._compare(place, name, key, shown(value), shown(got[key]))
            for (key, how), seen in further.items():
                self._compare(place, name, f"{key} ({how})", shown(expected[key]), shown(seen))

    async def _look(self, name: str, keys: Collection[str]) -> tuple[Mapping[str, Value], View]:
        """What a person sees, and what the person's further devices do."""
        got = await self._sights.see(name, keys)
        if self._stalls is None:
            return got, {}
        return got, await self._stalls.see(name, keys, got.get(DELIVERED))

    def _compare(self, place: int, person: str, key: str, expected: str, got: str) -> None:
        self._checks.append(Check(self._scenario, place, person, key, expected, got))

    async def _head(self) -> int:
        """The conversation's newest seq; 0 before it exists."""
        if self._direct is None:
            return (await self._operator.get_group(self._conversation)).head_seq
        heads = []
        for name in self._direct:
            try:
                visible = await self._cast.acting(name).get_visible_range(self._conversation)
                heads.append(max(visible.head_seq, visible.own_clear_seq))
            except PermissionDenied:
                return 0
        return max(heads)


def _names(scenario: Scenario) -> list[str]:
    """Everybody whom the scenario names, in the order of appearance."""
    start = scenario.start
    names = dict.fromkeys(start.people if isinstance(start, Direct) else (start.owner, *start.members))
    for step in scenario.steps:
        if isinstance(step, Expect):
            names |= dict.fromkeys(step.people)
        else:
            names |= dict.fromkeys(getattr(step.action, "users", ()))
    return list(names)

"""Performs a scenario on a running suite and compares everything that it expects."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from tests.conformance.runner import scenario as values
from tests.conformance.runner.cast import Cast
from tests.conformance.runner.checks import NOBODY, Check, shown
from tests.conformance.runner.operations import Answer, Operations, Request
from tests.conformance.runner.scenario import Direct, Expect, Group, Operation, Scenario
from tests.conformance.runner.sights import Sights

from qim_client import GatewayClient, GroupSettings, OperatorClient, SendStream
from qim_common.errors import PermissionDenied, QimError
from qim_common.ids import ConversationId, TenantId, direct_conversation_id, show, uuid7
from qim_devkit.suite import Suite

TENANT: Final = TenantId(1)
CALL_SECONDS: Final = 30.0
"""The deadline of every call: generous, so that a busy machine makes a run slow and not wrong."""

NOTHING: Final = "nothing"


class Theatre:
    """The clients of one suite, for any number of scenarios one after another. Use it as a context manager."""

    def __init__(self, suite: Suite) -> None:
        addresses = suite.addresses
        self._gateway = GatewayClient(
            addresses["writer"], addresses["session"], suite.gateway_files(), timeout=CALL_SECONDS
        )
        self._operator = OperatorClient(addresses["admin"], suite.operator_files(), TENANT, timeout=CALL_SECONDS)
        self._stream = self._gateway.open_stream()
        self._run = show(uuid7())
        self._numbers = itertools.count()

    async def __aenter__(self) -> Theatre:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.close()
        await self._operator.close()
        await self._gateway.close()

    async def perform(self, scenario: Scenario) -> list[Check]:
        """All comparisons of one scenario. Raises the QimError of a group that cannot be created."""
        cast = Cast(self._gateway, TENANT, f"{self._run}/{next(self._numbers)}")
        conversation = await self._begin(scenario.start, cast)
        return await _Performance(scenario, cast, self._operator, self._stream, conversation).play()

    async def _begin(self, start: Group | Direct, cast: Cast) -> ConversationId:
        if isinstance(start, Direct):
            return direct_conversation_id(cast.tenant, *cast.ids(start.people))
        settings = start.settings.applied_to(GroupSettings())
        created = await cast.acting(start.owner).create_group(
            cast.ids(start.members), group=cast.group, settings=settings
        )
        return created.group


@dataclass(slots=True)
class _Asked:
    """A request and its first answer, None while it has been refused: only successes are stored."""

    request: Request
    first: Answer | None = None


class _Performance:
    """One scenario while it is played."""

    def __init__(
        self,
        scenario: Scenario,
        cast: Cast,
        operator: OperatorClient,
        stream: SendStream,
        conversation: ConversationId,
    ) -> None:
        start = scenario.start
        self._scenario = scenario
        self._cast = cast
        self._operator = operator
        self._conversation = conversation
        self._direct = start.people if isinstance(start, Direct) else None
        self._operations = Operations(cast, operator, stream, conversation, self._direct)
        self._sights = Sights(cast, operator, conversation)
        self._insiders = {start.owner, *start.members} if isinstance(start, Group) else set()
        self._asked: dict[int, _Asked] = {}
        self._known_head = 0  # nobody else writes
        self._checks: list[Check] = []

    async def play(self) -> list[Check]:
        for place, step in enumerate(self._scenario.steps):
            if isinstance(step, Expect):
                await self._expect(place, step)
            else:
                await self._operate(place, step)
        return self._checks

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
        await self._sights.settled([name for name in step.people if name in self._insiders])
        for name, expected in step.people.items():
            got = await self._sights.see(name, expected)
            for key, value in expected.items():
                self._compare(place, name, key, shown(value), shown(got[key]))

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

"""What users and operators do all the time, and whether all of it was right: `python -m tests.support.rolling_load`.

It runs beside the pods and knows the services by their names. On SIGTERM it stops, waits for what is under way,
compares everything with a fold of what was acknowledged, and prints its `Report` as a line of JSON, the last one.

Arguments: the directory of the development identities, the attempts of a call (0: the client library's own rule), and
seconds between two calls of one worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from tests.support import hiking_group

from qim_client import (
    Delivered,
    Direction,
    GatewayClient,
    LiveEvent,
    MembershipResult,
    OperatorClient,
    Outgoing,
    QimError,
    ResyncRequired,
    RetryPolicy,
    Sent,
    Subscription,
    UserId,
    actor,
    uuid7,
)
from qim_client.live_events import Attached, Detached
from qim_common.identity import Role
from qim_common.ids import ConversationId
from qim_devkit.demo.play import TENANT
from qim_devkit.pki import DevPki

BEGUN: Final = "the load has begun"
PEOPLE: Final = 4
GROUPS: Final = 3
FRAME: Final = 6
SETTLE_SECONDS: Final = 20.0

_Answer = TypeVar("_Answer")


@dataclass
class Report:
    """What happened.

    Attributes:
        calls: kind -> how many were answered.
        failures: calls that raised, and streams and attachments that ended.
        faults: what differs from the acknowledgements afterwards; looked for where there is no failure.
        reattached: how often an attachment was attached again, because its stream had ended.
    """

    calls: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    reattached: int = 0


class Load:
    """The workers and what was acknowledged to them."""

    def __init__(self, gateway: GatewayClient, operators: OperatorClient, pace: float) -> None:
        self.report = Report()
        self._gateway = gateway
        self._operators = operators
        self._pace = pace
        self._people = [UserId(uuid7()) for _ in range(PEOPLE)]
        self._groups: list[ConversationId] = []
        self._acknowledged: dict[ConversationId, dict[int, tuple[bytes, UserId]]] = defaultdict(dict)
        self._changes: list[MembershipResult] = []
        self._received: dict[tuple[UserId, ConversationId], list[tuple[int, int]]] = defaultdict(list)
        self._attached: Counter[UserId] = Counter()
        self._ending = asyncio.Event()
        self._numbers = itertools.count(1)

    async def run(self) -> None:
        """Until SIGTERM; then `report` is complete."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._ending.set)
        owner = self._gateway.as_actor(TENANT, self._people[0])
        for _ in range(GROUPS + 1):
            self._groups.append((await owner.create_group(self._people)).group)
        *_, self._changing = self._groups
        async with self._gateway.subscribe() as subscription:
            reader = asyncio.create_task(self._read(subscription))
            for person in self._people:
                await subscription.attach(actor(TENANT, person))
            async with asyncio.timeout(SETTLE_SECONDS):
                while len(self._attached) < PEOPLE:  # noqa: ASYNC110  events come one by one
                    await asyncio.sleep(0.02)
            print(BEGUN, flush=True)
            await asyncio.gather(*self._workers())
            # The outcome of a call that failed is unknown: there is nothing to compare with then.
            if not self.report.failures:
                await self._compare()
        await reader
        self.report.reattached = sum(self._attached.values()) - PEOPLE

    def _workers(self) -> Iterator[Awaitable[None]]:
        for person in self._people:
            yield self._send(person)
            yield self._look(person)
        yield self._stream()
        yield self._come_and_go()
        yield self._operate()

    async def _rounds(self, times: float = 1.0) -> AsyncIterator[int]:
        for number in itertools.count():
            if self._ending.is_set():
                return
            yield number
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), max(self._pace * times, 0.001))

    async def _call(self, kind: str, call: Callable[[], Awaitable[_Answer]]) -> _Answer | None:
        try:
            answer = await call()
        except QimError as error:
            self.report.failures.append(f"{kind}: {error.code.name} {error.reason}: {error}")
            return None
        self.report.calls[kind] += 1
        return answer

    async def _send(self, person: UserId) -> None:
        client = self._gateway.as_actor(TENANT, person)
        async for number in self._rounds():
            item = self._item(person, self._groups[number % GROUPS])
            sent = await self._call("send", lambda item=item: client.send(item))  # type: ignore[misc]
            if sent is not None:
                self._note(item, sent)

    async def _stream(self) -> None:
        async with self._gateway.open_stream() as stream:
            async for number in self._rounds(4):
                person = self._people[number % PEOPLE]
                items = [self._item(person, self._groups[at % GROUPS]) for at in range(FRAME)]
                for item, outcome in zip(items, await stream.send(items), strict=True):
                    if outcome.sent is None:
                        self.report.failures.append(f"stream: {outcome.error}")
                    else:
                        self.report.calls["stream"] += 1
                        self._note(item, outcome.sent)

    async def _look(self, person: UserId) -> None:
        client = self._gateway.as_actor(TENANT, person)
        async for number in self._rounds(2):
            group = self._groups[number % GROUPS]
            await self._call("list", client.list_conversations)
            await self._call("unread", client.get_total_unread)
            await self._call("history", lambda group=group: client.pull_history(group, limit=20))  # type: ignore[misc]

    async def _come_and_go(self) -> None:
        owner, other = (self._gateway.as_actor(TENANT, UserId(uuid7())) for _ in range(2))
        async for _ in self._rounds(6):
            made = await self._call("create", lambda: owner.create_group([other.actor.user]))
            if made is not None:
                left = await self._call("leave", lambda made=made: other.leave_group(made.group))  # type: ignore[misc]
                if left is not None and left.membership_version != made.membership_version + 1:
                    self.report.faults.append(f"left twice: version {left.membership_version}")

    async def _operate(self) -> None:
        guest = [UserId(uuid7())]
        changes = (self._operators.add_members, self._operators.remove_members)
        async for _ in self._rounds(6):
            for change in changes:
                done = await self._call(
                    "operator",
                    lambda change=change: change(self._changing, guest),  # type: ignore[misc]
                )
                if done is not None:
                    self._changes.append(done)

    async def _read(self, subscription: Subscription) -> None:
        try:
            async for event in subscription:
                await self._take(event)
        except QimError as error:
            self.report.failures.append(f"subscribe: {error}")

    async def _take(self, event: LiveEvent) -> None:
        who = event.attachment.actor.user
        match event:
            case Delivered(entry=entry):
                first = entry.cursor.seq if entry.withheld is None else entry.withheld.first
                places = ((entry.generation, seq) for seq in range(first, entry.cursor.seq + 1))
                self._received[who, entry.conversation].extend(places)
                await event.attachment.acknowledge_many([entry.cursor])
            case Attached():
                self._attached[who] += 1
            case ResyncRequired() | Detached():
                self.report.failures.append(f"subscribe: {event}")

    def _item(self, person: UserId, group: ConversationId) -> Outgoing:
        return Outgoing(actor(TENANT, person), b"message %d" % next(self._numbers), conversation=group)

    def _note(self, item: Outgoing, sent: Sent) -> None:
        if sent.seq in self._acknowledged[sent.conversation]:
            self.report.faults.append(f"seq {sent.seq} was acknowledged for two messages")
        self._acknowledged[sent.conversation][sent.seq] = (item.client_message_id, item.actor.user)

    async def _compare(self) -> None:
        fault = self.report.faults.append
        reader = self._gateway.as_actor(TENANT, self._people[-1])
        heads: dict[ConversationId, int] = {}
        for group in self._groups[:GROUPS]:
            history = [one async for one in reader.history(group, direction=Direction.NEWER)]
            there = [(one.seq, (one.client_message_id, one.sender)) for one in history]
            if there != sorted(self._acknowledged[group].items()):
                fault(f"{len(there)} in the history, {len(self._acknowledged[group])} acknowledged")
            heads[group] = len(self._acknowledged[group])
            if [seq for seq, _ in there] != list(range(1, heads[group] + 1)):
                fault("the history has gaps")
        heads[self._changing] = len(self._changes)
        if [one.seq for one in self._changes] != list(range(1, len(self._changes) + 1)):
            fault(f"the operators' changes have the seqs {[one.seq for one in self._changes]}")
        versions = [one.membership_version for one in self._changes]
        if versions != list(range(versions[0], versions[0] + len(versions))) if versions else True:
            fault(f"the operators' changes have the versions {versions}")
        for who in self._people:
            for group, head in heads.items():
                await self._until(lambda who=who, group=group, head=head: self._all_came(who, group, head))  # type: ignore[misc]
                places = self._received[who, group]
                if [seq for _, seq in places] != list(range(1, head + 1)) or len({g for g, _ in places}) > 1:
                    fault(f"live: {len(places)} deliveries, {len(set(places))} different ones, of {head}")
            await self._compare_list(who, heads)

    def _all_came(self, who: UserId, group: ConversationId, head: int) -> bool:
        return len(self._received[who, group]) >= head

    async def _compare_list(self, who: UserId, heads: dict[ConversationId, int]) -> None:
        wanted = {
            group: (heads[group], sum(sender != who for _, sender in self._acknowledged[group].values()))
            for group in self._groups[:GROUPS]
        }
        told: dict[ConversationId, tuple[int, int]] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while told != wanted:
                    page = await self._gateway.as_actor(TENANT, who).list_conversations()
                    told = {
                        entry.conversation: (entry.head_seq, entry.unread_count)
                        for entry in page.conversations
                        if entry.conversation in wanted
                    }
                    await asyncio.sleep(0.02)  # the lists follow the log
        if told != wanted:
            self.report.faults.append(f"the list says {list(told.values())}, not {list(wanted.values())}")

    async def _until(self, condition: Callable[[], bool]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while not condition():  # noqa: ASYNC110  events come one by one
                    await asyncio.sleep(0.02)


async def load(pki: DevPki, attempts: int, pace: float) -> Report:
    """See the module."""
    policy = RetryPolicy(max_attempts=attempts) if attempts else None
    gateway = GatewayClient(
        "qim-writer:7401", "qim-session:7402", pki.issue(Role.GATEWAY, hiking_group.GATEWAY), policy=policy
    )
    operators = OperatorClient("qim-admin:7403", pki.issue(Role.BACKEND, hiking_group.BACKEND), TENANT, policy=policy)
    async with gateway, operators:
        running = Load(gateway, operators, pace)
        await running.run()
        return running.report


if __name__ == "__main__":
    told = asyncio.run(load(DevPki(Path(sys.argv[1])), int(sys.argv[2]), float(sys.argv[3])))
    print(json.dumps(vars(told)))

"""A random walk: somebody writes, people look, and replicas are killed, held, stalled, stopped and started meanwhile.

All of a walk's decisions come from its seed. What the replicas do between two steps is theirs, on real servers, so that
a seed that fails once may have to be walked several times.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from tests.model.consumers.devices import Device
from tests.model.consumers.failpoints import Action
from tests.model.consumers.ledger import Held, Ledger
from tests.model.consumers.losses import Loser, Losses
from tests.model.consumers.replicas import CALLS, CORE, Replica, Stores
from tests.model.consumers.written import BIG_ABOVE, PEOPLE, Writer
from tests.support.dispatch import TENANT, group

from qim_common.errors import BackendUnavailable
from qim_common.identity import Actor
from qim_common.ids import DeviceId
from qim_session.domain.hints import Hint

GROUPS: Final = 10
REPLICAS: Final = 3
BOUND_SECONDS: Final = 30.0


class Walk:
    """One walk."""

    def __init__(self, seed: int, stores: Stores) -> None:
        self._draw = random.Random(seed)  # noqa: S311  to be repeated
        self._stores = stores
        self._losses = self._draw.choice((Losses.NOTHING, Losses.NOTHING, Losses.PROJECTION, Losses.LOGS))
        self.steps = [f"losing {self._losses.value}"]
        # Faults gather at few calls, so that they meet.
        self._favoured = [*self._draw.sample(CORE, 2), self._draw.choice(CALLS)]
        self._writer = Writer(stores.instances, stores.topology)
        self._ledger = Ledger(self._writer, stores.instances, stores.topology, PEOPLE)
        self._lost = Loser(self._losses, self._draw, stores, self._ledger)
        self._replicas: dict[int, Replica] = {}
        self._gone: list[Replica] = []
        self._late: list[Hint] = []
        self._last: deque[int] = deque(maxlen=self._stores.topology.buckets)
        self._devices = [
            Device(Actor(TENANT, person, DeviceId(person)), self._writer, self._ledger.faults) for person in PEOPLE
        ]
        self._visits: set[asyncio.Task[None]] = set()
        self._calls = 0
        self._moved = asyncio.Event()
        self.executed: Counter[str] = Counter()

    async def run(self, length: int) -> None:
        """Walk, come to rest, compare. Raises AssertionError with what is wrong and the steps before it."""
        try:
            await self._begin()
            for _ in range(length):
                await self._step()
                await self._some_calls(self._draw.choice((0, 1, 2, 5, 10, 20, 40)))
                await self._ledger.look()
                self._judge()
            await self._end()
            self._judge()
        finally:
            for replica in self._replicas.values():
                replica.kill()
            async with asyncio.timeout(BOUND_SECONDS):
                for replica in (*self._gone, *self._replicas.values()):
                    await replica.ended()
                if self._visits:
                    await asyncio.wait(self._visits)

    async def _begin(self) -> None:
        for number in range(self._draw.randint(2, REPLICAS)):
            self._start(number)
        # From now on only a loss makes anybody's list old, so that a rebuild mends nothing else.
        for person in PEOPLE:
            await self._replicas[0].rebuild.ensure(TENANT, person)

    async def _step(self) -> None:
        kinds: list[tuple[int, Callable[[], Awaitable[str]]]] = [
            (10, self._write),
            (10, self._arm),
            (6, self._visit),
            (4, self._resume),
            (3, self._start_one),
            (2, self._hint),
            (2, self._stall),
            (3, self._burst),
            (1, self._kill),
            (1, self._stop),
        ]
        if self._losses is not Losses.NOTHING:
            kinds += [(1, self._lost.wipe), (2, self._trim), (1, self._disaster)]
        (step,) = self._draw.choices([step for _, step in kinds], [weight for weight, _ in kinds])
        self.steps.append(await step())

    async def _write(self) -> str:
        draw, groups = self._draw, self._writer.groups
        people = draw.sample(PEOPLE, draw.randint(1, BIG_ABOVE))
        if not groups or (len(groups) < GROUPS and draw.random() < 0.25):
            conversation = group(len(groups) + 1)
            # What only one of the logs tells of is lost with that one.
            dispatched = self._losses is Losses.LOGS or draw.random() < 0.75
            logged = self._losses is Losses.LOGS or not dispatched or draw.random() < 0.4
            hint = await self._writer.create(conversation, people, dispatched=dispatched, logged=logged)
            if dispatched:
                self._maybe_hint(hint)
            return f"create {conversation.hex()} in {'dispatch' * dispatched} {'memlog' * logged} for {_names(people)}"
        conversation = draw.choice(list(groups))
        if draw.random() < 0.6:
            count = draw.choice((1, 1, 1, 2, 5))
            self._maybe_hint(await self._writer.send(conversation, count))
            return f"send {count} to {conversation.hex()}"
        join, broadcast, opaque = draw.random() < 0.6, draw.random() < 0.7, draw.random() < 0.2
        changed = await self._writer.change_members(conversation, people, join=join, broadcast=broadcast, opaque=opaque)
        if changed is not None:
            self._maybe_hint(changed)
        return f"{'join' if join else 'leave'} {conversation.hex()} {_names(people)} {broadcast=} {opaque=}"

    def _maybe_hint(self, hint: Hint) -> None:
        self._last.append(self._stores.topology.conversation_bucket(TENANT, hint.conversation))
        when = self._draw.choice(("at once", "at once", "late", "never"))
        if when == "at once" and (replica := self._any()) is not None:
            replica.project([hint])
        elif when == "late":
            self._late.append(hint)

    async def _hint(self) -> str:
        """One that comes late, and perhaps comes again."""
        replica = self._any()
        if replica is None or not self._late:
            return "no hint"
        hint = self._late[-1] if self._draw.random() < 0.3 else self._late.pop(self._draw.randrange(len(self._late)))
        replica.project([hint])
        return f"late hint of {hint.conversation.hex()} at {hint.version}"

    async def _arm(self) -> str:
        replica = self._any()
        if replica is None:
            return "nobody to arm"
        call = self._draw.choice(self._favoured if self._draw.random() < 0.6 else CALLS)
        point = f"{call}.{self._draw.choice(('before', 'after'))}"
        action = self._draw.choice((Action.PAUSE, Action.PAUSE, Action.FAIL, Action.KILL))
        skip = self._draw.choice((0, 0, 1, 3))
        replica.points.arm(point, action, skip)
        return f"{action.value} replica {replica.number} at {point}, after {skip}"

    async def _burst(self) -> str:
        """Much is written while nobody gets on."""
        for replica in self._replicas.values():
            replica.points.stall()
        for _ in range(self._draw.randint(2, 6)):
            self.steps.append(await self._write())
        if self._losses is not Losses.NOTHING and self._draw.random() < 0.6:
            self.steps.append(await self._trim())
        visits = [await self._visit() for _ in range(3)]
        on_their_way = [number for number, replica in self._replicas.items() if self._draw.random() < 0.7]
        for number in on_their_way:
            self._replicas[number].points.resume()
        return f"{'; '.join(visits)}; all of this while all were stalled, but {on_their_way} go on"

    async def _visit(self) -> str:
        device, replica = self._draw.choice(self._devices), self._any()
        if replica is None or device.busy:
            return "no visit"
        delivered = self._writer.seqs(device.actor.user)
        if delivered and self._draw.random() < 0.3:
            conversation = self._draw.choice(list(delivered))
            seq = self._draw.randint(1, delivered[conversation][-1] + 2)
            self._call_on(device, device.mark_read(replica, conversation, seq))
            return f"{_names([device.actor.user])} reads {conversation.hex()} up to {seq} at {replica.number}"
        limit = self._draw.choice((1, 2, 5, 1000))
        self._call_on(device, device.pull(replica, limit))
        return f"{_names([device.actor.user])} pulls {limit} at {replica.number}"

    def _call_on(self, device: Device, call: Coroutine[Any, Any, object]) -> None:
        """On its own, because the replica may be held."""

        async def visit() -> None:
            try:
                await call
            finally:
                device.busy = False

        device.busy = True
        task = asyncio.create_task(visit())
        self._visits.add(task)
        task.add_done_callback(self._visited)

    def _visited(self, task: asyncio.Task[None]) -> None:
        self._visits.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._ledger.faults.append(f"a call of a person ended with {error!r}")

    async def _resume(self) -> str:
        replica = self._any()
        if replica is not None:
            replica.points.resume()
        return f"resume {replica and replica.number}"

    async def _stall(self) -> str:
        replica = self._any()
        if replica is not None:
            replica.points.stall()
        return f"stall {replica and replica.number}"

    async def _kill(self) -> str:
        replica = self._any()
        if replica is not None:
            replica.kill()
        return f"kill {replica and replica.number}"

    async def _stop(self) -> str:
        replica = self._any()
        if replica is None:
            return "nobody to stop"
        replica.points.disarm()
        await replica.stop()
        return f"stop {replica.number}"

    async def _start_one(self) -> str:
        dead = [
            number for number in range(REPLICAS) if number not in self._replicas or not self._replicas[number].alive
        ]
        if not dead:
            return "all are there"
        number = self._draw.choice(dead)
        self._start(number)
        return f"start {number}"

    def _start(self, number: int) -> None:
        if (before := self._replicas.get(number)) is not None:
            self._gone.append(before)
        replica = self._replicas[number] = Replica(number, self._stores, self._writer, self._observe)
        replica.begin()

    async def _disaster(self) -> str:
        """Logs and projection go while registrars are held: what waits there is the last that tells of something."""
        for replica in self._replicas.values():
            replica.points.resume()
            replica.points.arm("register.before", Action.PAUSE)
        for _ in range(4):
            self.steps.append(await self._write())
        await self._some_calls(40)
        for partition in range(self._stores.topology.buckets):
            self.steps.append(await self._lost.trim(partition))
        self.steps.append(await self._lost.wipe())
        await self._some_calls(40)
        visits = [await self._visit() for _ in range(6)]
        return f"{'; '.join(visits)}; all of this while no registrar got on"

    async def _trim(self) -> str:
        return await self._lost.trim(self._draw.choice([*range(self._stores.topology.buckets), *self._last]))

    def _any(self) -> Replica | None:
        alive = [replica for replica in self._replicas.values() if replica.alive]
        return self._draw.choice(alive) if alive else None

    def _observe(self, name: str, place: int, args: tuple[Any, ...], result: Any) -> None:
        self._ledger.observe(name, place, args, result)
        self.executed[name] += 1
        self._calls += name != "read"
        self._moved.set()

    async def _some_calls(self, count: int) -> None:
        """Let the replicas go on, for so many calls or as long as they make any."""
        wanted = self._calls + count
        try:
            async with asyncio.timeout(0.05):
                while self._calls < wanted:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return

    def _judge(self) -> None:
        for replica in (*self._gone, *self._replicas.values()):
            if replica.refused is not None and not isinstance(replica.refused, BackendUnavailable):
                self._ledger.faults.append(f"replica {replica.number} does not start: {replica.refused!r}")
        assert not self._ledger.faults, "\n".join([*self._ledger.faults[:10], "after", *self.steps])

    async def _end(self) -> None:
        """Nothing happens to anybody any more, and somebody is there."""
        for replica in self._replicas.values():
            replica.points.disarm()
        if self._any() is None:
            self._start(0)
        self.steps.append("everything goes on")
        await self._rest()
        helper = self._any()
        assert helper is not None
        async with asyncio.timeout(BOUND_SECONDS):
            while self._visits:
                await asyncio.wait(set(self._visits))
            for hint in self._late:
                helper.project([hint])
            for device in self._devices:
                while await device.pull(helper, 1000) is not False:
                    pass
                await device.compare(helper)
        self._ledger.compare(await self._rest())
        everybody = self._ledger.everybody()
        if self._losses is Losses.NOTHING and self._ledger.pushed != everybody:
            self._ledger.faults.append(f"{self._ledger.pushed} were registered by the lanes instead of {everybody}")

    async def _rest(self) -> list[Held]:
        """Wait until nothing is left to be done."""
        left: list[str] = []
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                while left := await self._ledger.left(held := await self._ledger.look()):
                    self._judge()
                    await self._some_calls(20)
        except TimeoutError:
            raise AssertionError("\n".join(["it does not come to rest:", *left, "after", *self.steps])) from None
        return held


def _names(people: Any) -> str:
    return ",".join(str(int.from_bytes(person, "big")) for person in people)

"""What a projected entry costs the instance: `project_entries` against a bare ZADD GT of the same data, in one run.

People with lists of 50 (a compact block of memory) and of 300 conversations (a skip list). Every way gets calls of 250
entries, one call at a time, with the settings of a durable store; the ways take turns, so that the machine's moods meet
all of them. The calls go through the session service's own `RedisProjectionStore`. CPU is that of the instance's main
thread, which executes, writes the append-only file and syncs it.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.redis_load import main_thread_cpu
from bench.rig import TENANT
from qim_common.ids import ConversationId, UserId
from qim_common.keys import PersonKeys
from qim_common.positions import Position
from qim_common.redis import Argument, Connection, Instance, Script, ScriptLoader, checked, run
from qim_common.topology import Topology
from qim_devkit.valkey import ValkeyServer
from qim_session.backends.redis_projection import PROJECT_ENTRIES, RedisProjectionStore
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.position import Checkpoint
from qim_session.storage.projection import ENTRIES_PER_CALL, CheckpointStep, Projected

PEOPLE: Final = 20_000
SIZES: Final = (50, 300)
RATIO_BOUND: Final = 2.0
"""The most that a projected entry may cost, as a multiple of a bare pipelined ZADD GT (of entries as new as it)."""

BARE: Final = "bare ZADD GT, pipelined"
BARE_IN_LUA: Final = "bare ZADD GT in Lua"
LOW_LATENCY: Final = "project_entries"
DURABLE: Final = "project_entries, checkpoint moved"

_BUCKETS: Final = 256
_PARTITION: Final = 7
_FIRST_MS: Final = 1_700_000_000_000
_SEED_PEOPLE: Final = 100
_OPTIONS: Final = {"auto-aof-rewrite-percentage": "0"}
"""A rewrite in the background would take its copies of pages from the main thread's time."""

_BARE_LOOP: Final = Script(
    "bare_zadd",
    "#!lua\n"
    "for i = 1, #KEYS do\n"
    "  redis.call('ZADD', KEYS[i], 'GT', ARGV[2 * i - 1], ARGV[2 * i])\n"
    "end\n"
    "return #KEYS\n",
)

Entries = Sequence[ProjectionEntry]


@dataclass(frozen=True, slots=True)
class ProjectionCost:
    """One way in one situation.

    Attributes:
        conversations: in each person's list.
        new: whether every entry is new in its list, so that `project_entries` registers it.
        redis_us: CPU of the instance's main thread per entry in microseconds, the median of the rounds.
        call_ms: from the call to its answer, the median over all calls; fsync included.
        ratio: `redis_us` as a multiple of the bare pipelined ZADD GT of entries that are as new.
    """

    way: str
    conversations: int
    new: bool
    redis_us: float
    call_ms: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Projection:
    """All ways in all situations."""

    people: int
    entries_a_call: int
    costs: Sequence[ProjectionCost] = field(default_factory=tuple)

    @property
    def worst(self) -> float:
        """The highest ratio of `project_entries`; `RATIO_BOUND` is its bound."""
        return max(cost.ratio for cost in self.costs if cost.way in (LOW_LATENCY, DURABLE))


async def projection(*, quick: bool) -> Projection:
    """Measures everything. Raises ValkeyStartError, ReplyError, BackendUnavailable."""
    people, rounds, calls = (2_000, 3, 20) if quick else (PEOPLE, 5, 80)
    costs: list[ProjectionCost] = []
    for size in SIZES:
        with ValkeyServer(options=_OPTIONS) as server:
            instance = Instance(server.address, name="bench", instance_position=0)
            instance.on_connected.append(ScriptLoader([PROJECT_ENTRIES, _BARE_LOOP]))
            await instance.start()
            try:
                lists = _Lists(instance, Topology((server.address,), _BUCKETS, "bench"), people, size)
                await lists.fill()
                costs += await _measure(lists, instance, rounds, calls)
            finally:
                await instance.close()
    return Projection(people, ENTRIES_PER_CALL, costs)


class _Lists:
    """People with equally many conversations, and the ways in which an entry gets into their lists."""

    def __init__(self, instance: Instance, topology: Topology, people: int, size: int) -> None:
        self.size = size
        self._instance = instance
        self._topology = topology
        self._store = RedisProjectionStore(instance, topology)
        self._random = random.Random(size)  # noqa: S311  no secret
        self._people = [UserId(os.urandom(16)) for _ in range(people)]
        self._conversations = [ConversationId(b"\x02" + os.urandom(15)) for _ in range(size)]
        self._time_ms = _FIRST_MS
        self._checkpoint: Checkpoint | None = None

    @property
    def connection(self) -> Connection:
        """That of the instance."""
        return self._instance.connection

    async def fill(self) -> None:
        """Give everybody all conversations."""
        for start in range(0, len(self._people), _SEED_PEOPLE):
            commands: list[Sequence[Argument]] = []
            for user in self._people[start : start + _SEED_PEOPLE]:
                row: list[Argument] = []
                for number, conversation in enumerate(self._conversations):
                    row += [self._time_ms + number, conversation]
                commands.append(("ZADD", self._key(user), *row))
            checked(await self._instance.pipeline(commands))
        self._time_ms += self.size

    def entries(self, *, new: bool) -> Entries:
        """One call's entries: random people, each a conversation of theirs, or one that nobody has yet."""
        self._time_ms += 1
        choose = self._random
        return [
            ProjectionEntry(
                TENANT,
                user,
                ConversationId(b"\x02" + choose.randbytes(15)) if new else choose.choice(self._conversations),
                self._time_ms,
            )
            for user in choose.choices(self._people, k=ENTRIES_PER_CALL)
        ]

    async def bare(self, entries: Entries) -> None:
        """One command an entry, written together."""
        commands = [("ZADD", self._key(entry.user), "GT", entry.time_ms, entry.conversation) for entry in entries]
        checked(await self._instance.pipeline(commands))

    async def bare_in_lua(self, entries: Entries) -> None:
        """The same commands from a script that does nothing else."""
        args: list[Argument] = []
        for entry in entries:
            args += [entry.time_ms, entry.conversation]
        await run(self._instance, _BARE_LOOP, [self._key(entry.user) for entry in entries], args)

    async def low_latency(self, entries: Entries) -> None:
        """As the lane that the writer pushes into."""
        outcome = await self._store.project(entries, None)
        assert isinstance(outcome, Projected)

    async def durable(self, entries: Entries) -> None:
        """As the consumer of the dispatch log: with a checkpoint that moves."""
        to = Checkpoint(Position(entries[0].time_ms, 0), "bench")
        outcome = await self._store.project(entries, CheckpointStep(_PARTITION, self._checkpoint, to))
        assert isinstance(outcome, Projected)
        self._checkpoint = to

    async def forget_pending(self) -> None:
        """Drop what would wait for a registrar."""
        while True:
            heads, waiting = await self._store.pending(10 * ENTRIES_PER_CALL)
            if not waiting:
                return
            await self._store.pop_pending(heads)

    def _key(self, user: UserId) -> str:
        return PersonKeys(TENANT, user, self._topology.person_bucket(TENANT, user)).convs


@dataclass(slots=True)
class _Taken:
    redis_us: list[float] = field(default_factory=list)
    call_ms: list[float] = field(default_factory=list)


async def _measure(lists: _Lists, instance: Instance, rounds: int, calls: int) -> list[ProjectionCost]:
    ways: dict[str, Callable[[Entries], Awaitable[None]]] = {
        BARE: lists.bare,
        BARE_IN_LUA: lists.bare_in_lua,
        LOW_LATENCY: lists.low_latency,
        DURABLE: lists.durable,
    }
    taken = {(new, way): _Taken() for new in (False, True) for way in ways}
    for number in range(rounds + 1):
        for (new, name), found in taken.items():
            batches = [lists.entries(new=new) for _ in range(calls)]
            call, times = ways[name], []
            before = await main_thread_cpu(lists.connection)
            for batch in batches:
                begun = time.perf_counter()
                await call(batch)
                times.append((time.perf_counter() - begun) * 1e3)
            cpu = await main_thread_cpu(lists.connection) - before
            if number:  # the first round warms up
                found.redis_us.append(cpu / (calls * ENTRIES_PER_CALL) * 1e6)
                found.call_ms += times
        await lists.forget_pending()
    return _costs(lists.size, taken)


def _costs(size: int, taken: dict[tuple[bool, str], _Taken]) -> list[ProjectionCost]:
    costs = []
    for (new, way), found in taken.items():
        cpu = statistics.median(found.redis_us)
        bare = statistics.median(taken[new, BARE].redis_us)
        call_ms = round(statistics.median(found.call_ms), 2)
        costs.append(ProjectionCost(way, size, new, round(cpu, 2), call_ms, round(cpu / bare, 2)))
    return costs

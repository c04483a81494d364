"""What the processes of an installation take: memory after the start and under load, CPU when idle and per message, and
Valkey's memory per message; and the requests and limits for an orchestrator that follow (docs/performance.md).

Load is bounded, and CPU is counted in seconds, not in shares of a machine: other work on the same cores makes a run
longer and its figures little worse.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import redis.asyncio

from bench.load_process import LoadProcess
from bench.plan import LoadPlan, Stage, SubscriberPlan
from bench.processes import CpuWindow, resident_bytes
from bench.rig import BODY_BYTES, TENANT, Shape, create_group
from bench.sizing import Load, Sizing, sizing_of
from bench.subscriber_process import SubscriberProcess
from bench.trace import delivery_faults
from qim_client.gateway import GatewayClient
from qim_common.config import SessionSettings
from qim_devkit.suite import MODULES, Suite
from qim_devkit.tiered import Backend, backend_arguments
from qim_session.main import MEMBERS_IN_MEMORY
from qim_writer.handlers.frames import BUDGET_BYTES

SHAPES: Final = (Shape(groups=200, members=10), Shape(groups=20, members=500))
ONLINE: Final = 10
"""Members of each group with a device that is attached all the time."""

TIERED_SHAPES: Final = (Shape(groups=20, members=10), Shape(groups=2, members=50))
TIERED_ONLINE: Final = 1
"""The same beside a Cassandra that has just been started on the same cores: with the larger shapes, attaching was not
done in 25 s. The archiver, for which that backend is measured, depends on neither."""

BOUNDS: Final = {
    "writer": BUDGET_BYTES,
    # What eight gateways' streams may have waiting, and both caches of members, 100 bytes each.
    "session": 8 * SessionSettings.model_fields["subscribe_queue_bytes"].default + 2 * MEMBERS_IN_MEMORY * 100,
}
"""Bytes that a process may hold by its own bounds, and that no load here makes it hold."""

_STREAMS: Final = 2
_SAMPLE_SECONDS: Final = 0.25
_QUIET_SECONDS: Final = 1.0
_QUIET_CORES: Final = 0.3
"""What all processes take together when nothing is left to do, and then some."""
_SETTLED_SECONDS: Final = 120.0

Tell = Callable[[str], None]
Groups = list[tuple[str, list[str]]]
"""Id and members of each, in hex."""


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """Messages a second, one stage each and for each of `shapes`; its seconds; how long the idle CPU is measured.

    With a Cassandra cluster's directory the backend is tiered, with an archiver."""

    rates: Sequence[float] = (500, 2_000, 5_000)
    seconds: float = 15.0
    idle_seconds: float = 15.0
    cassandra: Path | None = None

    @property
    def online(self) -> int:
        """Members of each group with an attached device."""
        return TIERED_ONLINE if self.cassandra else ONLINE

    @property
    def shapes(self) -> Sequence[Shape]:
        """The groups of the two loads."""
        return TIERED_SHAPES if self.cassandra else SHAPES


@dataclass(frozen=True, slots=True)
class ResourceReport:
    """Everything by process.

    Attributes:
        started_bytes, attached_bytes: resident memory after the start; with groups, lists and attached devices.
        idle_cores: CPU seconds a second with the devices attached and nothing to do.
        loads: in the order in which they were run; memory only grows from one to the next.
        sizing: requests and limits that follow.
    """

    backend: str
    devices: int
    started_bytes: dict[str, int]
    attached_bytes: dict[str, int]
    idle_cores: dict[str, float]
    loads: list[Load]
    sizing: list[Sizing]
    faults: list[str] = field(default_factory=list)


async def resources(options: ResourceOptions, tell: Tell) -> ResourceReport:
    """Measures on processes of its own. Raises SuiteError, LoadFailed, QimError."""
    tell("resources: starting the processes, attaching the devices")
    async with _rig(options) as rig:
        attached = rig.memory()
        tell(f"resources: idle for {options.idle_seconds:g} s")
        idle = await rig.idle(options.idle_seconds)
        loads = []
        for place, shape in enumerate(options.shapes):
            for rate in options.rates:
                tell(f"resources: {shape}, {rate:,.0f}/s for {options.seconds:g} s")
                loads.append(await rig.measure(place, Stage("open", options.seconds, rate=rate)))
        tell("resources: comparing what every device got")
        faults = await rig.verify()
    return ResourceReport(
        backend=rig.suite.backend,
        devices=sum(shape.groups for shape in options.shapes) * options.online,
        started_bytes=rig.started,
        attached_bytes=attached,
        idle_cores=idle,
        loads=loads,
        sizing=sizing_of(idle, loads, BOUNDS),
        faults=faults,
    )


class _Rig:
    def __init__(
        self,
        suite: Suite,
        started: dict[str, int],
        loads: Sequence[LoadProcess],
        subscriber: SubscriberProcess,
        groups: Sequence[Groups],
        options: ResourceOptions,
    ) -> None:
        self.suite = suite
        self.started = started
        self._loads = loads
        self._subscriber = subscriber
        self._groups = groups
        self._options = options

    def memory(self) -> dict[str, int]:
        """Resident memory now."""
        return memory_of(pids_of(self.suite))

    async def idle(self, seconds: float) -> dict[str, float]:
        """CPU seconds a second."""
        await settled(self.suite)
        window = CpuWindow(pids_of(self.suite))
        window.start()
        await asyncio.sleep(seconds)
        cpu, wall = window.stop()
        return {name: round(used / wall, 4) for name, used in cpu.items()}

    async def measure(self, place: int, stage: Stage) -> Load:
        """One stage on the groups of the shape at `place`, until everything is delivered and nobody works any more."""
        load, before = self._loads[place], await self._stored_bytes()
        pids = pids_of(self.suite)
        window = CpuWindow(pids)
        highest = self.memory()

        async def sample() -> None:
            while True:
                await asyncio.sleep(_SAMPLE_SECONDS)
                for name, size in memory_of(pids).items():
                    highest[name] = max(highest[name], size)

        sampling = asyncio.create_task(sample())
        try:
            window.start()
            await load.begin(stage)
            sent = await load.answered(stage)
            await self._subscriber.delivered(sent * self._options.online)
            await settled(self.suite)
            cpu, wall = window.stop()
        finally:
            sampling.cancel()
            await asyncio.wait([sampling])
        result, _ = await load.result()
        delivered, _ = await self._subscriber.result()
        return Load(
            members=self._options.shapes[place].members,
            offered=stage.rate,
            achieved=round(result.committed / result.seconds, 1),
            committed=result.committed,
            deliveries=delivered.deliveries,
            wall_seconds=round(wall, 1),
            cpu_seconds={name: round(used, 2) for name, used in cpu.items()},
            highest_bytes=highest,
            stored_bytes=await self._stored_bytes() - before,
            errors=dict(result.errors),
        )

    async def verify(self) -> list[str]:
        """Every fault in what the attached devices got of what was acknowledged."""
        heads: dict[int, int] = {}
        for load, groups in zip(self._loads, self._groups, strict=True):
            ledger = (await load.ledger()).groups
            heads |= {len(heads) + number: ledger.get(group, (0, 0, 0))[2] for number, (group, _) in enumerate(groups)}
        return delivery_faults(heads, self._options.online, await self._subscriber.everything())

    async def _stored_bytes(self) -> int:
        """What Valkey has allocated."""
        found = 0
        for address in self.suite.valkey_addresses:
            async with redis.asyncio.Redis.from_url(f"redis://{address}", protocol=2) as client:
                found += int((await client.info("memory"))["used_memory"])
        return found


def pids_of(suite: Suite) -> dict[str, list[int]]:
    """The processes of a running suite by the names that their figures get."""
    pids = {name: [suite.pid(name)] for name in MODULES}
    if suite.archiver_names:
        pids["archiver"] = [suite.pid(name) for name in suite.archiver_names]
    return pids | {"valkey": [suite.pid(name) for name in suite.valkey_names]}


def memory_of(pids: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Resident bytes by name."""
    return {name: sum(map(resident_bytes, processes)) for name, processes in pids.items()}


async def settled(suite: Suite) -> None:
    """Wait, with a bound, until the processes do nothing that they would not do anyway."""
    end = asyncio.get_running_loop().time() + _SETTLED_SECONDS
    while asyncio.get_running_loop().time() < end:
        window = CpuWindow(pids_of(suite))
        window.start()
        await asyncio.sleep(_QUIET_SECONDS)
        cpu, wall = window.stop()
        if sum(cpu.values()) / wall < _QUIET_CORES:
            return


@asynccontextmanager
async def _rig(options: ResourceOptions) -> AsyncIterator[_Rig]:
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="qim-bench-"))
        backend = Backend.TIERED if options.cassandra else Backend.REDIS
        place = stack.enter_context(backend_arguments(backend, options.cassandra))
        suite = Suite(Path(directory), valkeys=1, tenants=(TENANT,), **place)
        await stack.enter_async_context(suite)
        started = memory_of(pids_of(suite))
        writer, session, files = suite.addresses["writer"], suite.addresses["session"], suite.gateway_files()
        client = await stack.enter_async_context(GatewayClient(writer, session, files))
        groups: list[Groups] = []
        for shape in options.shapes:
            made = [await create_group(client, shape.members) for _ in range(shape.groups)]
            groups.append([(group.hex(), [user.hex() for user in users]) for group, users in made])
        # An attach reads the lists, which with Cassandra are still being written behind.
        await settled(suite)
        cert, key, ca = str(files.cert), str(files.key), str(files.ca)
        online = [(group, users[: options.online]) for of_shape in groups for group, users in of_shape]
        attached = SubscriberPlan(session, cert, key, ca, TENANT, online, _STREAMS, acknowledge_seconds=5.0)
        subscriber = await stack.enter_async_context(SubscriberProcess(attached))
        loads = []
        for of_shape in groups:
            plan = LoadPlan(writer, cert, key, ca, TENANT, of_shape, BODY_BYTES, streams=1, tick_ms=2.0)
            loads.append(await stack.enter_async_context(LoadProcess(plan)))
        yield _Rig(suite, started, loads, subscriber, groups, options)

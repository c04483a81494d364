"""Delivery end to end: from the send to the subscribers' streams, over mTLS, all on this machine.

Open loop, as bench/load.py has it. Two moments count: when a message was due (so a stall of anything is seen by all
messages that were due in it), and when its sender's gateway had the acknowledgement. The last moment is when the
device's gateway has read the frame that holds the message; a delivery is one message at one device.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Latency, latency_of, per_message
from bench.load_process import LoadProcess
from bench.plan import LoadPlan, Stage, SubscriberPlan
from bench.processes import CpuWindow
from bench.rig import BODY_BYTES, TENANT, Shape, create_group
from bench.subscriber_process import SubscriberProcess
from bench.trace import Sent, delivery_faults, latencies
from qim_client.gateway import GatewayClient
from qim_devkit.suite import Suite

SHAPE = Shape(groups=200, members=10)
RATES = (1_000.0, 5_000.0)

Tell = Callable[[str], None]
"""Hears in a few words what is being done."""


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """How deliveries are measured.

    Attributes:
        shape: the groups; every member has one device, which is attached all the time.
        rates: messages a second, one stage each.
        seconds, warmup_seconds: of each stage, and of one at the first rate before them.
        streams: Subscribe streams; the members of each group are spread over them.
        acknowledge_seconds: how often every device acknowledges; 0: never.
        tick_ms: as of the load generator.
        profile: a file for the subscriber's cProfile figures; empty: none.
    """

    shape: Shape = SHAPE
    rates: Sequence[float] = RATES
    seconds: float = 15.0
    warmup_seconds: float = 3.0
    streams: int = 2
    acknowledge_seconds: float = 5.0
    tick_ms: float = 2.0
    profile: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryStage:
    """One rate.

    Attributes:
        offered, achieved: messages a second that were due, and that were committed until the last answer.
        deliveries: messages times devices; `expected` is how many there should have been.
        events, frames: of the streams, that held them.
        acknowledged: from the due moment to the sender's acknowledgement; None when nothing was committed.
        from_due, from_acknowledged: to the delivery. The second is below 0 where the event came before the answer.
        cpu_us: microseconds per committed message, user and system, by process.
        cores: the processors that all of them kept busy.
        late: the share of messages that the load generator wrote too late; their latency counts the delay.
        errors: refused and unanswered messages by reason.
    """

    offered: float
    achieved: float
    committed: int
    deliveries: int
    expected: int
    events: int
    frames: int
    acknowledged: Latency | None
    from_due: Latency | None
    from_acknowledged: Latency | None
    cpu_us: dict[str, float]
    cores: float
    late: float
    errors: dict[str, int]


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """All stages, and what the verification found: see `bench.trace.delivery_faults`."""

    shape: Shape
    streams: int
    stages: Sequence[DeliveryStage]
    messages: int
    devices: int
    faults: list[str]


async def delivery(options: DeliveryOptions, tell: Tell) -> DeliveryReport:
    """Measures all rates on processes of its own. Raises SuiteError, LoadFailed, QimError."""
    tell("delivery: starting the processes, attaching the devices")
    async with _rig(options) as rig:
        tell("delivery: warming up")
        await rig.measure(Stage("open", options.warmup_seconds, rate=options.rates[0]))
        stages = []
        for rate in options.rates:
            tell(f"delivery: {rate:,.0f}/s for {options.seconds:g} s")
            stages.append(await rig.measure(Stage("open", options.seconds, rate=rate)))
        tell("delivery: comparing what every device got")
        messages, faults = await rig.verify()
    devices = options.shape.groups * options.shape.members
    return DeliveryReport(options.shape, options.streams, stages, messages, devices, faults)


class _Rig:
    def __init__(
        self, suite: Suite, load: LoadProcess, subscriber: SubscriberProcess, shape: Shape, groups: Sequence[str]
    ) -> None:
        self._suite = suite
        self._load = load
        self._subscriber = subscriber
        self._shape = shape
        self._groups = groups

    async def measure(self, stage: Stage) -> DeliveryStage:
        """Run one stage, until everything is delivered or nothing more comes."""
        window = CpuWindow(
            {
                "writer": [self._suite.pid("writer")],
                "session": [self._suite.pid("session")],
                "redis": [self._suite.pid(name) for name in self._suite.valkey_names],
                "load": [self._load.pid],
                "subscriber": [self._subscriber.pid],
            }
        )
        window.start()
        await self._load.begin(stage)
        sent = await self._load.answered(stage)
        await self._subscriber.delivered(sent * self._shape.members)
        cpu, wall = window.stop()
        result, acknowledged = await self._load.result()
        delivered, received = await self._subscriber.result()
        from_due, from_acknowledged = latencies(Sent.take(Path(result.trace)), received)
        return DeliveryStage(
            offered=stage.rate,
            achieved=round(result.committed / result.seconds, 1),
            committed=result.committed,
            deliveries=delivered.deliveries,
            expected=result.committed * self._shape.members,
            events=delivered.events,
            frames=delivered.frames,
            acknowledged=latency_of(acknowledged) if acknowledged else None,
            from_due=latency_of(from_due) if from_due else None,
            from_acknowledged=latency_of(from_acknowledged) if from_acknowledged else None,
            cpu_us=per_message(cpu, result.committed),
            cores=round(sum(cpu.values()) / wall, 2),
            late=round(result.late, 4),
            errors=dict(result.errors),
        )

    async def verify(self) -> tuple[int, list[str]]:
        """The messages that were acknowledged, and every fault in what was delivered of them."""
        ledger = (await self._load.ledger()).groups
        heads = {number: ledger.get(group, (0, 0, 0))[2] for number, group in enumerate(self._groups)}
        messages = sum(count for count, _, _ in ledger.values())
        return messages, delivery_faults(heads, self._shape.members, await self._subscriber.everything())


@asynccontextmanager
async def _rig(options: DeliveryOptions) -> AsyncIterator[_Rig]:
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="qim-bench-"))
        suite = Suite(Path(directory), valkeys=1, services=("writer", "session"))
        await stack.enter_async_context(suite)
        writer, session, files = suite.addresses["writer"], suite.addresses["session"], suite.gateway_files()
        client = await stack.enter_async_context(GatewayClient(writer, session, files))
        made = [await create_group(client, options.shape.members) for _ in range(options.shape.groups)]
        groups = [(group.hex(), [user.hex() for user in users]) for group, users in made]
        cert, key, ca = str(files.cert), str(files.key), str(files.ca)
        subscriber = SubscriberProcess(
            SubscriberPlan(
                session=session,
                cert=cert,
                key=key,
                ca=ca,
                tenant=TENANT,
                groups=groups,
                streams=options.streams,
                acknowledge_seconds=options.acknowledge_seconds,
                profile=options.profile,
            )
        )
        load = LoadProcess(
            LoadPlan(
                writer=writer,
                cert=cert,
                key=key,
                ca=ca,
                tenant=TENANT,
                groups=groups,
                body_bytes=BODY_BYTES,
                streams=1,
                tick_ms=options.tick_ms,
                trace=True,
            )
        )
        await stack.enter_async_context(subscriber)
        await stack.enter_async_context(load)
        yield _Rig(suite, load, subscriber, options.shape, [group for group, _ in groups])

"""What the commit benchmark runs on: a writer over mTLS, its Valkeys, groups and load generators, on this machine."""

from __future__ import annotations

import array
import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import redis.asyncio

from bench.figures import Latency, latency_of, per_message
from bench.load_process import LoadProcess
from bench.plan import LoadPlan, Stage
from bench.processes import CpuWindow, histograms, shares, since
from qim_client.gateway import GatewayClient
from qim_common.config import StoreSettings
from qim_common.ids import ConversationId, TenantId, UserId, uuid7
from qim_common.keys import BucketKeys
from qim_devkit.cassandra import CassandraCluster
from qim_devkit.suite import Suite
from qim_devkit.tiered import Backend, backend_arguments

TENANT: Final = TenantId(1)
BODY_BYTES: Final = 220
_BATCH_METRIC: Final = "qim_writer_commit_batch_size"
_COMMIT_METRIC: Final = "qim_writer_commit_seconds"


@dataclass(frozen=True, slots=True)
class Shape:
    """Where the messages go: so many groups of so many members, all equally likely."""

    groups: int
    members: int

    def __str__(self) -> str:
        return f"{self.groups} groups of {self.members}"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How load is made: Valkey instances, load processes, streams of each, and the frames' tick in milliseconds; and on
    which backend: with `tiered` a Cassandra cluster and an archiver run beside, on the same processors, where
    `backend_arguments` finds it."""

    valkeys: int = 1
    gateways: int = 1
    streams: int = 2
    tick_ms: float = 2.0
    profile: str = ""
    backend: str = Backend.REDIS
    cassandra: Path | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """One stage over all load generators.

    Attributes:
        offered: messages a second that should have been sent; 0 in a closed stage.
        achieved: messages a second that were committed, from the first due time to the last answer.
        latency: None when nothing was committed.
        cpu_us: microseconds per committed message, user and system, by process.
        cores: the processors that all of them kept busy.
        late: the share of messages that the load generator wrote too late; their latency counts the delay.
        batches: the share of script calls by their number of sends.
        calls_per_second: script calls.
        commit_buckets: cumulative histogram of the seconds of a script call, fsync included.
    """

    stage: Stage
    offered: float
    achieved: float
    sent: int
    committed: int
    errors: dict[str, int]
    latency: Latency | None
    cpu_us: dict[str, float]
    cores: float
    late: float
    batches: dict[str, float]
    calls_per_second: float
    commit_buckets: dict[float, float]


class Rig:
    """Groups and load generators on a running writer."""

    def __init__(
        self,
        suite: Suite,
        loads: list[LoadProcess],
        client: GatewayClient,
        groups: dict[str, UserId],
        cluster: CassandraCluster | None,
    ) -> None:
        self.suite = suite
        self._cluster = cluster
        self._buckets = StoreSettings.model_fields["commit_buckets"].default
        self._loads = loads
        self._client = client
        self._groups = groups

    async def measure(self, stage: Stage) -> Measured:
        """Run one stage; its rate, or its frames, are shared out among the load generators."""
        count = len(self._loads)
        share = replace(stage, rate=stage.rate / count, frames=max(stage.frames // count, 1) if stage.frames else 0)
        pids = self.pids()
        metrics = self.suite.metrics_address("writer")
        before = await asyncio.to_thread(histograms, metrics)
        window = CpuWindow(pids)
        window.start()
        await asyncio.gather(*(load.begin(share) for load in self._loads))
        await asyncio.gather(*(load.answered(share) for load in self._loads))
        cpu, wall = window.stop()
        after = await asyncio.to_thread(histograms, metrics)
        results = await asyncio.gather(*(load.result() for load in self._loads))
        latencies: array.array[float] = array.array("f")
        errors: Counter[str] = Counter()
        for result, values in results:
            latencies.extend(values)
            errors.update(result.errors)
        sent = sum(result.sent for result, _ in results)
        committed = len(latencies)
        seconds = max(result.seconds for result, _ in results)
        sizes = since(before.get(_BATCH_METRIC, {}), after[_BATCH_METRIC])
        return Measured(
            stage=stage,
            offered=stage.rate,
            achieved=round(committed / seconds, 1),
            sent=sent,
            committed=committed,
            errors=dict(errors),
            latency=latency_of(latencies) if latencies else None,
            cpu_us=per_message(cpu, committed),
            cores=round(sum(cpu.values()) / wall, 2),
            late=round(max(result.late for result, _ in results), 4),
            batches=shares(sizes),
            calls_per_second=round(max(sizes.values()) / seconds, 1),
            commit_buckets=since(before.get(_COMMIT_METRIC, {}), after[_COMMIT_METRIC]),
        )

    def pids(self) -> dict[str, list[int]]:
        """The processes by the names that their figures get."""
        pids = {
            "writer": [self.suite.pid("writer")],
            "redis": [self.suite.pid(name) for name in self.suite.valkey_names],
            "load": [load.pid for load in self._loads],
        }
        if self._cluster is not None:
            pids["archiver"] = [self.suite.pid(name) for name in self.suite.archiver_names if self.suite.running(name)]
            pids["cassandra"] = [node.pid for node in self._cluster.nodes]
        return pids

    async def backlog(self) -> int:
        """Messages and state entries that are recorded and not archived."""
        found = 0
        for address in self.suite.valkey_addresses:
            async with redis.asyncio.Redis.from_url(f"redis://{address}", protocol=2) as client:
                metas = [BucketKeys(bucket).meta for bucket in range(self._buckets)]
                async with client.pipeline(transaction=False) as pipe:
                    for meta in metas:
                        pipe.hmget(meta, "rec", "arcd")
                    found += sum(int(recorded or 0) - int(done or 0) for recorded, done in await pipe.execute())
        return found

    async def verify(self) -> tuple[int, list[str]]:
        """Compare what was acknowledged with what the API tells now; the messages, and every fault found.

        In each group the seqs must be 1, 2, ... without a gap or a double, and the head must be the newest of them.
        """
        faults: list[str] = []
        acknowledged = 0
        for load in self._loads:
            for group, (count, distinct, newest) in (await load.ledger()).groups.items():
                acknowledged += count
                conversation = ConversationId(bytes.fromhex(group))
                seen = await self._client.as_actor(TENANT, self._groups[group]).get_visible_range(conversation)
                if not count == distinct == newest == seen.head_seq:
                    faults.append(
                        f"group {group}: {count} acknowledged, {distinct} distinct seqs, newest {newest}, "
                        f"head {seen.head_seq}"
                    )
        return acknowledged, faults


@asynccontextmanager
async def rig(shape: Shape, options: LoadOptions) -> AsyncIterator[Rig]:
    """Starts everything, creates the groups, and ends everything again. Raises SuiteError, LoadFailed, QimError."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="qim-bench-"))
        place = stack.enter_context(backend_arguments(options.backend, options.cassandra))
        suite = Suite(Path(directory), valkeys=options.valkeys, services=("writer",), tenants=(TENANT,), **place)
        cluster = place.get("cassandra")
        yield await rig_on(stack, suite, shape, options, cluster if isinstance(cluster, CassandraCluster) else None)


async def rig_on(
    stack: AsyncExitStack, suite: Suite, shape: Shape, options: LoadOptions, cluster: CassandraCluster | None
) -> Rig:
    """The same on a suite that was made elsewhere, and is started here; everything ends with the stack."""
    await stack.enter_async_context(suite)
    writer, files = suite.addresses["writer"], suite.gateway_files()
    client = await stack.enter_async_context(GatewayClient(writer, writer, files))
    groups = [await create_group(client, shape.members) for _ in range(shape.groups)]
    loads = []
    for number in range(options.gateways):
        plan = LoadPlan(
            writer=writer,
            cert=str(files.cert),
            key=str(files.key),
            ca=str(files.ca),
            tenant=TENANT,
            # A group belongs to one load generator, so that each can tell whether its seqs are dense.
            groups=[(group.hex(), [user.hex() for user in users]) for group, users in groups][
                number :: options.gateways
            ],
            body_bytes=BODY_BYTES,
            streams=options.streams,
            tick_ms=options.tick_ms,
            profile=f"{options.profile}.{number}" if options.profile else "",
        )
        loads.append(await stack.enter_async_context(LoadProcess(plan)))
    return Rig(suite, loads, client, {group.hex(): users[0] for group, users in groups}, cluster)


async def create_group(client: GatewayClient, members: int) -> tuple[ConversationId, list[UserId]]:
    """A new group of so many new people, the owner first. Raises QimError."""
    users = [UserId(uuid7()) for _ in range(members)]
    created = await client.as_actor(TENANT, users[0]).create_group(users[1:], timeout=20)
    return created.group, users

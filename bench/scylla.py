"""The comparison backend beside redis, in one run: what a commit costs on CQL alone (docs/decisions/0018)."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from bench.plan import Stage
from bench.rig import TENANT, LoadOptions, Measured, Rig, Shape, rig, rig_on
from bench.session_tables import verdict
from qim_common.cassandra import CassandraSession, CassandraSettings
from qim_common.cassandra.migrate import migrate
from qim_common.cassandra.migrations import COMPARISON_COMPONENTS, installed_migrations
from qim_common.telemetry.metrics import CassandraMetrics
from qim_devkit.cassandra import CassandraCluster, ExistingCluster
from qim_devkit.suite import Suite
from qim_devkit.tiered import Backend, CassandraPlace, backend_arguments

SHAPE: Final = Shape(groups=20, members=10)
_FRAMES: Final = 16
_FRAME_MESSAGES: Final = 128
_OFFERED_SHARE: Final = 0.5
"""Of what the comparison backend commits in a closed loop: the rate that is offered to both."""

_MIGRATION_SECONDS: Final = 30.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both backends: in a closed loop (a constant number of frames in flight), and at one rate, open loop.

    `faults` are those of the verification of everything acknowledged.
    """

    shape: Shape
    scylla_closed: Measured
    scylla_open: Measured
    redis_closed: Measured
    redis_open: Measured
    acknowledged: int
    faults: list[str] = field(default_factory=list)


async def comparison(tell: Tell, *, quick: bool, cassandra: Path | None = None) -> Comparison:
    """Measure both, one after the other. Raises SuiteError, LoadFailed, QimError, CassandraNotAvailable."""
    seconds = 2.0 if quick else 5.0
    closed = Stage("closed", seconds, frames=_FRAMES, frame_messages=_FRAME_MESSAGES)
    async with AsyncExitStack() as stack:
        tell(f"scylla, {SHAPE}: tables and processes")
        ready = await _scylla_rig(stack, cassandra)
        tell(f"scylla: closed loop for {seconds:g} s")
        scylla_closed = await ready.measure(closed)
        stage = Stage("open", seconds, rate=max(round(scylla_closed.achieved * _OFFERED_SHARE, -1), 10.0))
        tell(f"scylla: {stage.rate:,.0f}/s for {seconds:g} s")
        scylla_open = await ready.measure(stage)
        acknowledged, faults = await ready.verify()
    async with rig(SHAPE, LoadOptions()) as redis:
        tell(f"redis: the same, {2 * seconds:g} s")
        redis_closed = await redis.measure(closed)
        redis_open = await redis.measure(stage)
        more, others = await redis.verify()
    return Comparison(
        SHAPE, scylla_closed, scylla_open, redis_closed, redis_open, acknowledged + more, [*faults, *others]
    )


async def _scylla_rig(stack: AsyncExitStack, cassandra: Path | None) -> Rig:
    """A writer on the comparison backend. The suite's Valkey stands idle beside it."""
    cluster = stack.enter_context(backend_arguments(Backend.TIERED, cassandra)).get("cassandra")
    if cluster is None:
        raise TypeError("the backend tiered comes with a cluster")
    place = await _tables(cluster)
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="qim-bench-"))
    settings = {"QIM_BACKEND": "scylla", "QIM_ALLOW_COMPARISON_BACKEND": "yes", **place.environment}
    suite = Suite(Path(directory), valkeys=1, services=("writer",), tenants=(TENANT,), env_overrides=settings)
    return await rig_on(stack, suite, SHAPE, LoadOptions(), cluster if isinstance(cluster, CassandraCluster) else None)


async def _tables(cluster: CassandraCluster | ExistingCluster) -> CassandraPlace:
    migrations = installed_migrations(COMPARISON_COMPONENTS)
    digest = hashlib.sha256("".join(one.checksum for one in migrations).encode()).hexdigest()[:8]
    place = CassandraPlace.of(cluster, f"qim_scylla_{digest}")
    settings = CassandraSettings(
        cassandra_contact_points=place.contact_points,
        cassandra_local_dc=place.local_dc,
        cassandra_keyspace=place.keyspace,
        cassandra_timeout_seconds=_MIGRATION_SECONDS,
    )
    session = await CassandraSession.connect(settings, CassandraMetrics(CollectorRegistry()), keyspace="")
    try:
        await migrate(session, migrations, {place.local_dc: place.copies})
    finally:
        await session.close()
    return place


def comparison_table(found: Comparison) -> RenderableType:
    """The two backends, line by line."""
    table = Table(title=f"CQL alone beside redis: {found.shape}", title_justify="left", box=SIMPLE_HEAD)
    columns = (
        "",
        "offered/s",
        "achieved/s",
        "P50 ms",
        "P99",
        "P99.9",
        "max",
        "runs/s",
        "writer us",
        "store us",
        "errors",
    )
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    rows = (
        ("scylla, closed loop", found.scylla_closed, "cassandra"),
        ("redis, closed loop", found.redis_closed, "redis"),
        ("scylla, open loop", found.scylla_open, "cassandra"),
        ("redis, open loop", found.redis_open, "redis"),
    )
    for name, measured, store in rows:
        table.add_row(name, *_row(measured, store))
    verified = f"verified: {found.acknowledged:,} acknowledged, seqs dense, heads equal"
    return Group(table, verdict(verified, found.faults), "")


def _row(measured: Measured, store: str) -> list[str]:
    latency = measured.latency
    figures = ["-"] * 4 if latency is None else [f"{part:.1f}" for part in asdict(latency).values()]
    cpu = [f"{measured.cpu_us[name]:.1f}" for name in ("writer", store)]
    errors = ", ".join(f"{reason} {count}" for reason, count in measured.errors.items()) or "0"
    offered = f"{measured.offered:,.0f}" if measured.offered else "-"
    return [offered, f"{measured.achieved:,.0f}", *figures, f"{measured.calls_per_second:,.0f}", *cpu, errors]

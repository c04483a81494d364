"""The session service's consumers as one process has them, on stores whose calls pass failpoints."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from tests.model.consumers.failpoints import Failpoints, Observer, wrapped
from tests.model.consumers.written import Writer

from qim_common.redis import Instance
from qim_common.telemetry.metrics import SessionMetrics
from qim_common.topology import Topology
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.backends.redis_leases import RedisLeases
from qim_session.backends.redis_memlog import RedisMemberLog
from qim_session.backends.redis_people import RedisPeople
from qim_session.backends.redis_projection import RedisProjectionStore
from qim_session.backends.redis_rebuild import RedisListRestore
from qim_session.commands.audience import Audiences
from qim_session.commands.consume import DispatchConsumer
from qim_session.commands.leases import Leases
from qim_session.commands.mailbox import Mailbox
from qim_session.commands.mark_read import MarkRead
from qim_session.commands.memlog import MemlogRegistrar
from qim_session.commands.progress import ProgressReader
from qim_session.commands.project import Project
from qim_session.commands.projection import Projector
from qim_session.commands.projection_lane import ProjectionLane
from qim_session.commands.pull_mailbox import PullMailbox
from qim_session.commands.rebuild import Rebuild
from qim_session.commands.register import Registrar
from qim_session.domain.membership import MembersCache

CALLS = (
    *("load", "project", "settle", "progress", "epoch.raise", "pending", "pop", "register", "sets"),
    *("read", "bounds", "memlog.read", "memlog.register", "memlog.trim", "renew", "release"),
    *("rebuild.epoch", "rebuild.restore", "rebuild.mark", "read.cursors", "advance.read", "advance.device"),
    *("members", "change", "states", "delivered"),
)
"""Every call with failpoints around it, `project.before` and so on; `register.after` lies between write and pop."""

CORE = (
    *("load", "project", "settle", "pending", "pop", "register", "memlog.read", "memlog.register", "memlog.trim"),
    *("sets", "rebuild.mark"),
)
"""Those that move what is stored of partitions and registrations."""


@dataclass(frozen=True)
class Stores:
    """The servers: each is a commit instance and a session instance. `dispatch`: a replica's own connections."""

    topology: Topology
    instances: Sequence[Instance]
    dispatch: Sequence[Sequence[Instance]]


class _Worker(Protocol):
    async def run(self) -> None: ...


class _Holder(Protocol):
    def hold(self, partitions: Iterable[int]) -> None: ...


class Replica:
    """One process: `begin` it, and end it with `stop` or `kill`."""

    def __init__(self, number: int, stores: Stores, writer: Writer, observe: Observer) -> None:
        topology = stores.topology
        self.number = number
        self.holder = os.urandom(16)
        self.refused: BaseException | None = None
        self.metrics = metrics = SessionMetrics(CollectorRegistry())
        self.points = points = Failpoints(self._cut, observe)
        self._tasks: set[asyncio.Task[Any]] = set()

        self.people = people = wrapped(
            RedisPeople(stores.instances, topology),
            points,
            register="register",
            of="sets",
            read="read.cursors",
            advance_read="advance.read",
            advance_device="advance.device",
        )
        from_memlog = wrapped(RedisPeople(stores.instances, topology), points, register="memlog.register")
        asked = wrapped(writer, points, members="members", change="change", states="states", delivered="delivered")
        projections = [
            wrapped(
                RedisProjectionStore(instance, topology),
                points,
                place,
                checkpoints="load",
                project="project",
                settle="settle",
                progress="progress",
                raise_epoch="epoch.raise",
                pending="pending",
                pop_pending="pop",
            )
            for place, instance in enumerate(stores.instances)
        ]
        self.registrars = [Registrar(projection, people, metrics) for projection in projections]
        projector = Projector(projections, topology, on_registered=self._notify)
        audiences = Audiences(asked, MembersCache(1_000), metrics)
        self.memlogs = [
            MemlogRegistrar(
                wrapped(
                    RedisMemberLog(instance, topology.buckets_of(place)),
                    points,
                    place,
                    oldest="memlog.read",
                    trim="memlog.trim",
                ),
                from_memlog,
                metrics,
            )
            for place, instance in enumerate(stores.instances)
        ]
        self.consumers = [
            DispatchConsumer(
                wrapped(
                    RedisDispatchLog(instance, topology.buckets_of(place)), points, place, bounds="bounds", read="read"
                ),
                ProjectionLane(projector, audiences, memlog, metrics),
                metrics,
            )
            for place, (instance, memlog) in enumerate(zip(stores.dispatch[number], self.memlogs, strict=True))
        ]
        progress = ProgressReader(projections, range(topology.buckets))
        self.project = Project(projector, Audiences(asked, MembersCache(1_000), metrics), progress, topology, metrics)
        self.leases = Leases(
            wrapped(RedisLeases(stores.instances[0], topology.buckets), points, renew="renew", release="release"),
            metrics,
            holder=self.holder,
            on_change=self._hold,
        )
        lists = wrapped(
            RedisListRestore(stores.instances, topology),
            points,
            epoch="rebuild.epoch",
            restore="rebuild.restore",
            mark="rebuild.mark",
        )
        self.rebuild = Rebuild(lists, people, asked, self.registrars, topology, metrics)
        mailbox = Mailbox(people, asked, metrics, max_entries=10_000, max_age_days=30)
        self.pull = PullMailbox(self.rebuild, people, mailbox)
        self.mark_read = MarkRead(self.rebuild, people, asked)

    def begin(self) -> None:
        """Start to work; a refusal to start is kept in `refused`."""
        self._run(self._start())

    @property
    def alive(self) -> bool:
        """Neither stopped nor killed."""
        return not self.points.dead

    def kill(self) -> None:
        """Die at this moment."""
        self.points.die()
        self._cut()

    async def stop(self) -> None:
        """Leave in order: give the leases away, and stop the work. Nothing of it goes out afterwards."""
        self._cut()
        await self.leases.release()
        self.points.die()

    async def ended(self) -> None:
        """Wait until nothing of it is under way."""
        while rest := [task for task in (*self._tasks, *self.points.calls) if not task.done()]:
            await asyncio.wait(rest)

    async def _start(self) -> None:
        try:
            await asyncio.gather(*(consumer.check_start() for consumer in self.consumers))
        except Exception as error:  # noqa: BLE001  the walk judges it
            self.refused = error
            self.points.die()
            return
        workers: list[_Worker] = [*self.consumers, *self.memlogs, *self.registrars, self.project, self.leases]
        for worker in workers:
            self._run(worker.run())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cut(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _hold(self, held: frozenset[int]) -> None:
        holders: list[_Holder] = [*self.consumers, *self.memlogs]
        for holder in holders:
            holder.hold(held)

    def _notify(self) -> None:
        for registrar in self.registrars:
            registrar.notify()

"""An archiver that fails, dies or has a rival at any point loses nothing and does nothing twice."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.support.archiving import Life, differences, unfinished, with_archive
from tests.support.chat import Chat
from tests.support.redis_stores import RedisStores, redis_stores
from tests.support.writers import until

from qim_common.cassandra import CassandraSession, CassandraUnavailable, OutcomeUnknown
from qim_common.ids import TenantId
from qim_common.redis import ConnectionLost
from qim_common.telemetry.metrics import ArchiverMetrics
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.backends.cassandra.group_log import CassandraGroupLog
from qim_writer.backends.cassandra.positions import CassandraArchivePositions
from qim_writer.backends.redis.behind import RedisBehind
from qim_writer.backends.redis.outbox import RedisArchiveLease, RedisOutbox
from qim_writer.commands.archive.holding import LEASE_SECONDS, Holding
from qim_writer.commands.archive.rounds import Archive, Archiver
from qim_writer.domain.policy import Limits

BUCKETS = 4
CALLS = ("state", "read", "announce", "confirm", "append", "records", "advance_heads", "note")


@dataclass
class Points:
    """Named points around every call of the archiver, `note.before` and so on; what happens at one is set here."""

    happens: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)

    async def at(self, name: str) -> None:
        self.passed.append(name)
        action = self.happens.get(name)
        if action is not None:
            await action()


class Wrapped:
    """A store whose calls pass the points."""

    def __init__(self, store: object, points: Points) -> None:
        self._store = store
        self._points = points

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in CALLS:
            return real

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._points.at(f"{name}.before")
            answer = await real(*args, **kwargs)
            await self._points.at(f"{name}.after")
            return answer

        return call


class Place:
    """One Valkey with an archive, and archivers on it."""

    def __init__(self, stores: RedisStores, session: CassandraSession, outbox: RedisOutbox, chat: Chat) -> None:
        self.stores = stores
        self.session = session
        self.outbox = outbox
        self.behind = RedisBehind(stores.store.instances[0], stores.store.topology)
        self.chat = chat
        self.installation = os.urandom(8).hex()
        self.life = Life(chat, random.Random(5))  # noqa: S311  no secret

    @asynccontextmanager
    async def archiver(
        self,
        points: Points | None = None,
        *,
        always: bool = False,
        around: Callable[[Any], Any] = lambda store: store,
    ) -> AsyncIterator[tuple[Archiver, ArchiverMetrics]]:
        """One that works until the context ends, which kills it."""
        metrics = ArchiverMetrics(CollectorRegistry())
        if points:
            around = lambda store: Wrapped(store, points)  # noqa: E731
        archive = Archive(
            around(CassandraArchive(self.session, installation_id=self.installation, buckets=BUCKETS)),
            around(CassandraGroupLog(self.session)),
            around(CassandraArchivePositions(self.session, installation_id=self.installation)),
        )
        instance = self.stores.store.instances[0]
        lease = RedisArchiveLease(instance, token=os.urandom(16), seconds=LEASE_SECONDS)
        holding = Holding(Greedy() if always else lease, metrics)
        archiver = Archiver(around(self.outbox), archive, holding, metrics, linger_seconds=0.01)
        tasks = [asyncio.create_task(holding.run()), asyncio.create_task(archiver.run())]
        try:
            yield archiver, metrics
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            with suppress(Exception):
                await lease.release()

    async def archived(self) -> None:
        """Wait until everything is."""

        async def finished() -> bool:
            return not await unfinished(self.stores)

        await until(finished)

    async def verify(self) -> None:
        """Nothing is missing, and nothing is otherwise than on the instance."""
        await self.archived()
        assert await differences(self.stores, self.session, self.installation, self.chat) == []


class Greedy:
    """A lease that is always had, as where two archivers believe so."""

    async def hold(self) -> bool:
        return True

    async def release(self) -> None:
        return None


@pytest.fixture
async def place(
    valkey_session: ValkeyServer, cassandra_session: CassandraSession, tenant: TenantId
) -> AsyncIterator[Place]:
    async with redis_stores(valkey_session, buckets=BUCKETS) as stores:
        outbox = await with_archive(stores)
        chat = Chat(stores, limits=Limits(broadcast_max_members=20), tenant=tenant)
        place = Place(stores, cassandra_session, outbox, chat)
        await place.life.begin(5)
        yield place


async def test_everything_committed_comes_into_the_archive(place: Place) -> None:
    await place.life.go_on(8)
    async with place.archiver() as (_, metrics):
        await place.archived()
        await place.life.go_on(8)
        await place.verify()
    assert metrics.buckets_refused.labels("0")._value.get() == 0


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", CALLS)
async def test_an_archiver_that_dies_is_followed_by_one_that_misses_nothing(
    place: Place, call: str, moment: str
) -> None:
    for _ in range(2):
        await place.life.go_on(4)
        died, never = asyncio.Event(), asyncio.Event()

        async def die(died: asyncio.Event = died, never: asyncio.Event = never) -> None:
            died.set()
            await never.wait()

        async with place.archiver(Points({f"{call}.{moment}": die})):
            async with asyncio.timeout(20):
                await died.wait()
            await place.life.send(2)
    async with place.archiver():
        await place.verify()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", CALLS)
async def test_a_failure_is_tried_again(place: Place, call: str, moment: str) -> None:
    await place.life.go_on(4)
    errors = iter((CassandraUnavailable("down"), OutcomeUnknown("late"), ConnectionLost("cut"), RuntimeError("fault")))

    async def fail() -> None:
        if (error := next(errors, None)) is not None:
            raise error

    async with place.archiver(Points({f"{call}.{moment}": fail})) as (_, metrics):
        await place.verify()
    assert 1 <= metrics.failures._value.get() <= 4


@pytest.mark.parametrize("moment", ["read.after", "announce.before", "announce.after", "confirm.before"])
async def test_an_instance_that_restarts_after_it_was_read_is_read_again_before_anything_is_written(
    place: Place, valkey_session: ValkeyServer, moment: str
) -> None:
    """It may have come back without what was read: only what is announced before is missed by the fence."""
    await place.life.go_on(4)
    instance, lost = place.stores.store.instances[0], asyncio.Event()
    instance.on_lost.append(lost.set)
    points = Points()

    async def restart() -> None:
        del points.happens[moment]
        await asyncio.to_thread(valkey_session.restart)
        async with asyncio.timeout(20):
            await lost.wait()

    points.happens[moment] = restart
    async with place.archiver(points, always=True) as (_, metrics):
        await until(lambda: "note.after" in points.passed)
        await place.verify()
    assert metrics.failures._value.get() >= 1
    first_written = points.passed.index("append.before")
    read = [at for at, name in enumerate(points.passed[:first_written]) if name == "read.before"]
    assert len(read) >= 2
    assert points.passed[read[-1] :].index("confirm.after") < first_written - read[-1]


async def test_two_at_once_do_no_harm(place: Place) -> None:
    async with place.archiver(always=True), place.archiver(always=True), place.archiver():
        for _ in range(8):
            await place.life.go_on(2)
        await place.verify()


async def test_a_standby_takes_over_and_only_one_works(place: Place) -> None:
    await place.life.send(2)
    standby_points = Points()
    async with place.archiver() as (first, metrics):
        await place.archived()
        async with place.archiver(standby_points):
            await place.life.go_on(2)
            await place.archived()
            assert not standby_points.passed
            await first.drain(5.0)
            assert metrics.leases_held._value.get() == 1
    async with place.archiver():
        await place.life.go_on(2)
        await place.verify()


async def test_the_group_log_is_ahead_of_the_messages(place: Place) -> None:
    """Whatever message with version V is in the archive, the rows up to V are."""
    await place.life.go_on(4)
    points, order = Points(), []

    async def note() -> None:
        order.append(points.passed[-1])

    points.happens = {f"{call}.before": note for call in ("announce", "append", "advance_heads", "note")}
    async with place.archiver(points):
        await place.verify()
    assert order[0] == "announce.before"
    assert points.passed.index("append.after") < points.passed.index("note.before")


async def test_a_log_that_lost_entries_is_refused_and_the_others_go_on(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with place.archiver():
        await place.archived()
    await place.life.go_on(4)
    lost = place.stores.bucket(next(iter(place.life.groups)), place.chat.tenant)
    before = await place.stores.call("HGET", lost.meta, "arch")
    await place.stores.call("XTRIM", lost.dispatch, "MAXLEN", 1)

    async with place.archiver() as (_, metrics):

        async def others() -> bool:
            return len(await unfinished(place.stores)) == 1

        await until(others)
        assert metrics.buckets_refused.labels("0")._value.get() == 1
    assert await place.stores.call("HGET", lost.meta, "arch") == before
    assert f"bucket {lost.bucket}: not archived any more" in caplog.text


async def test_a_log_that_lost_only_what_was_archived_goes_on(place: Place) -> None:
    async with place.archiver():
        await place.archived()
        for bucket in place.stores.store.buckets:
            await place.stores.call("XTRIM", bucket.dispatch, "MAXLEN", 0)
        await place.life.go_on(4)

        async def caught_up() -> bool:
            return not (await place.behind.look()).messages

        await until(caught_up)
    assert (await place.outbox.state()).refused == {}


async def test_an_entry_that_cannot_be_read_is_never_skipped(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async with place.archiver():
        await place.archived()
    bad = place.stores.store.buckets[1]
    before = await place.stores.call("HGET", bad.meta, "arch")
    await place.stores.call("XADD", bad.dispatch, "*", "e", b"\x07nonsense")
    await place.life.send(4)

    async with place.archiver() as (_, metrics):

        async def others() -> bool:
            return len(await unfinished(place.stores)) == 1

        await until(others)
        assert metrics.buckets_refused.labels("0")._value.get() == 1
    assert await place.stores.call("HGET", bad.meta, "arch") == before
    assert "cannot be read" in caplog.text


async def test_records_below_the_floor_that_are_gone_are_left_out(place: Place) -> None:
    group = next(iter(place.life.groups))
    sender = place.life.groups[group][0]
    await place.chat.send(sender, bytes(group), body=bytes(10_000))
    await place.chat.send(sender, bytes(group), body=b"here")
    keys = place.stores.keys(group, place.chat.tenant)
    await place.stores.call("HDEL", keys.msgrec, 1)

    async with place.archiver():
        await place.verify()

"""Migrations on real nodes: once each, by one at a time, and repeated where they broke off."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.cassandra import opened, settings_of

from qim_common.cassandra import CassandraSettings, CassandraUnavailable, Statement
from qim_common.cassandra.migrate import State, migrate, schema_status
from qim_common.cassandra.migrations import Migration, MigrationError, parse_migration
from qim_devkit.cassandra import CassandraCluster

COPIES = {"dc1": 3}
FIRST = parse_migration("test", "0001_first.cql", "CREATE TABLE IF NOT EXISTS first (a int PRIMARY KEY);")
SECOND = parse_migration("test", "0002_second.cql", "CREATE TABLE IF NOT EXISTS second (a int PRIMARY KEY);")


@pytest_asyncio.fixture
async def fresh(cassandra: CassandraCluster) -> AsyncIterator[CassandraSettings]:
    """Settings of a keyspace that does not exist yet; it is dropped at the end."""
    settings = settings_of(cassandra, keyspace=f"m{uuid.uuid4().hex[:16]}", timeout_seconds=30.0)
    yield settings
    async with opened(settings, keyspace="") as session:
        await session.define(f"DROP KEYSPACE IF EXISTS {settings.cassandra_keyspace}")


async def run(settings: CassandraSettings, migrations: list[Migration], *, wait_seconds: float = 60) -> list[Migration]:
    async with opened(settings, keyspace="") as session:
        return await migrate(session, migrations, COPIES, wait_seconds=wait_seconds)


async def states(settings: CassandraSettings, migrations: list[Migration]) -> list[State]:
    async with opened(settings, keyspace="") as session:
        status = await schema_status(session, migrations)
        assert status.complete == all(one.state in (State.APPLIED, State.UNKNOWN) for one in status.migrations)
        return [one.state for one in status.migrations]


async def test_two_at_once_on_nothing_apply_each_migration_once(fresh: CassandraSettings) -> None:
    assert await states(fresh, [FIRST, SECOND]) == [State.PENDING, State.PENDING]

    done = await asyncio.gather(run(fresh, [FIRST, SECOND]), run(fresh, [FIRST, SECOND]))

    assert sorted(map(len, done)) == [0, 2]
    assert await states(fresh, [FIRST, SECOND]) == [State.APPLIED, State.APPLIED]
    async with opened(fresh) as session:
        for read in ("SELECT a FROM first", "SELECT a FROM second"):
            assert await session.execute(Statement("test_read", read)) == []


async def test_new_changed_and_unknown_migrations_are_told_apart(fresh: CassandraSettings) -> None:
    changed = parse_migration("test", "0001_first.cql", "CREATE TABLE IF NOT EXISTS other (a int PRIMARY KEY);")
    assert await run(fresh, [FIRST]) == [FIRST]
    assert await run(fresh, [FIRST]) == []

    assert await states(fresh, [FIRST, SECOND]) == [State.APPLIED, State.PENDING]
    assert await states(fresh, [changed]) == [State.CHANGED]
    assert await states(fresh, []) == [State.UNKNOWN]
    with pytest.raises(MigrationError, match="test 0001 first was changed after it was applied"):
        await run(fresh, [changed, SECOND])
    async with opened(fresh, keyspace="") as session:
        with pytest.raises(MigrationError, match=r"has the replication dc1:3"):
            await migrate(session, [FIRST], {"dc1": 2})


async def test_a_holder_that_died_holds_others_up_only_until_its_row_expires(fresh: CassandraSettings) -> None:
    broken = parse_migration("test", "0001_first.cql", FIRST.statements[0] + "; CREATE NONSENSE;")
    with pytest.raises(Exception, match="NONSENSE"):
        await run(fresh, [broken])
    assert await states(fresh, [FIRST]) == [State.PENDING]

    await _leave_lock(fresh, seconds=3)
    with pytest.raises(CassandraUnavailable, match="another process has been migrating"):
        await run(fresh, [FIRST], wait_seconds=0)
    # What broke off is repeated, after the dead holder's time.
    assert await run(fresh, [FIRST]) == [FIRST]


async def _leave_lock(settings: CassandraSettings, *, seconds: int) -> None:
    async with opened(settings) as session:
        take = "INSERT INTO schema_lock (name, holder) VALUES ('schema', 'dead') IF NOT EXISTS USING TTL ?"
        assert (await session.execute(Statement("test_lock", take, idempotent=False), (seconds,)))[0][0]

"""Applies migrations to a keyspace, one process at a time.

The two tables that this needs itself are created by whoever comes first, also by two at once: their ids are derived
from the keyspace's name, so that both create the same table. After that a row that is taken by a conditional write lets
one process work; it expires, so that a process that died holds nobody up for long, and is renewed before each
statement.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from qim_common.cassandra.errors import CassandraRefused, CassandraUnavailable, OutcomeUnknown
from qim_common.cassandra.migrations import Migration, MigrationError
from qim_common.cassandra.session import CassandraSession, Statement

LOCK_SECONDS: Final = 120
"""Longer than one change of the schema may take with the wait for agreement."""

WAIT_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 0.5
_TABLES: Final = uuid.UUID("6f1f6d1c-52a7-4c0e-9a57-3c1f0b7a9e11")

_OWN_TABLES: Final = {
    "schema_migrations": "component text, number int, name text, checksum text, applied_at timestamp, "
    "PRIMARY KEY (component, number)",
    "schema_lock": "name text PRIMARY KEY, holder text",
}

_KEYSPACE: Final = Statement(
    "schema_keyspace", "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?"
)
_TABLE: Final = Statement(
    "schema_table", "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"
)
_APPLIED: Final = Statement("schema_applied", "SELECT component, number, name, checksum FROM schema_migrations")
_RECORD: Final = Statement(
    "schema_record",
    "INSERT INTO schema_migrations (component, number, name, checksum, applied_at) VALUES (?, ?, ?, ?, ?)",
)
_TAKE: Final = Statement(
    "schema_lock_take",
    f"INSERT INTO schema_lock (name, holder) VALUES ('schema', ?) IF NOT EXISTS USING TTL {LOCK_SECONDS}",  # noqa: S608
    idempotent=False,
)
_RENEW: Final = Statement(
    "schema_lock_renew",
    f"UPDATE schema_lock USING TTL {LOCK_SECONDS} SET holder = ? WHERE name = 'schema' IF holder = ?",  # noqa: S608
    idempotent=False,
)
_RELEASE: Final = Statement(
    "schema_lock_release", "DELETE FROM schema_lock WHERE name = 'schema' IF holder = ?", idempotent=False
)
_HOLDER: Final = Statement("schema_lock_holder", "SELECT holder FROM schema_lock WHERE name = 'schema'")


class State(StrEnum):
    """How a migration stands to a keyspace."""

    APPLIED = "applied"
    PENDING = "pending"
    CHANGED = "changed"
    """Its file differs from what was applied."""
    UNKNOWN = "unknown"
    """It was applied by a newer release: this one has no such file."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One migration and its state."""

    component: str
    number: int
    name: str
    state: State


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """A keyspace's replication (by data centre; None: there is no keyspace) and all migrations."""

    replication: Mapping[str, int] | None
    migrations: tuple[Standing, ...]

    @property
    def complete(self) -> bool:
        """Whether this release can work on it."""
        return all(one.state in (State.APPLIED, State.UNKNOWN) for one in self.migrations)


async def schema_status(session: CassandraSession, migrations: Sequence[Migration]) -> SchemaStatus:
    """What was applied to the configured keyspace. Needs a session without a keyspace. Raises CassandraUnavailable."""
    keyspace = session.settings.cassandra_keyspace
    replication = await _replication(session, keyspace)
    applied: dict[tuple[str, int], tuple[str, str]] = {}
    if replication is not None and await session.execute(_TABLE, (keyspace, "schema_migrations")):
        await session.use(keyspace)
        applied = await _applied(session)
    return SchemaStatus(replication, _standings(migrations, applied))


async def require_migrated(session: CassandraSession, migrations: Sequence[Migration]) -> None:
    """Whether this release can work on the session's keyspace, which exists.

    Raises:
        CassandraRefused: a migration is missing, or was changed after it was applied; says what to do.
        CassandraUnavailable: a node does not answer.
    """
    known = await session.execute(_TABLE, (session.settings.cassandra_keyspace, "schema_migrations"))
    applied = await _applied(session) if known else {}
    for one in _standings(migrations, applied):
        if one.state in (State.PENDING, State.CHANGED):
            raise CassandraRefused(
                f"the keyspace {session.settings.cassandra_keyspace} does not have this release's tables "
                f"({one.component} {one.number:04} {one.name}: {one.state}); run `qimctl schema migrate` first"
            )


async def migrate(
    session: CassandraSession,
    migrations: Sequence[Migration],
    replication: Mapping[str, int],
    *,
    wait_seconds: float = WAIT_SECONDS,
    progress: Callable[[Migration], None] = lambda _: None,
) -> list[Migration]:
    """Create the configured keyspace where it is missing and apply what was not applied; returns that.

    Idempotent, and safe when several run at once. Needs a session without a keyspace. `progress` hears of each
    migration before it is applied.

    Raises:
        MigrationError: the keyspace has another replication, or a file was changed after it was applied.
        CassandraUnavailable: a node does not answer, or another process works for longer than `wait_seconds`. What was
            done so far stays; run it again.
    """
    keyspace = session.settings.cassandra_keyspace
    await _provide_keyspace(session, keyspace, replication)
    await session.use(keyspace)
    await _provide_tables(session, keyspace)
    holder = str(uuid.uuid4())
    await _take_lock(session, holder, wait_seconds)
    try:
        # Whoever had the lock before may have died in the middle of a change.
        await session.agree()
        return await _apply(session, migrations, holder, progress)
    finally:
        await _release_lock(session, holder)


async def _apply(
    session: CassandraSession, migrations: Sequence[Migration], holder: str, progress: Callable[[Migration], None]
) -> list[Migration]:
    applied = await _applied(session)
    states = _standings(migrations, applied)
    for one in states:
        if one.state is State.CHANGED:
            raise MigrationError(
                f"{one.component} {one.number:04} {one.name} was changed after it was applied; "
                "put the file back and write a new migration"
            )
    pending = [one for one in migrations if (one.component, one.number) not in applied]
    for migration in pending:
        progress(migration)
        for statement in migration.statements:
            await _renew_lock(session, holder)
            await session.define(statement)
        now_ms = int(time.time() * 1000)
        row = (migration.component, migration.number, migration.name, migration.checksum, now_ms)
        await session.execute(_RECORD, row)
    return pending


def _standings(
    migrations: Sequence[Migration], applied: Mapping[tuple[str, int], tuple[str, str]]
) -> tuple[Standing, ...]:
    def state(migration: Migration) -> State:
        known = applied.get((migration.component, migration.number))
        if known is None:
            return State.PENDING
        return State.APPLIED if known[1] == migration.checksum else State.CHANGED

    files = {
        (one.component, one.number): Standing(one.component, one.number, one.name, state(one)) for one in migrations
    }
    newer = {key: Standing(*key, name, State.UNKNOWN) for key, (name, _) in applied.items() if key not in files}
    return tuple(one for _, one in sorted((files | newer).items()))


async def _applied(session: CassandraSession) -> dict[tuple[str, int], tuple[str, str]]:
    rows = await session.execute(_APPLIED)
    return {(component, number): (name, checksum) for component, number, name, checksum in rows}


async def _replication(session: CassandraSession, keyspace: str) -> dict[str, int] | None:
    rows = await session.execute(_KEYSPACE, (keyspace,))
    if not rows:
        return None
    options = dict(rows[0][0])
    options.pop("class", None)
    return {name: int(copies) for name, copies in options.items()}


async def _provide_keyspace(session: CassandraSession, keyspace: str, replication: Mapping[str, int]) -> None:
    """Always by a change of the schema, even if it changes nothing: what the table of keyspaces holds already, the node
    that holds it may not serve yet."""
    options = "".join(f", '{name}': {copies}" for name, copies in sorted(replication.items()))
    await session.define(
        f"CREATE KEYSPACE IF NOT EXISTS {keyspace} "
        f"WITH replication = {{'class': 'NetworkTopologyStrategy'{options}}} AND durable_writes = true"
    )
    present = await _replication(session, keyspace) or {}
    if present != dict(replication):
        have = ",".join(f"{name}:{copies}" for name, copies in sorted(present.items()))
        raise MigrationError(
            f"the keyspace {keyspace} has the replication {have or 'of another strategy'}; name that, or alter the "
            "keyspace and repair its nodes first (docs/storage-tiers.md)"
        )


async def _provide_tables(session: CassandraSession, keyspace: str) -> None:
    for name, columns in _OWN_TABLES.items():
        table_id = uuid.uuid5(_TABLES, f"{keyspace}.{name}")
        await session.define(f"CREATE TABLE IF NOT EXISTS {name} ({columns}) WITH ID = {table_id}")


async def _take_lock(session: CassandraSession, holder: str, wait_seconds: float) -> None:
    end = time.monotonic() + wait_seconds
    while not await _conditional(session, _TAKE, (holder,), holder):
        if time.monotonic() > end:
            raise CassandraUnavailable(f"another process has been migrating for {wait_seconds:g} s; try again later")
        await asyncio.sleep(_POLL_SECONDS)


async def _renew_lock(session: CassandraSession, holder: str) -> None:
    if not await _conditional(session, _RENEW, (holder, holder), holder):
        raise CassandraUnavailable("the lock of the schema expired while this process worked; run it again")


async def _conditional(session: CassandraSession, statement: Statement, values: tuple[str, ...], holder: str) -> bool:
    """Whether `holder` has the lock after the conditional write, also where its own outcome is unknown."""
    try:
        if (await session.execute(statement, values))[0][0]:
            return True
    except OutcomeUnknown:
        pass
    rows = await session.execute(_HOLDER, serial=True)
    return bool(rows) and rows[0][0] == holder


async def _release_lock(session: CassandraSession, holder: str) -> None:
    release: Awaitable[object] = session.execute(_RELEASE, (holder,))
    try:
        await asyncio.shield(asyncio.ensure_future(release))
    except CassandraUnavailable:
        # It expires by itself.
        return

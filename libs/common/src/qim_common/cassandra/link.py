"""Cassandra for a service that starts, and goes on, while Cassandra is down.

A session needs a cluster that answers when it is made; after that the driver itself finds nodes that come back. The
link makes that session in the background, again and again, and until then every request is refused at once as
unavailable. What no waiting mends (a wrong login, tables that were not migrated) is logged as an error, and tried again
as well: it may be mended on the other side.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

from qim_common.backoff import Backoff
from qim_common.cassandra.errors import CassandraRefused, CassandraUnavailable
from qim_common.cassandra.migrate import require_migrated
from qim_common.cassandra.migrations import installed_migrations
from qim_common.cassandra.session import CassandraSession, Row, Statement, Value
from qim_common.cassandra.settings import CassandraSettings
from qim_common.telemetry.metrics import CassandraMetrics
from qim_common.telemetry.standing import Standing

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 5.0
_NAME: Final = "Cassandra"


class CassandraRequests(Protocol):
    """What a backend asks of Cassandra: a session, or a link that has one or not. Methods as `CassandraSession`'s."""

    async def prepare(self, *statements: Statement) -> None:
        """Prepare statements before their first use."""
        ...

    async def execute(self, statement: Statement, values: Sequence[Value] = (), *, serial: bool = False) -> list[Row]:
        """Execute it and return all rows. Raises CassandraUnavailable, OutcomeUnknown."""
        ...

    def pages(
        self, statement: Statement, values: Sequence[Value] = (), *, serial: bool = False
    ) -> AsyncIterator[list[Row]]:
        """The rows page by page. Raises as `execute`."""
        ...

    async def batch(self, statement: Statement, rows: Sequence[Sequence[Value]]) -> None:
        """Execute a write for rows of one partition. Raises as `execute`."""
        ...

    async def batch_packed(self, statement: Statement, rows: Sequence[Sequence[bytes]]) -> None:
        """The same with values as the protocol has them. Raises as `execute`."""
        ...


class CassandraLink:
    """A `CassandraRequests` that is connected in the background. Make it after any fork; `start` it, and `close` it.

    Args:
        settings: of the cluster and keyspace.
        metrics: of the process.
        component: whose tables must be there in this release's form, `writer` or `session`; its package is installed.
        statements: prepared before the link is used.

    Raises MigrationError where the component's package is missing or its files are not in order.
    """

    def __init__(
        self,
        settings: CassandraSettings,
        metrics: CassandraMetrics,
        *,
        component: str,
        statements: Sequence[Statement] = (),
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._migrations = installed_migrations((component,))
        self._statements = list(statements)
        self._session: CassandraSession | None = None
        self._connected = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None
        self._why_down = "start() was not called"
        self._closed = False
        self._unavailable = Standing(_log, f"connected, keyspace {settings.cassandra_keyspace}")
        self._refused = Standing(_log, "no longer so", level=logging.ERROR)

    @property
    def connected(self) -> bool:
        """Whether requests are sent; whether a node answers them is another matter."""
        return self._session is not None

    def start(self) -> None:
        """Begin to connect. Raises RuntimeError when it was started before."""
        if self._connecting is not None or self._closed:
            raise RuntimeError("the link to Cassandra was started before")
        self._why_down = "not connected yet"
        self._connecting = asyncio.create_task(self._connect(), name="cassandra link")

    async def wait(self) -> None:
        """Until it is connected; for ever where nothing answers."""
        await self._connected.wait()

    async def close(self) -> None:
        """End it, also while it connects; requests in flight, and all later ones, fail as unavailable."""
        self._closed, self._why_down = True, "closed"
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
            await asyncio.wait([connecting])
        session, self._session = self._session, None
        self._metrics.connected.set(0)
        if session is not None:
            await session.close()

    async def prepare(self, *statements: Statement) -> None:
        """Prepare them now where it is connected, and in any case before it is. Raises CassandraUnavailable."""
        self._statements += [statement for statement in statements if statement not in self._statements]
        if self._session is not None:
            await self._session.prepare(*statements)

    async def execute(self, statement: Statement, values: Sequence[Value] = (), *, serial: bool = False) -> list[Row]:
        """As `CassandraSession.execute`; CassandraUnavailable at once while it is not connected."""
        return await self._now(statement).execute(statement, values, serial=serial)

    async def pages(
        self, statement: Statement, values: Sequence[Value] = (), *, serial: bool = False
    ) -> AsyncIterator[list[Row]]:
        """As `CassandraSession.pages`; CassandraUnavailable at once while it is not connected."""
        async for rows in self._now(statement).pages(statement, values, serial=serial):
            yield rows

    async def batch(self, statement: Statement, rows: Sequence[Sequence[Value]]) -> None:
        """As `CassandraSession.batch`; CassandraUnavailable at once while it is not connected."""
        await self._now(statement).batch(statement, rows)

    async def batch_packed(self, statement: Statement, rows: Sequence[Sequence[bytes]]) -> None:
        """As `CassandraSession.batch_packed`; CassandraUnavailable at once while it is not connected."""
        await self._now(statement).batch_packed(statement, rows)

    def _now(self, statement: Statement) -> CassandraSession:
        if self._session is None:
            raise CassandraUnavailable(f"{statement.name}: {self._why_down}")
        return self._session

    async def _connect(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                self._session = await self._usable_session()
            except Exception as error:  # noqa: BLE001  whatever it is, the service goes on without
                self._failed(error)
            else:
                self._metrics.connected.set(1)
                self._connected.set()
                if not self._unavailable.over(_NAME):
                    _log.info("connected to Cassandra, keyspace %s", self._settings.cassandra_keyspace)
                self._refused.over(_NAME)
                return
            await backoff.sleep()

    async def _usable_session(self) -> CassandraSession:
        session = await CassandraSession.connect(self._settings, self._metrics)
        try:
            await require_migrated(session, self._migrations)
            # More may be asked for while the first ones are prepared.
            prepared = 0
            while prepared < len(self._statements):
                due = self._statements[prepared:]
                await session.prepare(*due)
                prepared += len(due)
        except BaseException:
            await session.close()
            raise
        return session

    def _failed(self, error: Exception) -> None:
        self._why_down = f"not connected: {error}"
        if isinstance(error, CassandraUnavailable):
            self._refused.over(_NAME)
            self._unavailable.holds(_NAME, f"not reachable: {error}; trying again")
            return
        known = isinstance(error, CassandraRefused)
        self._refused.holds(_NAME, f"cannot be used: {error}; trying again", None if known else error)

"""The one session of a process: the driver's threads on one side, the event loop on the other.

The driver answers on a thread of its own. Its answers are put on a list, and the loop is woken once for all that came
since it last looked (`call_soon_threadsafe` is the only thing called from there). Requests in flight are bounded: who
comes above the bound waits, in order. A caller who gives up leaves the request in flight, and counted, until its end.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

from cassandra import AuthenticationFailed, DriverException
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, NoHostAvailable, ResultSet, Session
from cassandra.query import BatchStatement, BatchType, PreparedStatement

from qim_common.cassandra.errors import CassandraRefused, CassandraUnavailable, error_of
from qim_common.cassandra.policies import SERIAL_READ, execution_profiles
from qim_common.cassandra.settings import CassandraSettings
from qim_common.telemetry.metrics import CassandraMetrics

Value: TypeAlias = int | bytes | str | bool | Sequence["Value"] | None
Row: TypeAlias = tuple[Any, ...]

FETCH_SIZE: Final = 1000
"""Rows of one page between a node and the driver, by default; a read that has more takes several."""

BATCH_MAX_ROWS: Final = 200
BATCH_MAX_BYTES: Final = 256 * 1024
"""Bounds of one batch: larger ones press on a node's heap, and gain nothing."""

_DDL_SECONDS: Final = 60.0
_HEARTBEAT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Statement:
    """One prepared statement of the program.

    `name` is its label in metrics and logs. `idempotent`: repeating it, also later than others, does no harm; a
    conditional statement (LWT) never is. `fetch_size`: rows of one page between a node and the driver.
    """

    name: str
    cql: str
    idempotent: bool = True
    fetch_size: int = FETCH_SIZE

    @property
    def changes(self) -> bool:
        """Whether it is a write."""
        return not self.cql.startswith("SELECT")


class _Request:
    """One request in flight: what the driver's thread notes, and the future that waits on the loop's side."""

    __slots__ = ("begun", "ended", "error", "future", "paging_state", "response", "rows", "statement")

    def __init__(self, statement: Statement, future: asyncio.Future[list[Row]]) -> None:
        self.statement = statement
        self.future = future
        self.begun = time.perf_counter()
        self.ended = False
        self.rows: list[Row] | None = None
        self.error: BaseException | None = None
        self.response: Any = None
        self.paging_state: bytes | None = None


class CassandraSession:
    """The session; make it with `connect`, after any fork, and end it with `close`."""

    def __init__(
        self, cluster: Cluster, session: Session, settings: CassandraSettings, metrics: CassandraMetrics
    ) -> None:
        self._cluster = cluster
        self._session = session
        self._settings = settings
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(settings.cassandra_max_in_flight)
        self._ended: deque[_Request] = deque()
        self._woken = False
        self._prepared: dict[Statement, PreparedStatement] = {}
        self._preparing = asyncio.Lock()
        self._process = os.getpid()

    @classmethod
    async def connect(
        cls, settings: CassandraSettings, metrics: CassandraMetrics, *, keyspace: str | None = None
    ) -> Self:
        """A session on `keyspace` (default: the configured one; empty: none, to create it).

        Raises:
            CassandraUnavailable: no node answers.
            CassandraRefused: libev is missing, or login, certificates, data centre or keyspace are not right.
        """
        try:
            # Without it the driver falls back to asyncore, which is slow and gone in Python 3.12.
            from cassandra.io.libevreactor import LibevConnection
        except ImportError as error:
            raise CassandraRefused(
                f"the Cassandra driver has no libev: {error}; install a wheel of cassandra-driver that has it"
            ) from None
        name = settings.cassandra_keyspace if keyspace is None else keyspace
        cluster = _cluster(settings, LibevConnection)
        try:
            session = await asyncio.to_thread(cluster.connect, name or None)
        except asyncio.CancelledError:
            cluster.shutdown()
            raise
        except Exception as error:  # noqa: BLE001  the driver raises many kinds; they are told apart there
            await asyncio.to_thread(cluster.shutdown)
            raise _refusal(error, cluster, settings, name) from None
        return cls(cluster, session, settings, metrics)

    @property
    def settings(self) -> CassandraSettings:
        """What it was connected with."""
        return self._settings

    async def close(self) -> None:
        """End the connections; requests in flight fail as unavailable."""
        await asyncio.to_thread(self._cluster.shutdown)

    async def execute(self, statement: Statement, values: Sequence[Value] = (), *, serial: bool = False) -> list[Row]:
        """Execute it and return all rows, as tuples in the order of its columns.

        `serial`: read at SERIAL, after a conditional write whose outcome is unknown.

        Raises:
            CassandraUnavailable: nothing was changed.
            OutcomeUnknown: a change that may have been applied.
        """
        found: list[Row] = []
        async for rows in self.pages(statement, values, serial=serial):
            found += rows
        return found

    async def pages(
        self, statement: Statement, values: Sequence[Value] = (), *, serial: bool = False
    ) -> AsyncIterator[list[Row]]:
        """The same, page by page, for a read that may have more than fits in memory."""
        bound = (await self._prepare(statement)).bind(values)
        profile = SERIAL_READ if serial else EXEC_PROFILE_DEFAULT
        rows, paging_state = await self._send(statement, bound, profile, None)
        yield rows
        while paging_state is not None:
            rows, paging_state = await self._send(statement, bound, profile, paging_state)
            yield rows

    async def batch(self, statement: Statement, rows: Sequence[Sequence[Value]]) -> None:
        """Execute a write for each of `rows`, all of one partition, as one unlogged batch: a node applies all or none.

        At most BATCH_MAX_ROWS rows; the caller keeps to BATCH_MAX_BYTES. Raises as `execute`.
        """
        if len(rows) > BATCH_MAX_ROWS:
            raise ValueError(f"a batch has at most {BATCH_MAX_ROWS} rows, not {len(rows)}")
        prepared = await self._prepare(statement)
        if len(rows) == 1:
            await self._send(statement, prepared.bind(rows[0]), EXEC_PROFILE_DEFAULT, None)
            return
        batch = BatchStatement(BatchType.UNLOGGED)
        for values in rows:
            batch.add(prepared, values)
        batch.is_idempotent = statement.idempotent
        await self._send(statement, batch, EXEC_PROFILE_DEFAULT, None)

    async def define(self, cql: str) -> None:
        """Execute a change of the schema, and wait until all nodes that live have it.

        Raises:
            OutcomeUnknown: it may have been applied.
            CassandraUnavailable: the nodes do not agree on the schema.
        """

        def work() -> bool:
            agreed: bool = self._session.execute(cql, timeout=_DDL_SECONDS).response_future.is_schema_agreed
            return agreed

        try:
            agreed = await asyncio.to_thread(work)
        except (DriverException, NoHostAvailable) as error:
            raise error_of(error, "schema", changes=True) from error
        if not agreed:
            raise CassandraUnavailable("the nodes do not agree on the schema; is one of them down?")

    async def use(self, keyspace: str) -> None:
        """Go on in another keyspace; statements prepared before are forgotten."""
        await asyncio.to_thread(self._session.set_keyspace, keyspace)
        self._prepared.clear()

    async def _prepare(self, statement: Statement) -> PreparedStatement:
        known = self._prepared.get(statement)
        if known is not None:
            return known
        if os.getpid() != self._process:
            raise RuntimeError("a Cassandra session does not live through a fork; connect after it")
        async with self._preparing:
            if statement not in self._prepared:
                try:
                    prepared = await asyncio.to_thread(self._session.prepare, statement.cql)
                except Exception as error:
                    raise error_of(error, statement.name, changes=False) from error
                prepared.is_idempotent = statement.idempotent
                prepared.fetch_size = statement.fetch_size
                self._prepared[statement] = prepared
        return self._prepared[statement]

    async def _send(
        self, statement: Statement, query: Any, profile: object, paging_state: bytes | None
    ) -> tuple[list[Row], bytes | None]:
        await self._slots.acquire()
        request = _Request(statement, self._loop.create_future())
        self._metrics.in_flight.inc()
        try:
            request.response = self._session.execute_async(query, execution_profile=profile, paging_state=paging_state)
            request.response.add_callbacks(
                self._answered, self._failed, callback_args=(request,), errback_args=(request,)
            )
        except Exception as error:
            self._settle(request, error)
            raise error_of(error, statement.name, changes=statement.changes) from error
        rows = await request.future
        return rows, request.paging_state

    def _answered(self, rows: list[Row] | None, request: _Request) -> None:
        """On the driver's thread."""
        request.rows = rows
        if not request.statement.changes:
            request.paging_state = ResultSet(request.response, []).paging_state
        self._wake(request)

    def _failed(self, error: BaseException, request: _Request) -> None:
        """On the driver's thread."""
        request.error = error
        self._wake(request)

    def _wake(self, request: _Request) -> None:
        self._ended.append(request)
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._collect)
            except RuntimeError:
                # The loop is closed: nobody waits any more.
                self._ended.clear()

    def _collect(self) -> None:
        # Cleared first: what is put on the list from now on wakes the loop again.
        self._woken = False
        while self._ended:
            request = self._ended.popleft()
            self._settle(request, request.error)

    def _settle(self, request: _Request, error: BaseException | None) -> None:
        # A statement that was sent to two nodes may be answered twice.
        if request.ended:
            return
        request.ended = True
        self._slots.release()
        self._metrics.in_flight.dec()
        outcome = "ok" if error is None else type(error).__name__
        self._metrics.observe(request.statement.name, outcome, time.perf_counter() - request.begun)
        if request.future.done():
            return
        if error is None:
            request.future.set_result(request.rows or [])
        else:
            request.future.set_exception(error_of(error, request.statement.name, changes=request.statement.changes))


def _cluster(settings: CassandraSettings, connection_class: type) -> Cluster:
    auth = None
    try:
        if settings.cassandra_username:
            auth = PlainTextAuthProvider(settings.cassandra_username, settings.password())
        context = settings.ssl_context()
    except (OSError, ssl.SSLError, ValueError) as error:
        raise CassandraRefused(f"a file of QIM_CASSANDRA_* cannot be taken: {error}") from None
    return Cluster(
        contact_points=settings.endpoints,
        execution_profiles=execution_profiles(settings),
        connection_class=connection_class,
        auth_provider=auth,
        ssl_context=context,
        connect_timeout=settings.cassandra_timeout_seconds,
        control_connection_timeout=settings.cassandra_timeout_seconds,
        idle_heartbeat_interval=_HEARTBEAT_SECONDS,
        idle_heartbeat_timeout=_HEARTBEAT_SECONDS,
        application_name="qim",
        monitor_reporting_enabled=False,
    )


def _refusal(error: BaseException, cluster: Cluster, settings: CassandraSettings, keyspace: str) -> BaseException:
    """Why there is no session: what the operator has to change, or that nobody answers."""
    if isinstance(error, NoHostAvailable):
        causes = list(error.errors.values()) if isinstance(error.errors, dict) else []
        if any(isinstance(cause, AuthenticationFailed) for cause in causes):
            return CassandraRefused("Cassandra refused the login; check QIM_CASSANDRA_USERNAME and its password file")
        found = sorted({host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter})
        if found and settings.cassandra_local_dc not in found:
            return CassandraRefused(
                f"QIM_CASSANDRA_LOCAL_DC: no node is in {settings.cassandra_local_dc}; there are {', '.join(found)}"
            )
        return CassandraUnavailable(f"no node of Cassandra answers: {error}")
    if isinstance(error, DriverException) and keyspace and f"'{keyspace}' does not exist" in str(error).lower():
        return CassandraRefused(f"Cassandra has no keyspace {keyspace}; run `qimctl schema migrate` first")
    return error_of(error, "connect", changes=False)

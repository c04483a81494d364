"""The one session of a process: the driver's threads on one side, the event loop on the other.

The driver answers on a thread of its own. Its answers are put on a list, and the loop is woken once for all that came
since it last looked (`call_soon_threadsafe` is the only thing called from there). Requests in flight are bounded: who
comes above the bound waits, in order. A caller who gives up leaves the request in flight, and counted, until its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

from cassandra import DriverException, OperationTimedOut
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, NoHostAvailable, ResultSet, Session
from cassandra.pool import Host
from cassandra.query import BatchStatement, BatchType, PreparedStatement

from qim_common.cassandra.connecting import connect, make_cluster, refusal
from qim_common.cassandra.errors import CassandraUnavailable, error_of
from qim_common.cassandra.policies import SERIAL_READ
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
_AGREEMENT_SECONDS: Final = 30.0
_AGREEMENT_PAUSE_SECONDS: Final = 0.1
_VERSION: Final = "SELECT schema_version FROM system.local WHERE key = 'local'"
_PREPARE_ATTEMPTS: Final = 3


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


def _routing_key(components: Sequence[bytes]) -> bytes | None:
    """The partition key as nodes hash it, of its columns' values; None where it is not known."""
    if len(components) < 2:
        return components[0] if components else None
    return b"".join(struct.pack(f">H{len(part)}sB", len(part), part, 0) for part in components)


def _retrieved(ended: asyncio.Future[Session]) -> None:
    """Of a connecting that nobody waits for: what becomes of it is nobody's concern."""
    if not ended.cancelled():
        ended.exception()


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
        name = settings.cassandra_keyspace if keyspace is None else keyspace
        cluster = make_cluster(settings)
        connecting = asyncio.ensure_future(asyncio.to_thread(connect, cluster, name))
        try:
            session = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # The thread that connects holds the cluster's lock for as long as a timeout: the loop must not wait for it.
            connecting.add_done_callback(_retrieved)
            threading.Thread(target=cluster.shutdown, daemon=True).start()
            raise
        except Exception as error:  # noqa: BLE001  the driver raises many kinds; they are told apart there
            await asyncio.to_thread(cluster.shutdown)
            raise refusal(error, cluster, settings) from None
        return cls(cluster, session, settings, metrics)

    @property
    def settings(self) -> CassandraSettings:
        """What it was connected with."""
        return self._settings

    async def close(self) -> None:
        """End the connections; requests in flight fail as unavailable."""
        await asyncio.to_thread(self._cluster.shutdown)

    async def prepare(self, *statements: Statement) -> None:
        """Prepare statements before their first use, at a service's start. Raises CassandraUnavailable."""
        for statement in statements:
            await self._prepare(statement)

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

    async def batch_packed(self, statement: Statement, rows: Sequence[Sequence[bytes]]) -> None:
        """As `batch`, with every value as the protocol has it: a bigint is 8 bytes, a blob itself.

        Binding a row costs the driver 6 µs, which is more than all the rest of it."""
        if not 1 <= len(rows) <= BATCH_MAX_ROWS:
            raise ValueError(f"a batch has 1 to {BATCH_MAX_ROWS} rows, not {len(rows)}")
        prepared = await self._prepare(statement)
        batch = BatchStatement(BatchType.UNLOGGED)
        query_id = prepared.query_id
        batch._statements_and_parameters = [(True, query_id, values) for values in rows]
        batch.keyspace = prepared.keyspace
        batch.routing_key = _routing_key([rows[0][index] for index in prepared.routing_key_indexes or ()])
        batch.is_idempotent = statement.idempotent
        await self._send(statement, batch, EXEC_PROFILE_DEFAULT, None)

    async def define(self, cql: str) -> None:
        """Execute a change of the schema, and wait until all nodes that live have it.

        Raises:
            OutcomeUnknown: it may have been applied.
            CassandraUnavailable: the nodes do not agree on the schema.
        """

        try:
            await asyncio.to_thread(self._session.execute, cql, timeout=_DDL_SECONDS)
        except (DriverException, NoHostAvailable) as error:
            raise error_of(error, "schema", changes=True) from error
        await self.agree()

    async def agree(self) -> None:
        """Wait until all nodes that are connected have the same schema, asking each itself.

        The driver asks one node what it knows of the others: a node that has not heard of a change takes the old
        version for everybody's. Raises CassandraUnavailable where they do not agree in time."""
        end = time.monotonic() + _AGREEMENT_SECONDS
        while len(await self._schema_versions()) != 1:
            if time.monotonic() > end:
                raise CassandraUnavailable("the nodes do not agree on the schema; does one of them hang?")
            await asyncio.sleep(_AGREEMENT_PAUSE_SECONDS)

    async def _schema_versions(self) -> set[object]:
        """The versions that the nodes tell; one that does not answer has one of its own."""

        def ask(host: Host) -> object:
            try:
                return self._session.execute(_VERSION, host=host).one()[0]
            except (DriverException, NoHostAvailable):
                return host

        hosts = [pool.host for pool in self._session.get_pools() if not pool.is_shutdown]
        return set(await asyncio.gather(*(asyncio.to_thread(ask, host) for host in hosts)))

    async def use(self, keyspace: str) -> None:
        """Go on in another keyspace, which exists; statements prepared before are forgotten.

        Raises CassandraUnavailable where the nodes do not agree on the schema."""
        await self.agree()
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
                    prepared = await asyncio.to_thread(self._prepare_somewhere, statement.cql)
                except Exception as error:
                    raise error_of(error, statement.name, changes=False) from error
                prepared.is_idempotent = statement.idempotent
                prepared.fetch_size = statement.fetch_size
                self._prepared[statement] = prepared
        return self._prepared[statement]

    def _prepare_somewhere(self, cql: str) -> PreparedStatement:
        """Blocks. The driver asks one node, each time another, and that one may hang."""
        for _ in range(_PREPARE_ATTEMPTS - 1):
            with contextlib.suppress(OperationTimedOut):
                return self._session.prepare(cql)
        return self._session.prepare(cql)

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

"""The writer's commands on Redis with a real archive behind it, and the archiver's part, step by step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
import pytest_asyncio
from tests.integration.writer_retention.conftest import Clock, Keeper
from tests.support.chat import TENANT, Chat
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.cassandra import CassandraRequests, CassandraSession, CassandraUnavailable, Row, Statement, Value
from qim_common.ids import ConversationId
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.backends.redis.archive_removals import RedisArchiveRemovals
from qim_writer.backends.redis.eviction import RedisHotRecords
from qim_writer.backends.redis.group_state import RedisGroupStateStore
from qim_writer.backends.tiered import TieredMessageStore
from qim_writer.commands.archive_removal import ArchiveRemoval
from qim_writer.commands.delivered import DeliveredPages
from qim_writer.commands.explain import Explain
from qim_writer.commands.group_state import GroupState
from qim_writer.commands.retention_run import RetentionRuns
from qim_writer.commands.states import PersonStates
from qim_writer.commands.trimming import MS_PER_DAY, Retention, Trimmer
from qim_writer.domain.seq_buckets import SEQS_PER_BUCKET
from qim_writer.storage_archive import ArchiveRow

_BUCKETS = 4
ANY_AGE_MS = -(10**12)
"""Everything is older than this, whatever its time."""


class CuttableCassandra:
    """The real session, until it is `down`: then it answers as a link without a connection. `asked` counts requests;
    with `answers_left` it goes down by itself, and what is executed waits until it `flows`."""

    def __init__(self, session: CassandraSession) -> None:
        self._session = session
        self.down = False
        self.asked = 0
        self.answers_left: int | None = None
        self.flows = asyncio.Event()
        self.flows.set()

    def _ask(self, statement: Statement) -> None:
        if self.answers_left is not None:
            self.down = self.down or self.answers_left == 0
            self.answers_left -= 1
        if self.down:
            raise CassandraUnavailable(f"{statement.name}: cut")
        self.asked += 1

    async def prepare(self, *statements: Statement) -> None:
        """As CassandraRequests."""
        await self._session.prepare(*statements)

    async def execute(self, statement: Statement, values: Sequence[Value] = (), *, serial: bool = False) -> list[Row]:
        """As CassandraRequests."""
        self._ask(statement)
        await self.flows.wait()
        return await self._session.execute(statement, values, serial=serial)

    async def pages(
        self, statement: Statement, values: Sequence[Value] = (), *, serial: bool = False
    ) -> AsyncIterator[list[Row]]:
        """As CassandraRequests."""
        self._ask(statement)
        async for rows in self._session.pages(statement, values, serial=serial):
            yield rows

    async def batch(self, statement: Statement, rows: Sequence[Sequence[Value]]) -> None:
        """As CassandraRequests."""
        self._ask(statement)
        await self._session.batch(statement, rows)

    async def batch_packed(self, statement: Statement, rows: Sequence[Sequence[bytes]]) -> None:
        """As CassandraRequests."""
        self._ask(statement)
        await self._session.batch_packed(statement, rows)


def archive_of(requests: CassandraRequests) -> CassandraArchive:
    """The archive of the stores' installation."""
    return CassandraArchive(requests, installation_id="tests", buckets=_BUCKETS)


@dataclass
class TieredKeeper(Keeper):
    """A writer on the backend tiered, and an archiver that does what the test says. To the removal from the archive all
    that is committed now is two days old, beyond the answers of requests."""

    cassandra: CuttableCassandra = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        store = self.stores.store
        self.archive = archive_of(self.cassandra)
        self.states = RedisGroupStateStore(store, archive_bucket=SEQS_PER_BUCKET)
        self.removals = RedisArchiveRemovals(store)
        self.removal_clock = Clock(int(time.time() * 1000) + 2 * MS_PER_DAY)
        self.removal = ArchiveRemoval(self.archive, self.removals, clock=self.removal_clock.seconds)
        self.trimmer = Trimmer(self.states, _BUCKETS, self.removal, soon_seconds=0.1)
        self.groups = GroupState(self.stores.membership, self.states, self.trimmer, self.chat.limits)
        self.people = PersonStates(self.stores.membership, self.stores.messages)
        self.delivered = DeliveredPages(self.stores.membership, self.stores.messages)
        self.explain = Explain(self.stores.membership, self.stores.messages, self.states, self.chat.tokens)
        self.retention = Retention(
            self.states,
            self.trimmer,
            _BUCKETS,
            interval_seconds=3600,
            clock=self.clock.seconds,
            elapsed=self.clock.elapsed,
        )
        self.runs = RetentionRuns(self.states, self.retention, self.removals, self.chat.tokens, _BUCKETS)
        self.hot = RedisHotRecords(store.instances[0], store.topology)

    async def archive_all(self, group: ConversationId) -> None:
        """The archiver has caught up: everything that is in Redis is in the archive too."""
        keys = self.stores.keys(group)
        records = await self.stores.hash(keys.msgrec)
        rows = [ArchiveRow(int(seq), record) for seq, record in records.items()]
        await self.archive.append(self.chat.of(group), sorted(rows, key=lambda row: row.seq))
        await self.note_archived(group)

    async def note_archived(self, group: ConversationId) -> None:
        """The archiver notes everything as archived, messages and changes."""
        keys = self.stores.keys(group)
        head = await self.stores.call("GET", keys.msgcseq) or 0
        await self.stores.call("HSET", keys.grpmeta, "aseq", head, "arev", await self.meta(group, "revision"))

    async def evict(self, group: ConversationId, *, older_than_ms: int = ANY_AGE_MS) -> int:
        """All records that may leave Redis do; how many did."""
        removed, more = 0, True
        while more:
            step = await self.hot.evict(self.chat.of(group), older_than_ms)
            removed, more = removed + step.records, step.more
        return removed

    async def cool(self, group: ConversationId) -> int:
        """Archived, and out of Redis as far as may be."""
        await self.archive_all(group)
        return await self.evict(group)

    async def archived(self, group: ConversationId, upto: int) -> list[int]:
        """The seqs that the archive has, whoever may read them."""
        found: list[int] = []
        for first in range(1, upto + 1, SEQS_PER_BUCKET):
            last = min(first + SEQS_PER_BUCKET - 1, upto)
            found += [record.seq for record in await self.archive.page(self.chat.of(group), first, last, 1000)]
        return found

    async def meta(self, group: ConversationId, name: str) -> int:
        """A number of the group's."""
        return int(await self.stores.call("HGET", self.stores.keys(group).grpmeta, name) or 0)

    async def open_removal(self, group: ConversationId) -> bool:
        """Whether something at or below the floor may still be there."""
        bucket = self.stores.store.place(TENANT, group).bucket
        return self.chat.of(group) in await self.states.untrimmed_groups(bucket)


@pytest.fixture
def cuttable(cassandra_session: CassandraSession) -> CuttableCassandra:
    """The shared cluster, which this test may be cut off from."""
    return CuttableCassandra(cassandra_session)


@pytest_asyncio.fixture
async def stores(valkey_session: ValkeyServer, cuttable: CuttableCassandra) -> AsyncIterator[RedisStores]:
    """Stores on an empty server, with the archive behind them."""
    async with redis_stores(valkey_session, buckets=_BUCKETS) as opened:
        await opened.begin_archive()
        yield replace(opened, messages=TieredMessageStore(opened.store, archive_of(cuttable)))


@pytest.fixture
def chat(stores: RedisStores) -> Chat:
    """The writer's commands."""
    return Chat(stores)


@pytest.fixture
def keeper(chat: Chat, stores: RedisStores, cuttable: CuttableCassandra) -> TieredKeeper:
    """The writer."""
    return TieredKeeper(chat, stores, Clock(), cassandra=cuttable)

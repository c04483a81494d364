"""A session store on a real Valkey, with Cassandra behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest_asyncio
from tests.integration.session.conftest import Store, close_store, open_store

from qim_common.cassandra import CassandraSession
from qim_common.errors import BackendUnavailable
from qim_common.idempotency import IdempotencyKey
from qim_common.identity import Actor
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, uuid7
from qim_devkit.valkey import ValkeyServer
from qim_session.backends.cassandra_marks import CassandraMarks
from qim_session.backends.redis_flags import RedisFlags
from qim_session.backends.redis_marks import RedisMarkRestore, RedisUnflushedMarks
from qim_session.backends.redis_people import RedisPeople
from qim_session.commands.restore_marks import RestoreMarks
from qim_session.commands.write_behind import MarkFlusher
from qim_session.domain.cursors import Cursor
from qim_session.domain.flags import FlagsChange
from qim_session.domain.written_behind import Mark
from qim_session.storage.cursors import Marks

PHONE, LAPTOP = DeviceId(b"p" * 16), DeviceId(b"l" * 16)


@pytest_asyncio.fixture
async def store(valkey_session: ValkeyServer) -> AsyncIterator[Store]:
    """A store on the shared server, which the test leaves running."""
    opened = await open_store(valkey_session)
    yield opened
    await close_store(opened)


class Archive(CassandraMarks):
    """Cassandra, as a flusher meets it that dies, or that is cut off.

    Attributes:
        refuses: nothing is written any more.
        dies_after: as many batches are written, and the answer to the next one never comes.
    """

    refuses = False
    dies_after: int | None = None

    async def write(self, marks: Sequence[Mark]) -> None:
        if self.refuses:
            raise BackendUnavailable
        await super().write(marks)
        if self.dies_after is not None:
            if self.dies_after == 0:
                raise BackendUnavailable
            self.dies_after -= 1


@dataclass
class People:
    """What people set in the store, what is written of it, and how it comes back."""

    store: Store
    tenant: TenantId
    archive: Archive
    people: RedisPeople
    flags: RedisFlags
    restore: RestoreMarks

    def flusher(self) -> MarkFlusher:
        """A flusher as another process would have it."""
        unflushed = RedisUnflushedMarks(self.store.instance)
        return MarkFlusher(unflushed, self.archive, self.store.metrics, instance=0, partitions=8)

    def actor(self, user: UserId, device: DeviceId = PHONE) -> Actor:
        """Somebody of the test's own tenant, which keeps its rows apart."""
        return Actor(self.tenant, user, device)

    async def read(self, user: UserId, conversation: ConversationId, cursor: Cursor) -> None:
        """Read up to there."""
        await self.people.advance_read(self.actor(user), conversation, cursor)

    async def received(self, user: UserId, device: DeviceId, cursors: Mapping[ConversationId, Cursor]) -> None:
        """Acknowledge up to there."""
        await self.people.advance_device(self.tenant, user, device, cursors)

    async def set(self, user: UserId, conversation: ConversationId, **wanted: bool) -> None:
        """Hide or mute."""
        change = FlagsChange(hidden=None, muted=None, generation=0, newest_seq=5, still_hidden=False)
        request = uuid7()
        key = IdempotencyKey(request, bytes(8), 0)
        await self.flags.change(self.actor(user), conversation, replace(change, **wanted), key)

    async def unflushed(self) -> int:
        """How much is still to be written."""
        return await RedisUnflushedMarks(self.store.instance).count()

    async def sights(
        self, user: UserId, conversations: Sequence[ConversationId]
    ) -> tuple[dict[ConversationId, Marks], list[dict[ConversationId, Cursor]]]:
        """Everything that the store says of a person."""
        marks = await self.people.marks(self.tenant, user, conversations)
        devices = [await self.people.device(self.tenant, user, device, conversations) for device in (PHONE, LAPTOP)]
        return marks, devices


@pytest_asyncio.fixture
async def people(store: Store, cassandra_session: CassandraSession, tenant: TenantId) -> People:
    """Nobody has set anything yet."""
    archive = Archive(cassandra_session)
    return People(
        store=store,
        tenant=tenant,
        archive=archive,
        people=RedisPeople([store.instance], store.topology, written_behind=True),
        flags=RedisFlags([store.instance], store.topology, written_behind=True),
        restore=RestoreMarks(archive, RedisMarkRestore([store.instance], store.topology)),
    )

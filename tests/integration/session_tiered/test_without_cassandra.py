"""While Cassandra is away: registrations wait, lists go on, and who has to be rebuilt is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from tests.integration.session.conftest import Store, until
from tests.integration.session.living import Owner
from tests.support.dispatch import group, user

from qim_common.cassandra import CassandraLink, CassandraSession, CassandraSettings
from qim_common.errors import BackendUnavailable
from qim_common.ids import TenantId
from qim_common.keys import PersonKeys
from qim_common.telemetry.metrics import CassandraMetrics
from qim_session.backends.cassandra_marks import CassandraMarks
from qim_session.backends.cassandra_sets import CassandraConversationSets
from qim_session.backends.redis_marks import RedisMarkRestore
from qim_session.backends.redis_memlog import RedisMemberLog
from qim_session.backends.redis_rebuild import RedisListRestore
from qim_session.commands.memlog import MemlogRegistrar
from qim_session.commands.rebuild import Rebuild
from qim_session.commands.register import Registrar
from qim_session.commands.restore_marks import RestoreMarks
from qim_session.domain.entries import ProjectionEntry
from qim_session.storage.projection import ConversationSets

pytestmark = pytest.mark.server
A, B = group(1), group(2)
ANA, BEN = user(1), user(2)


@pytest_asyncio.fixture
async def away() -> AsyncIterator[CassandraLink]:
    """A link to where nothing answers."""
    settings = CassandraSettings.model_validate({"cassandra_contact_points": "127.0.0.1:9"})
    link = CassandraLink(settings, CassandraMetrics(CollectorRegistry()), component="session")
    link.start()
    yield link
    await link.close()


@asynccontextmanager
async def at_work(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one) for one in work]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def registrars(store: Store, sets: ConversationSets) -> tuple[Registrar, MemlogRegistrar]:
    members = MemlogRegistrar(RedisMemberLog(store.instance, range(8)), sets, store.metrics)
    members.hold(range(8))
    return Registrar(store.projection, sets, store.metrics), members


async def memlog_entries(store: Store) -> int:
    found = await RedisMemberLog(store.instance, range(8)).oldest(range(8), count=10)
    return sum(map(len, found.values()))


async def test_what_is_to_be_registered_is_kept_and_registered_when_cassandra_is_there(
    store: Store, away: CassandraLink, cassandra_session: CassandraSession, tenant: TenantId
) -> None:
    entry = ProjectionEntry(tenant, ANA, A, 1_700_000_000_000)
    await store.projection.project([entry], None)
    await store.put_into(B, [BEN])
    waiting, members = registrars(store, CassandraConversationSets(away))
    async with at_work(waiting.run(), members.run()):

        async def refused() -> bool:
            return bool(store.metrics.conversation_state_failures._value.get() >= 4)

        await until(refused)
        assert store.metrics.conversation_state_pending._value.get() == 1, "the metric shows the wait"
    assert (await store.projection.pending(10)) == ([entry], 1)
    assert await memlog_entries(store) == 1

    sets = CassandraConversationSets(cassandra_session)
    waiting, members = registrars(store, sets)
    async with at_work(waiting.run(), members.run()):

        async def registered() -> bool:
            return await memlog_entries(store) == 0 and (await store.projection.pending(10))[1] == 0

        await until(registered)
    assert await sets.of(tenant, ANA) == [A]


async def test_a_list_whose_mark_is_current_goes_on_and_a_rebuild_is_refused_and_done_later(
    store: Store, away: CassandraLink, cassandra_session: CassandraSession, tenant: TenantId
) -> None:
    owner = Owner()
    owner.newest[A] = 3
    lists, marks = (
        RedisListRestore([store.instance], store.topology),
        RedisMarkRestore([store.instance], store.topology),
    )

    def rebuild(requests: CassandraLink | CassandraSession) -> Rebuild:
        sets = CassandraConversationSets(requests)
        pending = [Registrar(store.projection, sets, store.metrics)]
        restore = RestoreMarks(CassandraMarks(requests), marks)
        return Rebuild(lists, sets, owner, pending, store.topology, store.metrics, restore_marks=restore)

    await lists.mark(tenant, BEN, 0)
    without = rebuild(away)
    await without.ensure(tenant, BEN)
    with pytest.raises(BackendUnavailable):
        await without.ensure(tenant, ANA)
    assert (await lists.epoch(tenant, ANA))[1] is None

    await CassandraConversationSets(cassandra_session).register([ProjectionEntry(tenant, ANA, A, 1_700_000_000_000)])
    await rebuild(cassandra_session).ensure(tenant, ANA)
    keys = PersonKeys(tenant, ANA, store.topology.person_bucket(tenant, ANA))
    assert await store.instance.call("ZRANGE", keys.convs, 0, -1) == [A]

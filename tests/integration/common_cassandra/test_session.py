"""The session on real nodes: bounds, cancelled callers, conditional writes, and nodes that die or hang."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from tests.support.cassandra import opened, settings_of

from qim_common.cassandra import (
    BATCH_MAX_ROWS,
    CassandraRefused,
    CassandraSession,
    CassandraSettings,
    CassandraUnavailable,
    Statement,
    signed_tenant,
)
from qim_common.ids import TenantId
from qim_common.telemetry.metrics import CassandraMetrics
from qim_devkit.cassandra import CassandraCluster

WRITE = Statement(
    "test_write",
    "INSERT INTO conversation_flags (tenant_id, user_id, conversation_id, flags, change_count) VALUES (?, ?, ?, ?, ?)",
)
READ = Statement(
    "test_read", "SELECT conversation_id, flags FROM conversation_flags WHERE tenant_id = ? AND user_id = ?"
)
USER = b"u" * 16


def row(tenant: TenantId, number: int) -> tuple[int, bytes, bytes, int, int]:
    return signed_tenant(tenant), USER, number.to_bytes(16, "big"), number % 100, number


async def count(session: CassandraSession, tenant: TenantId) -> int:
    return len(await session.execute(READ, (signed_tenant(tenant), USER)))


async def test_more_requests_than_places_wait_and_all_are_answered(
    cassandra: CassandraCluster, cassandra_schema: CassandraSettings, tenant: TenantId
) -> None:
    registry = CollectorRegistry()
    settings = cassandra_schema.model_copy(update={"cassandra_max_in_flight": 3})
    session = await CassandraSession.connect(settings, CassandraMetrics(registry))
    most = 0

    async def write(number: int) -> None:
        nonlocal most
        await session.execute(WRITE, row(tenant, number))
        most = max(most, int(registry.get_sample_value("qim_cassandra_in_flight") or 0))

    try:
        await asyncio.gather(*(write(number) for number in range(60)))
        assert await count(session, tenant) == 60
    finally:
        await session.close()
    assert most <= 3
    assert registry.get_sample_value("qim_cassandra_in_flight") == 0
    written = {"statement": "test_write", "outcome": "ok"}
    assert registry.get_sample_value("qim_cassandra_requests_total", written) == 60


async def test_a_caller_who_gives_up_frees_the_place_only_once_the_node_has_answered(
    cassandra: CassandraCluster, cassandra_schema: CassandraSettings, tenant: TenantId
) -> None:
    settings = cassandra_schema.model_copy(update={"cassandra_max_in_flight": 1})
    async with opened(settings) as session:
        await session.execute(READ, (0, USER))
        given_up = asyncio.ensure_future(session.execute(WRITE, row(tenant, 1)))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up

        await session.execute(WRITE, row(tenant, 2))
        assert await count(session, tenant) >= 1


async def test_a_read_of_many_pages_comes_whole_and_in_order(
    cassandra_session: CassandraSession, tenant: TenantId
) -> None:
    for first in range(0, 1_200, BATCH_MAX_ROWS):
        await cassandra_session.batch(WRITE, [row(tenant, number) for number in range(first, first + BATCH_MAX_ROWS)])
    paged = Statement("test_paged", READ.cql, fetch_size=500)

    pages = [len(page) async for page in cassandra_session.pages(paged, (signed_tenant(tenant), USER))]
    assert pages == [500, 500, 200]
    rows = await cassandra_session.execute(paged, (signed_tenant(tenant), USER))
    assert [int.from_bytes(conversation, "big") for conversation, _ in rows] == list(range(1_200))


async def test_a_batch_above_the_bound_is_refused(cassandra_session: CassandraSession, tenant: TenantId) -> None:
    with pytest.raises(ValueError, match="at most 200 rows"):
        await cassandra_session.batch(WRITE, [row(tenant, number) for number in range(BATCH_MAX_ROWS + 1)])


async def test_a_conditional_write_tells_whether_it_was_applied_and_serial_reads_see_it(
    cassandra_session: CassandraSession, tenant: TenantId
) -> None:
    once = Statement(
        "test_once",
        "INSERT INTO read_cursors (tenant_id, user_id, conversation_id, seq) VALUES (?, ?, ?, ?) IF NOT EXISTS",
        idempotent=False,
    )
    cursor = Statement("test_cursor", "SELECT seq FROM read_cursors WHERE tenant_id = ? AND user_id = ?")
    place = (signed_tenant(tenant), USER)

    assert (await cassandra_session.execute(once, (*place, b"c" * 16, 1)))[0][0] is True
    assert (await cassandra_session.execute(once, (*place, b"c" * 16, 2)))[0][0] is False
    assert await cassandra_session.execute(cursor, place, serial=True) == [(1,)]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"local_dc": "nowhere"}, "QIM_CASSANDRA_LOCAL_DC: no node is in nowhere; there are dc1"),
        ({"keyspace": "never_made"}, "no keyspace never_made; run `qimctl schema migrate`"),
    ],
)
async def test_a_wrong_setting_is_refused_with_what_to_change(
    cassandra: CassandraCluster, changes: dict[str, object], told: str
) -> None:
    with pytest.raises(CassandraRefused, match=told):
        async with opened(settings_of(cassandra, **changes)):
            pass


async def test_a_cluster_that_is_not_there_is_unavailable(cassandra_schema: CassandraSettings) -> None:
    settings = cassandra_schema.model_copy(update={"cassandra_contact_points": ("127.0.0.1:1",)})
    with pytest.raises(CassandraUnavailable):
        async with opened(settings):
            pass


@pytest_asyncio.fixture
async def quick(
    breakable_cassandra: CassandraCluster, cassandra_schema: CassandraSettings
) -> AsyncIterator[CassandraSession]:
    """A session of the test's own with a short timeout, on nodes that may be broken."""
    async with opened(cassandra_schema.model_copy(update={"cassandra_timeout_seconds": 6.0})) as session:
        yield session


async def test_one_node_that_dies_and_one_that_hangs_go_unnoticed_and_two_do_not(
    breakable_cassandra: CassandraCluster, quick: CassandraSession, tenant: TenantId
) -> None:
    first, second, third = breakable_cassandra.nodes
    numbers = iter(range(10_000))

    async def write_some() -> list[BaseException | list[tuple[object, ...]]]:
        work = [quick.execute(WRITE, row(tenant, next(numbers))) for _ in range(30)]
        return await asyncio.gather(*work, return_exceptions=True)

    second.pause()
    assert [outcome for outcome in await write_some() if outcome] == []
    second.kill()
    assert [outcome for outcome in await write_some() if outcome] == []
    assert await count(quick, tenant) == 60

    third.pause()
    outcomes = await write_some()
    assert all(isinstance(outcome, CassandraUnavailable) for outcome in outcomes)

    breakable_cassandra.heal()
    # Writes that nobody knows the outcome of may be there or not; repeating them is harmless and they are there then.
    await asyncio.gather(*(quick.execute(WRITE, row(tenant, number)) for number in range(90)))
    assert await count(quick, tenant) == 90
    assert first.running


async def test_a_session_is_not_used_after_a_fork(cassandra_session: CassandraSession) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        fresh = Statement("test_forked", "SELECT seq FROM read_cursors WHERE tenant_id = ? AND user_id = ?")
        step = cassandra_session.execute(fresh, (0, USER))
        try:
            step.send(None)
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    await asyncio.to_thread(os.waitpid, child, 0)
    assert b"does not live through a fork" in os.read(reader, 200)
    os.close(reader)
    os.close(writer)

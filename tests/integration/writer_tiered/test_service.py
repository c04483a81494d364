"""The writer process on the backend tiered, with a real archiver: cold reads, Cassandra away, removal and retention."""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.cassandra import TieredPlace, opened, settings_of
from tests.support.command_lines import run_program
from tests.support.cutting_proxy import CuttingProxy
from tests.support.valkey import require_valkey
from tests.support.writers import ANA, BEN, CARA, AnotherWriter, Writers, another_writer, until

from qim_client.values import Direction, GroupSettings, Outgoing
from qim_common.cassandra import Statement
from qim_common.errors import BackendUnavailable, RemoteError
from qim_common.identity import Principal, PrincipalKind
from qim_common.ids import ConversationId, TenantId, show
from qim_devkit.ports import allocate
from qim_devkit.suite import Suite
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.storage import Conversation

pytestmark = pytest.mark.server

MS_PER_DAY = 86_400_000
DAYS = 7
_RECORD = Statement(
    "test_record",
    "SELECT record FROM messages WHERE tenant_id = ? AND conversation_id = ? AND seq_bucket = ? AND seq = ?",
)
_REWRITE = Statement(
    "test_rewrite",
    "UPDATE messages SET record = ? WHERE tenant_id = ? AND conversation_id = ? AND seq_bucket = ? AND seq = ?",
)


@pytest_asyncio.fixture(scope="module")
async def suite(module_cassandra: TieredPlace, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    """Writer, admin and archiver; records leave Redis as soon as they are archived."""
    require_valkey()
    overrides = {"QIM_HOT_RECORD_HOURS": "0", "QIM_RETENTION_INTERVAL_SECONDS": "86400"}
    place = module_cassandra.suite(
        tmp_path_factory.mktemp("tiered"), services=("writer", "admin"), env_overrides=overrides
    )
    async with place as running:
        yield running


@pytest_asyncio.fixture(scope="module")
async def served(suite: Suite) -> AsyncIterator[Writers]:
    """Callers of the writer."""
    writers = Writers(suite)
    yield writers
    await writers.close()


@pytest.fixture
def tenant(suite: Suite) -> TenantId:
    """The suite's own."""
    return TenantId(suite.tenants[0])


async def filled(served: Writers, tenant: TenantId, messages: int, **settings: Any) -> ConversationId:
    """Ana's group with Ben, and so many messages of hers."""
    ana = served.user(ANA, tenant)
    group = (await ana.create_group([BEN], settings=GroupSettings(**settings))).group
    async with served.gateway_client.open_stream() as stream:
        for start in range(1, messages + 1, 250):
            part = range(start, min(start + 250, messages + 1))
            outcomes = await stream.send([Outgoing(ana.actor, b"%d" % seq, conversation=group) for seq in part])
            assert [outcome.sent.seq for outcome in outcomes if outcome.sent] == list(part)
    return group


async def cooled(served: Writers, tenant: TenantId, group: ConversationId, *, left: int = 1) -> None:
    """Wait until no more records than these are in Redis."""
    redis, keys, _ = served.keys(group, tenant)
    await until(lambda: bool(redis.hlen(keys.msgrec) <= left))


async def read(served: Writers, tenant: TenantId, group: ConversationId, start: int, direction: Direction) -> list[int]:
    """Ben's history, page after page; each body is that of its seq."""
    ben = served.user(BEN, tenant)
    seqs: list[int] = []
    while start:
        page = await ben.pull_history(group, from_seq=start, direction=direction, limit=400)
        assert all(message.body == b"%d" % message.seq for message in page.messages)
        seqs += [message.seq for message in page.messages]
        start = page.next_from_seq
    return seqs


async def qimctl(suite: Suite, line: str) -> Any:
    """A run of `qimctl`."""
    environment = {"QIM_CONFIG": str(suite.paths.client_config)}
    return await run_program("qimctl", *line.split(), environment=environment)


def age(served: Writers, tenant: TenantId, group: ConversationId, days: int) -> None:
    """What is in Redis of the group, and its samples, were committed so many days ago."""
    redis, keys, _ = served.keys(group, tenant)
    then = int(redis.time()[0]) * 1000 - days * MS_PER_DAY
    for seq, record in redis.hgetall(keys.msgrec).items():
        redis.hset(keys.msgrec, seq, record[:8] + struct.pack(">Q", then)[2:] + record[14:])
    for seq in redis.zrange(keys.msgts, 0, -1):
        redis.zadd(keys.msgts, {seq: then})


async def test_history_crosses_from_redis_to_the_archive_unnoticed(served: Writers, tenant: TenantId) -> None:
    group = await filled(served, tenant, 1_700)
    await cooled(served, tenant, group)
    assert await read(served, tenant, group, 1, Direction.NEWER) == list(range(1, 1_701))
    assert await read(served, tenant, group, 1_700, Direction.OLDER) == list(range(1_700, 0, -1))
    named = await served.user(BEN, tenant).get_messages(group, [1, 900, 1_001, 1_700])
    assert [message.seq for message in named.messages] == [1, 900, 1_001, 1_700]


async def test_a_writer_without_cassandra_starts_serves_what_is_hot_and_is_connected_later(
    served: Writers, suite: Suite, tenant: TenantId, module_cassandra: TieredPlace
) -> None:
    group = await filled(served, tenant, 300)
    await cooled(served, tenant, group)
    port = allocate(("cassandra",), {})["cassandra"]
    proxy = CuttingProxy(module_cassandra.cluster.contact_points.split(",")[0])
    async with another_writer(suite, QIM_CASSANDRA_CONTACT_POINTS=f"127.0.0.1:{port}") as process:
        beside = Writers(suite, process.address)
        try:
            ben = beside.user(BEN, tenant)
            assert (await ben.send_to(group, b"301")).seq == 301
            assert [one.seq for one in (await ben.pull_history(group, from_seq=301, limit=1)).messages] == [301]
            assert (await ben.get_visible_range(group)).earliest_available_seq == 1
            operator = Principal(PrincipalKind.OPERATOR, "dev-operator", tenant, None)
            await beside.change(group, [CARA], principal=operator)
            with pytest.raises(BackendUnavailable):
                await ben.pull_history(group, from_seq=1, direction=Direction.NEWER, timeout=2)

            await proxy.start(port)

            async def answered() -> bool:
                try:
                    return len((await ben.pull_history(group, from_seq=100, limit=100, timeout=2)).messages) == 100
                except (BackendUnavailable, RemoteError):  # not connected yet, or busy with it
                    return False

            await until(answered)
        finally:
            await beside.close()
            await proxy.stop()


async def test_a_keyspace_that_was_not_migrated_is_named_in_the_log_and_cold_reads_wait(
    served: Writers, suite: Suite, tenant: TenantId
) -> None:
    group = await filled(served, tenant, 20)
    await cooled(served, tenant, group)
    async with another_writer(suite, QIM_CASSANDRA_KEYSPACE="never_made") as process:
        beside = Writers(suite, process.address)
        try:
            assert (await beside.user(BEN, tenant).send_to(group, b"21")).seq == 21
            with pytest.raises(BackendUnavailable):
                await beside.user(BEN, tenant).pull_history(group, from_seq=5, timeout=1)
        finally:
            await beside.close()
        assert "no keyspace never_made; run `qimctl schema migrate` first" in process.log.read_text()


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("QIM_CASSANDRA_CONTACT_POINTS", None, "QIM_CASSANDRA_CONTACT_POINTS: is not set"),
        ("QIM_CASSANDRA_CONTACT_POINTS", "no port:0", "QIM_CASSANDRA_CONTACT_POINTS"),
        ("QIM_CASSANDRA_KEYSPACE", "No-Name", "QIM_CASSANDRA_KEYSPACE"),
        ("QIM_OUTBOX_MAX_MESSAGES", "0", "QIM_OUTBOX_MAX_MESSAGES"),
        ("QIM_ACK_LEVEL", "sometimes", "QIM_ACK_LEVEL"),
    ],
)
async def test_a_bad_configuration_ends_the_start_with_its_name(
    suite: Suite, setting: str, value: str | None, words: str
) -> None:
    environment = dict(AnotherWriter(suite, {}).environment)
    environment.pop(setting, None)
    if value is not None:
        environment[setting] = value
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qim_writer.main"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert process.returncode == 2
    assert words in output.decode()
    assert "Traceback" not in output.decode()


async def age_archived(place: TieredPlace, tenant: TenantId, group: ConversationId, buckets: int, days: int) -> None:
    """The last record of each of the group's first partitions was committed so many days ago."""
    async with opened(settings_of(place.cluster, keyspace=place.keyspace)) as session:
        for bucket in range(buckets):
            row = (tenant, bytes(group), bucket, (bucket + 1) * 1_000)
            ((record,),) = await session.execute(_RECORD, row)
            then = int.from_bytes(record[8:14], "big") - days * MS_PER_DAY
            await session.execute(_REWRITE, (record[:8] + struct.pack(">Q", then)[2:] + record[14:], *row))


async def test_what_is_cleared_for_all_leaves_the_archive_too(
    served: Writers, suite: Suite, tenant: TenantId, module_cassandra: TieredPlace
) -> None:
    group = await filled(served, tenant, 1_300)
    await cooled(served, tenant, group)
    await age_archived(module_cassandra, tenant, group, 1, days=2)
    await served.user(ANA, tenant).clear_group_history(group, up_to_seq=1_100)
    redis, keys, buckets = served.keys(group, tenant)
    await until(lambda: redis.hget(keys.grpmeta, "agone") == b"1")
    assert not redis.sismember(buckets.untrimmed, struct.pack(">Q", tenant) + group)
    assert await read(served, tenant, group, 1, Direction.NEWER) == list(range(1_101, 1_301))

    settings = settings_of(module_cassandra.cluster, keyspace=module_cassandra.keyspace)
    async with opened(settings) as session:
        installation = suite.environment("writer")["QIM_INSTALLATION_ID"]
        archive = CassandraArchive(session, installation_id=installation, buckets=256)
        left = await archive.page(Conversation(tenant, group), 1, 1_300, 1_000)
    assert [record.seq for record in left] == list(range(1_001, 1_301))


async def test_an_operator_sees_what_a_run_of_retention_takes_and_runs_it(
    served: Writers, suite: Suite, tenant: TenantId, module_cassandra: TieredPlace
) -> None:
    group = await filled(served, tenant, 2_100, retention_days=DAYS)
    await cooled(served, tenant, group)
    age(served, tenant, group, DAYS + 1)
    await age_archived(module_cassandra, tenant, group, 2, DAYS + 1)

    async def told(options: str) -> dict[str, Any]:
        ended = await qimctl(suite, f"--tenant {tenant} retention run {options} -o json")
        assert ended.code == 0, ended.err
        document = json.loads(ended.out)
        (found,) = (one for one in document["groups"] if one["group"] == show(group))
        assert isinstance(found, dict)
        return found

    expected = {
        "group": show(group),
        "retention_days": DAYS,
        "group_floor_seq": 0,
        "new_group_floor_seq": 2_100,
        "message_count": 2_100,
        "archive_partitions": 2,
    }
    assert await told("--dry-run") == expected
    assert await told("--dry-run") == expected
    assert await told("") == expected
    redis, keys, _ = served.keys(group, tenant)
    await until(lambda: redis.hget(keys.grpmeta, "agone") == b"2")
    after = await told("--dry-run")
    assert (after["group_floor_seq"], after["message_count"], after["archive_partitions"]) == (2_100, 0, 0)
    assert await read(served, tenant, group, 1, Direction.NEWER) == []

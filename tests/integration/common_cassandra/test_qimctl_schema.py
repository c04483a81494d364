"""`qimctl schema` as a process: what it tells, and how it ends."""

from __future__ import annotations

import pytest
from tests.support.command_lines import Ended, run_program

from qim_common.cassandra import CassandraSettings
from qim_common.cassandra.migrations import installed_migrations
from qim_devkit.cassandra import CassandraCluster


@pytest.fixture
def environment(cassandra: CassandraCluster, cassandra_schema: CassandraSettings) -> dict[str, str]:
    return {
        "QIM_CASSANDRA_CONTACT_POINTS": cassandra.contact_points,
        "QIM_CASSANDRA_LOCAL_DC": cassandra.datacenter,
        "QIM_CASSANDRA_KEYSPACE": cassandra_schema.cassandra_keyspace,
        "QIM_CASSANDRA_TIMEOUT_SECONDS": "20",
    }


async def schema(arguments: str, environment: dict[str, str]) -> Ended:
    return await run_program("qimctl", *arguments.split(), environment=environment)


async def test_migrating_again_does_nothing_and_status_is_complete(environment: dict[str, str]) -> None:
    again = await schema("schema migrate", environment)
    assert (again.code, again.out) == (0, "nothing to do, every migration was applied before\n")
    assert (await schema("schema migrate -o json", environment)).json == {"applied": []}

    status = await schema("schema status -o json", environment)
    expected = [
        {"component": one.component, "number": one.number, "name": one.name, "state": "applied"}
        for one in installed_migrations()
    ]
    assert status.code == 0
    assert status.json == {"replication": {"dc1": 3}, "complete": True, "migrations": expected}
    assert "writer 0001 archive applied" in (await schema("schema status", environment)).lines


async def test_a_keyspace_that_is_not_there_is_pending_and_exits_with_1(environment: dict[str, str]) -> None:
    status = await schema("schema status", environment | {"QIM_CASSANDRA_KEYSPACE": "never_made"})
    assert status.code == 1
    assert status.lines[0] == "no keyspace"
    assert "session 0001 people pending" in status.lines


async def test_the_comparison_has_tables_of_its_own(environment: dict[str, str]) -> None:
    status = await schema("schema status --backend scylla", environment)
    assert status.code == 1
    assert "scylla 0001 comparison pending" in status.lines
    assert "writer 0001 archive applied" in status.lines


@pytest.mark.parametrize(
    ("arguments", "changes", "code", "told"),
    [
        ("schema status", {"CONTACT_POINTS": ""}, 2, "QIM_CASSANDRA_CONTACT_POINTS"),
        ("schema status", {"CONTACT_POINTS": "127.0.0.1:1"}, 1, "BACKEND_UNAVAILABLE: no node of Cassandra answers"),
        ("schema status", {"LOCAL_DC": "nowhere"}, 1, "no node is in nowhere; there are dc1"),
        ("schema migrate --replication dc1", {}, 1, "MIGRATION_REFUSED: replication: write DATACENTER:COPIES"),
        ("schema migrate --replication dc1:1", {}, 1, "has the replication dc1:3"),
        ("schema migrate --wait -1", {}, 2, "--wait"),
        ("schema migrate --backend redis", {}, 2, "--backend"),
    ],
)
async def test_a_refusal_says_what_to_change(
    environment: dict[str, str], arguments: str, changes: dict[str, str], code: int, told: str
) -> None:
    changed = environment | {f"QIM_CASSANDRA_{name}": value for name, value in changes.items()}
    ended = await schema(arguments, changed)
    assert ended.code == code
    assert told in ended.err
    assert ended.out == ""

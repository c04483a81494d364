"""`qimctl recover` as a process: what it asks, tells and refuses; and an archiver that is started before it."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio
from tests.integration.recovery.conftest import BUCKETS, Recovering
from tests.integration.recovery.test_rebuilt_keys import conversations_of, differing, live
from tests.support.command_lines import Ended, run_program
from tests.support.past import Past, World, sights

from qim_common.cassandra import CassandraSettings
from qim_common.positions import Position
from qim_common.redis import Role, read_fingerprint
from qim_common.redis.fence import read_fence
from qim_devkit.cassandra import CassandraCluster
from qim_devkit.pki import DevPki
from qim_devkit.valkey import ValkeyServer
from qim_writer.storage_archive import ArchivePosition


@pytest_asyncio.fixture
async def environment(
    recovering: Recovering,
    world: World,
    past: Past,
    empty: ValkeyServer,
    cassandra: CassandraCluster,
    cassandra_schema: CassandraSettings,
) -> dict[str, str]:
    """A past is archived, its instance lost, and an empty one stands in its place."""
    await live(past, world, 10)
    # Each bucket has a conversation: a wrong topology is told by those that would be elsewhere.
    bucket_of = recovering.topology(empty).conversation_bucket
    while len({bucket_of(recovering.tenant, one) for one in past.conversations}) < BUCKETS:
        await past.begin(world)
    await recovering.archive_all(world.stores)
    return {
        "QIM_BACKEND": "tiered",
        "QIM_REDIS_ADDR": empty.address,
        "QIM_COMMIT_BUCKETS": str(BUCKETS),
        "QIM_INSTALLATION_ID": recovering.installation,
        "QIM_CASSANDRA_CONTACT_POINTS": cassandra.contact_points,
        "QIM_CASSANDRA_LOCAL_DC": cassandra.datacenter,
        "QIM_CASSANDRA_KEYSPACE": cassandra_schema.cassandra_keyspace,
        "QIM_CASSANDRA_TIMEOUT_SECONDS": "20",
    }


async def recover(arguments: str, environment: dict[str, str], stdin: str = "") -> Ended:
    return await run_program("qimctl", "recover", *arguments.split(), environment=environment, stdin=stdin)


async def test_from_the_first_look_to_an_instance_that_serves(
    recovering: Recovering, world: World, empty: ValkeyServer, environment: dict[str, str]
) -> None:
    conversations = await conversations_of(world)
    look = await recover("--instance 0 --dry-run -o json", environment)
    assert look.code == 0
    assert look.json["archived_conversations"] == len(conversations)
    assert look.json["done"] is False

    declined = await recover("--instance 0 --archive-complete", environment, stdin="n\n")
    assert declined.code == 1
    assert "Rebuild it? Its keys are removed first" in declined.err
    async with recovering.instance(empty) as instance:
        assert await instance.call("DBSIZE") == 0

    undecided = await recover("--instance 0 --yes", environment)
    assert undecided.code == 1
    assert "--accept-loss" in undecided.err

    done = await recover("--instance 0 --archive-complete", environment, stdin="y\n")
    assert done.code == 0, done.err
    assert f"{len(conversations)} conversations" in done.out
    again = await recover("--instance 0 --archive-complete --yes", environment)
    assert again.code == 1
    assert "not fenced" in again.err
    async with recovering.instance(empty) as instance:
        for role in Role:
            fingerprint = await read_fingerprint(instance, role)
            assert fingerprint is not None
            assert fingerprint.ready
            assert fingerprint.backend == "tiered"
        mark, ids = await read_fence(instance)
        assert (mark.run_id, mark.replid) == (ids.run_id, ids.replid)
        assert not mark.fenced
        assert not mark.recovery
    async with recovering.world(empty) as recovered:
        assert differing(await sights(world, conversations), await sights(recovered, conversations)) == []


@pytest.mark.parametrize(
    ("arguments", "changes", "code", "told"),
    [
        ("--yes", {}, 2, "--instance"),
        ("--instance -1 --yes", {}, 2, "--instance"),
        ("--instance 1 --yes", {}, 1, "there is no instance 1"),
        ("--instance 0 --yes --accept-loss --archive-complete", {}, 2, "--archive-complete"),
        ("--instance 0 --yes", {"QIM_BACKEND": "redis"}, 1, "there is no archive"),
        ("--instance 0 --yes", {"QIM_BACKEND": "scylla"}, 2, "QIM_BACKEND"),
        ("--instance 0 --yes", {"QIM_REDIS_ADDR": ""}, 2, "QIM_REDIS_ADDR"),
        ("--instance 0 --yes", {"QIM_INSTALLATION_ID": "another"}, 1, "nothing to recover"),
        ("--instance 0 --yes", {"QIM_CASSANDRA_CONTACT_POINTS": "127.0.0.1:1"}, 1, "BACKEND_UNAVAILABLE"),
    ],
)
async def test_what_cannot_be_recovered_is_refused_with_its_reason(
    environment: dict[str, str], arguments: str, changes: dict[str, str], code: int, told: str
) -> None:
    ended = await recover(arguments, environment | changes)
    assert ended.code == code, ended.err
    assert told in ended.err + ended.out


async def test_other_addresses_than_those_of_the_services_are_refused(
    recovering: Recovering, world: World, valkey: ValkeyServer, empty: ValkeyServer, environment: dict[str, str]
) -> None:
    """Else the buckets of an instance that serves would be rebuilt into the empty one."""
    with_another = environment | {"QIM_INSTALLATION_ID": "tests", "QIM_MESSAGE_STORE_ADDRS": valkey.address}
    swapped = await recover("--instance 0 --accept-loss --yes", with_another)
    assert swapped.code == 1
    assert f"instance 1 ({valkey.address}): position is 0 on the instance and 1 in the configuration" in swapped.err

    async with recovering.instance(empty) as instance:
        assert await instance.call("DBSIZE") == 0


@pytest.mark.parametrize(
    "changes",
    [{"QIM_MESSAGE_STORE_ADDRS": "127.0.0.1:1"}, {"QIM_COMMIT_BUCKETS": "2"}, {"QIM_COMMIT_BUCKETS": "7"}],
)
async def test_another_topology_than_that_of_the_archive_is_refused(
    recovering: Recovering, empty: ValkeyServer, environment: dict[str, str], changes: dict[str, str]
) -> None:
    ended = await recover("--instance 0 --accept-loss --yes", environment | changes)
    assert ended.code == 1
    assert "the archive was written with other addresses or another number of buckets" in ended.err
    async with recovering.instance(empty) as instance:
        assert await instance.call("DBSIZE") == 0


async def test_an_address_that_was_forgotten_is_missed(
    recovering: Recovering, empty: ValkeyServer, environment: dict[str, str]
) -> None:
    await recovering.archive.positions.announce(1, {1: ArchivePosition("another", Position(1, 1))})
    ended = await recover("--instance 0 --accept-loss --yes", environment)
    assert ended.code == 1
    assert "it knows an instance 1" in ended.err


@pytest.fixture
def archiver(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Of an archiver at the empty instance."""
    pki = DevPki(tmp_path)
    files = pki.issue("writer", "archiver")
    nowhere = dict.fromkeys(("QIM_HEALTH_LISTEN", "QIM_METRICS_LISTEN"), "127.0.0.1:0")
    tls = {"CA": pki.services_ca, "CERT": files.cert, "KEY": files.key}
    trusted = {"QIM_TRUST_DOMAIN": pki.trust_domain}
    return environment | nowhere | trusted | {f"QIM_TLS_{name}_FILE": str(path) for name, path in tls.items()}


async def test_an_archiver_takes_no_empty_instance_that_the_archive_knows(
    recovering: Recovering, empty: ValkeyServer, archiver: dict[str, str]
) -> None:
    """It would write a fingerprint, and every service would take the lost instance for a new one."""
    ended = await run_program("qim-archiver", environment=archiver)
    assert ended.code == 1
    assert "the archive knows" in ended.out + ended.err
    async with recovering.instance(empty) as instance:
        assert await instance.call("DBSIZE") == 0


async def test_an_archiver_without_cassandra_takes_no_empty_instance_either(
    recovering: Recovering, empty: ValkeyServer, archiver: dict[str, str]
) -> None:
    archiver |= {"QIM_CASSANDRA_CONTACT_POINTS": "127.0.0.1:1", "QIM_CASSANDRA_TIMEOUT_SECONDS": "1"}
    ended = await run_program("qim-archiver", environment=archiver)
    assert ended.code == 1
    assert "a first start needs Cassandra" in ended.out + ended.err
    async with recovering.instance(empty) as instance:
        assert await instance.call("DBSIZE") == 0

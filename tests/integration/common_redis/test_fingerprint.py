"""The topology's fingerprint on real instances."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
import pytest_asyncio
from tests.integration.common_redis.conftest import MakeInstance, until
from tests.support.valkey import require_valkey

from qim_common.errors import BackendUnavailable
from qim_common.redis import Fingerprint, Instance, Role, TopologyMismatch, read_fingerprint, verify_topology
from qim_common.redis.fingerprint import KEY
from qim_common.topology import Topology
from qim_devkit.valkey import ValkeyServer

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def two_servers() -> Iterator[list[ValkeyServer]]:
    """Two servers, emptied by `instances` for each test."""
    require_valkey()
    with ValkeyServer() as one, ValkeyServer() as two:
        yield [one, two]


@pytest_asyncio.fixture
async def instances(two_servers: list[ValkeyServer], make_instance: MakeInstance) -> AsyncIterator[list[Instance]]:
    """Two empty, started instances."""
    made = [make_instance(server, position) for position, server in enumerate(two_servers)]
    for instance in made:
        await instance.start()
        await instance.call("FLUSHALL")
    yield made


@pytest.fixture
def topology(two_servers: list[ValkeyServer]) -> Topology:
    """The configuration of the two."""
    return Topology(tuple(server.address for server in two_servers), 256, "here")


async def _reordered(make_instance: MakeInstance, servers: list[ValkeyServer]) -> list[Instance]:
    made = [make_instance(server, position) for position, server in enumerate(servers)]
    for instance in made:
        await instance.start()
    return made


async def test_the_first_start_writes_fingerprints_that_later_starts_accept(
    instances: list[Instance], topology: Topology
) -> None:
    assert [await read_fingerprint(instance) for instance in instances] == [None, None]
    await verify_topology(instances, topology)
    first = [await read_fingerprint(instance) for instance in instances]
    await verify_topology(instances, topology)
    assert [await read_fingerprint(instance) for instance in instances] == first

    log_ids = set()
    for position, fingerprint in enumerate(first):
        assert fingerprint is not None
        assert fingerprint == Fingerprint(position, 2, 256, "here", fingerprint.log_id, ready=True)
        assert len(bytes.fromhex(fingerprint.log_id)) == 16
        log_ids.add(fingerprint.log_id)
    assert len(log_ids) == 2, "each dispatch log has an identity of its own"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"buckets": 128}, "number of buckets is 256 on the instance and 128 in the configuration"),
        ({"installation_id": "there"}, "installation id is here on the instance and there in the configuration"),
    ],
)
async def test_another_configuration_is_refused_and_changes_nothing(
    instances: list[Instance], topology: Topology, change: dict[str, object], said: str
) -> None:
    await verify_topology(instances, topology)
    before = [await read_fingerprint(instance) for instance in instances]
    with pytest.raises(TopologyMismatch) as refused:
        await verify_topology(instances, replace(topology, **change))  # type: ignore[arg-type]
    for instance in instances:
        assert f"instance {instance.position} ({instance.address}): {said}" in str(refused.value)
    assert [await read_fingerprint(instance) for instance in instances] == before


async def test_a_changed_order_is_refused(
    instances: list[Instance], topology: Topology, two_servers: list[ValkeyServer], make_instance: MakeInstance
) -> None:
    await verify_topology(instances, topology)
    swapped = await _reordered(make_instance, two_servers[::-1])
    with pytest.raises(TopologyMismatch) as refused:
        await verify_topology(swapped, replace(topology, addresses=topology.addresses[::-1]))
    assert "position is 1 on the instance and 0 in the configuration" in str(refused.value)
    assert "position is 0 on the instance and 1 in the configuration" in str(refused.value)


async def test_a_changed_number_of_instances_is_refused(instances: list[Instance], topology: Topology) -> None:
    await verify_topology(instances, topology)
    with pytest.raises(TopologyMismatch, match="number of instances is 2 on the instance and 1 in the configuration"):
        await verify_topology(instances[:1], replace(topology, addresses=topology.addresses[:1]))


async def test_the_same_instance_twice_is_refused(
    instances: list[Instance], topology: Topology, two_servers: list[ValkeyServer], make_instance: MakeInstance
) -> None:
    twice = await _reordered(make_instance, [two_servers[0], two_servers[0]])
    with pytest.raises(TopologyMismatch, match="position is 0 on the instance and 1 in the configuration"):
        await verify_topology(twice, replace(topology, addresses=(topology.addresses[0],) * 2))


async def test_an_emptied_instance_of_a_used_installation_is_refused(
    instances: list[Instance], topology: Topology
) -> None:
    await verify_topology(instances, topology)
    await instances[1].call("FLUSHALL")
    with pytest.raises(TopologyMismatch, match="has lost its data") as refused:
        await verify_topology(instances, topology)
    assert f"instance 1 ({instances[1].address})" in str(refused.value)
    assert await read_fingerprint(instances[1]) is None


async def test_a_first_start_that_crashed_halfway_is_finished_by_the_next(
    instances: list[Instance], topology: Topology
) -> None:
    await verify_topology(instances, topology)
    # As after a crash in the first round: instance 0 was written, instance 1 not, and none was marked.
    await instances[0].call("HSET", KEY, "state", "forming")
    await instances[1].call("DEL", KEY)
    await verify_topology(instances, topology)
    # As after a crash in the second round.
    await instances[1].call("HSET", KEY, "state", "forming")
    await verify_topology(instances, topology)
    stored = [await read_fingerprint(instance) for instance in instances]
    assert [fingerprint and fingerprint.ready for fingerprint in stored] == [True, True]


async def test_an_instance_that_comes_back_empty_is_not_used(valkey: ValkeyServer, make_instance: MakeInstance) -> None:
    instance = make_instance(valkey)
    await instance.start()
    await verify_topology([instance], Topology((valkey.address,), 256, "here"))
    valkey.kill()
    for file in (valkey.directory / "appendonlydir").iterdir():
        file.unlink()
    valkey.start()

    def refused() -> bool:
        return not instance.connected and "fingerprint is gone" in str(instance.call("PING").exception())

    await until(refused)


async def test_an_emptied_session_instance_with_an_archive_behind_it_is_new_again_also_at_a_start(
    instances: list[Instance], topology: Topology
) -> None:
    tiered = replace(topology, backend="tiered")
    await verify_topology(instances, tiered, Role.SESSION)
    known = await read_fingerprint(instances[0], Role.SESSION)
    await instances[1].call("FLUSHALL")
    await verify_topology(instances, tiered, Role.SESSION)
    stored = [await read_fingerprint(instance, Role.SESSION) for instance in instances]
    assert stored[0] == known
    assert stored[1] is not None
    assert (stored[1].position, stored[1].backend, stored[1].ready) == (1, "tiered", True)


@pytest.mark.parametrize(("role", "backend"), [(Role.COMMIT, "tiered"), (Role.SESSION, "redis")])
async def test_an_emptied_instance_that_nothing_brings_back_stays_refused(
    instances: list[Instance], topology: Topology, role: Role, backend: str
) -> None:
    configured = replace(topology, backend=backend)
    await verify_topology(instances, configured, role)
    await instances[1].call("FLUSHALL")
    with pytest.raises(TopologyMismatch, match="it has no fingerprint"):
        await verify_topology(instances, configured, role)


async def test_a_session_instance_that_comes_back_empty_is_used_where_an_archive_is_behind_it(
    valkey: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey)
    await instance.start()
    await verify_topology([instance], Topology((valkey.address,), 256, "here", "tiered"), Role.SESSION)
    lost = asyncio.Event()
    instance.on_lost.append(lost.set)
    valkey.kill()
    for file in (valkey.directory / "appendonlydir").iterdir():
        file.unlink()
    valkey.start()
    await lost.wait()
    await until(lambda: instance.connected)
    stored = await read_fingerprint(instance, Role.SESSION)
    assert stored is not None
    assert stored.ready


async def test_the_lists_of_commit_and_session_instances_have_their_own_places(
    instances: list[Instance], topology: Topology, two_servers: list[ValkeyServer], make_instance: MakeInstance
) -> None:
    await verify_topology(instances, topology)
    session = await _reordered(make_instance, [two_servers[1]])
    await verify_topology(session, Topology((two_servers[1].address,), 256, "here"), Role.SESSION)
    await verify_topology(instances, topology)
    stored = await read_fingerprint(session[0], Role.SESSION)
    assert stored is not None
    assert (stored.position, stored.count) == (0, 1)


@pytest.mark.parametrize("damage", [("HDEL", KEY, "log_id"), ("HSET", KEY, "position", "first")])
async def test_a_damaged_fingerprint_is_refused(
    instances: list[Instance], topology: Topology, damage: tuple[str, ...]
) -> None:
    await verify_topology(instances, topology)
    await instances[0].call(*damage)
    with pytest.raises(TopologyMismatch, match="a fingerprint that cannot be read"):
        await verify_topology(instances, topology)


async def test_instances_that_are_not_those_of_the_topology_are_a_programming_error(
    instances: list[Instance], topology: Topology
) -> None:
    for wrong in (instances[:1], instances[::-1], []):
        with pytest.raises(ValueError, match="positions 0 to 1"):
            await verify_topology(wrong, topology)


async def test_an_instance_that_is_down_is_unavailable(instances: list[Instance], topology: Topology) -> None:
    await instances[1].close()
    with pytest.raises(BackendUnavailable):
        await verify_topology(instances, topology)


async def test_data_of_another_backend_is_refused(instances: list[Instance], topology: Topology) -> None:
    await verify_topology(instances, topology)
    with pytest.raises(TopologyMismatch, match="backend is redis on the instance and tiered in the configuration"):
        await verify_topology(instances, replace(topology, backend="tiered"))


async def test_a_fingerprint_from_before_backends_were_noted_is_of_the_backend_redis(
    instances: list[Instance], topology: Topology
) -> None:
    await verify_topology(instances, topology)
    for instance in instances:
        await instance.call("HDEL", KEY, "backend", "replaces")
    await verify_topology(instances, topology)
    with pytest.raises(TopologyMismatch, match="backend is redis"):
        await verify_topology(instances, replace(topology, backend="tiered"))


async def test_former_log_identities_are_read_in_their_order(instances: list[Instance], topology: Topology) -> None:
    await verify_topology(instances, topology)
    await instances[0].call("HSET", KEY, "replaces", "one,two")
    found = await read_fingerprint(instances[0])
    assert found is not None
    assert found.replaces == ("one", "two")


async def test_empty_instances_that_the_archive_knows_get_no_fingerprint(
    instances: list[Instance], topology: Topology
) -> None:
    asked: list[int] = []

    async def knows(position: int) -> bool:
        asked.append(position)
        return position == 1

    with pytest.raises(TopologyMismatch, match=r"instance 1 .* though the archive knows messages of it"):
        await verify_topology(instances, topology, archive_knows=knows)
    assert asked == [0, 1]
    assert [await read_fingerprint(instance) for instance in instances] == [None, None]
    await verify_topology(instances, topology)
    # Who has a fingerprint is not asked about.
    await verify_topology(instances, topology, archive_knows=knows)
    assert asked == [0, 1]

"""An instance that may have gone back serves nobody before it is recovered; all others, and restarts, go on."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.recovery.conftest import Recovering
from tests.support.chat import ANA, BEN
from tests.support.past import Past, World
from tests.support.redis_stores import RedisStores
from tests.support.valkey import connected_again
from tests.support.writers import until

from qim_common.cassandra import CassandraUnavailable
from qim_common.errors import BackendUnavailable, InstanceFenced
from qim_common.recovery import Loss
from qim_common.redis import Instance, RedisUnavailable, ScriptLoader, TopologyMismatch, verify_topology
from qim_common.redis.fence import FENCE_KEY
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.fence import FenceGuard
from qim_writer.backends.redis.store import SCRIPTS, RedisStore
from qim_writer.storage_archive import ArchivePosition, ArchivePositions


class Unreachable:
    """An archive that can be cut off."""

    def __init__(self, positions: ArchivePositions) -> None:
        self._positions = positions
        self.cut = False
        self.asked = 0

    async def announce(self, instance: int, positions: Mapping[int, ArchivePosition]) -> None:
        """As the archive."""
        await self._positions.announce(instance, positions)

    async def of(self, instance: int) -> dict[int, ArchivePosition]:
        """As the archive, unless it is cut off."""
        self.asked += 1
        if self.cut:
            raise CassandraUnavailable("no node answers")
        return await self._positions.of(instance)


class Elsewhere:
    """An archive that is another one as long as it is `empty`; it has noted `noted` then."""

    def __init__(self, positions: ArchivePositions) -> None:
        self._positions = positions
        self.empty = True
        self.noted: dict[int, ArchivePosition] = {}

    async def announce(self, instance: int, positions: Mapping[int, ArchivePosition]) -> None:
        """As the archive."""
        await self._positions.announce(instance, positions)

    async def of(self, instance: int) -> dict[int, ArchivePosition]:
        """What it knows."""
        return self.noted if self.empty else await self._positions.of(instance)


@asynccontextmanager
async def guarded(
    recovering: Recovering, server: ValkeyServer, positions: ArchivePositions | None, *, ack_level: str = "log"
) -> AsyncIterator[Instance]:
    """The instance as a writer connects to it, with its fence."""
    topology = recovering.topology(server)
    instance = Instance(server.address, name="writer", instance_position=0)
    instance.on_connected.append(ScriptLoader(SCRIPTS))
    await instance.start()
    try:
        await verify_topology([instance], topology)
        await instance.admit(FenceGuard(0, topology, positions, ack_level=ack_level))
        yield instance
    finally:
        await instance.close()


def world_on(recovering: Recovering, server: ValkeyServer, instance: Instance, like: World) -> World:
    """The commands over an instance."""
    store = RedisStore([instance], recovering.topology(server), retention_ms=86_400_000)
    stores = RedisStores(
        type(like.stores.membership)(store),  # type: ignore[call-arg]
        like.stores.messages,
        like.stores.commits,
        like.stores.buckets,
        store,
    )
    return World(stores, recovering.archive.messages, recovering.tenant)


async def answering(instance: Instance) -> None:
    """Wait until calls are answered."""

    async def answers() -> bool:
        try:
            return bool(await instance.call("PING") == b"PONG")
        except BackendUnavailable:
            return False

    await until(answers)


async def says_fenced(instance: Instance) -> bool:
    """Whether a call is refused because of the fence."""
    try:
        await instance.call("PING")
    except InstanceFenced:
        return True
    except BackendUnavailable:
        return False
    return False


async def test_a_restart_that_lost_nothing_is_accepted(
    recovering: Recovering, world: World, valkey: ValkeyServer
) -> None:
    positions = Unreachable(recovering.archive.positions)
    async with guarded(recovering, valkey, positions) as instance:
        await world.chat.create(ANA, BEN)
        await recovering.archive_all(world.stores)
        first = await instance.call("HGET", FENCE_KEY, "run_id")
        valkey.kill()
        valkey.start()
        await answering(instance)
        assert await instance.call("HGET", FENCE_KEY, "run_id") not in (None, first)
        assert positions.asked == 2


async def test_an_archive_that_does_not_answer_keeps_the_instance_unused_until_it_does(
    recovering: Recovering, world: World, valkey: ValkeyServer
) -> None:
    positions = Unreachable(recovering.archive.positions)
    positions.cut = True
    async with guarded(recovering, valkey, positions) as instance:
        # The service has started, and the instance is not used.
        with pytest.raises(RedisUnavailable):
            await instance.call("PING")
        positions.cut = False
        await connected_again(instance)
        assert await instance.call("PING") == b"PONG"
        # Known ids need no archive.
        positions.cut, asked = True, positions.asked
        instance.connection.close("for the test")
        await connected_again(instance)
        assert positions.asked == asked


async def test_an_instance_that_went_back_is_fenced_and_used_again_after_its_recovery(
    recovering: Recovering, world: World, past: Past, valkey: ValkeyServer, tmp_path: Path
) -> None:
    positions = recovering.archive.positions
    group = await world.chat.create(ANA, BEN)
    async with guarded(recovering, valkey, positions) as instance:
        await world.chat.send_many(10, ANA, group)
        await recovering.archive_all(world.stores)
        valkey.stop()
        shutil.copytree(valkey.directory, tmp_path / "backup")
        valkey.start()
        await answering(instance)
        await answering(world.stores.store.instances[0])
        await world.chat.send_many(10, ANA, group)
        await recovering.archive_all(world.stores)
        valkey.stop()
        shutil.rmtree(valkey.directory)
        shutil.copytree(tmp_path / "backup", valkey.directory)
        valkey.start()
        await until(lambda: says_fenced(instance))

        # Another service starts meanwhile; it finds the fence, not a reason to end.
        async with guarded(recovering, valkey, positions) as late:
            assert await says_fenced(late)
            # A restart of the server does not lift it.
            valkey.kill()
            valkey.start()
            await until(lambda: says_fenced(late))

            report = await recovering.recover(valkey, Loss.EXCLUDED)
            assert "the archive has seen it up to" in report.why
            await connected_again(instance)
            await connected_again(late)
            assert await late.call("PING") == b"PONG"
        fresh = world_on(recovering, valkey, instance, world)
        assert await fresh.chat.head(group) == 20
        async with recovering.world(valkey) as recovered:
            assert (await recovered.chat.send(BEN, group)).seq == 21


async def test_without_an_archive_a_restart_is_accepted(
    recovering: Recovering, world: World, valkey: ValkeyServer
) -> None:
    async with guarded(recovering, valkey, None) as instance:
        await world.chat.create(ANA, BEN)
        valkey.kill()
        valkey.start()
        await answering(instance)


@pytest.mark.parametrize(("ack_level", "fenced"), [("log", True), ("replicated", False), ("archived", False)])
async def test_a_promoted_replica_is_fenced_at_the_level_log_only(
    recovering: Recovering, world: World, valkey: ValkeyServer, empty: ValkeyServer, ack_level: str, fenced: bool
) -> None:
    positions = recovering.archive.positions
    async with guarded(recovering, valkey, positions, ack_level=ack_level):
        await world.chat.create(ANA, BEN)
        await recovering.archive_all(world.stores)
    async with recovering.instance(empty) as replica:
        await replica.call("REPLICAOF", valkey.host, valkey.port)

        async def caught_up() -> bool:
            info: bytes = await replica.call("INFO", "replication")
            offset = info.partition(b"slave_repl_offset:")[2].split()[0]
            main: bytes = await world.stores.call("INFO", "replication")
            return b"master_link_status:up" in info and main.partition(b"master_repl_offset:")[2].split()[0] == offset

        await until(caught_up)
        valkey.kill()
        await replica.call("REPLICAOF", "NO", "ONE")
    async with guarded(recovering, empty, positions, ack_level=ack_level) as promoted:
        assert await says_fenced(promoted) is fenced
        if not fenced:
            assert await promoted.call("PING") == b"PONG"


async def test_an_empty_instance_that_the_archive_knows_is_refused_at_the_first_start(
    recovering: Recovering, world: World, empty: ValkeyServer
) -> None:
    await world.chat.create(ANA, BEN)
    await recovering.archive_all(world.stores)

    async def knows(position: int) -> bool:
        return bool(await recovering.archive.positions.of(position))

    async with recovering.instance(empty) as instance:
        with pytest.raises(TopologyMismatch, match="qimctl recover"):
            await verify_topology([instance], recovering.topology(empty), archive_knows=knows)
        assert await instance.call("DBSIZE") == 0


async def test_an_instance_whose_log_nobody_knows_is_fenced(
    recovering: Recovering, world: World, empty: ValkeyServer
) -> None:
    await world.chat.create(ANA, BEN)
    await recovering.archive_all(world.stores)
    # A service without access to the archive has taken it for a new one.
    async with guarded(recovering, empty, recovering.archive.positions) as instance:
        assert await says_fenced(instance)
        await recovering.recover(empty, Loss.EXCLUDED)
        await connected_again(instance)


async def test_an_archive_that_knows_less_than_the_instance_says_is_not_accepted(
    recovering: Recovering, world: World, valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    group = await world.chat.create(ANA, BEN)
    await world.chat.send_many(20, ANA, group)
    await recovering.archive_all(world.stores)
    right = recovering.archive.positions
    wrong = Elsewhere(right)
    async with guarded(recovering, valkey, wrong) as instance:
        with pytest.raises(RedisUnavailable):
            await instance.call("PING")
        async with recovering.instance(valkey) as direct:
            assert await direct.call("EXISTS", FENCE_KEY) == 0, "nothing is wrong with the instance"
        # Tried again: the right archive after all.
        wrong.empty = False
        await connected_again(instance)
        assert await instance.call("PING") == b"PONG"
    told = [entry for entry in caplog.records if "knows nothing of it" in entry.getMessage()]
    assert [entry.levelname for entry in told].count("ERROR") == 1
    assert "QIM_CASSANDRA_KEYSPACE" in told[0].getMessage()


async def test_the_wrong_archive_is_noticed_at_the_start_of_a_service_that_knows_the_instance(
    recovering: Recovering, world: World, valkey: ValkeyServer
) -> None:
    await world.chat.create(ANA, BEN)
    await recovering.archive_all(world.stores)
    right = recovering.archive.positions
    async with guarded(recovering, valkey, right) as instance:
        assert await instance.call("PING") == b"PONG"
    # Without Cassandra a service starts, and looks at its next connection.
    unreachable = Unreachable(Elsewhere(right))
    unreachable.cut = True
    async with guarded(recovering, valkey, unreachable) as instance:
        assert await instance.call("PING") == b"PONG"
        unreachable.cut = False
        instance.connection.close("for the test")

        async def refused() -> bool:
            return unreachable.asked >= 2 and not instance.connected

        await until(refused)
        with pytest.raises(RedisUnavailable):
            await instance.call("PING")


async def test_an_archive_that_was_set_back_is_not_accepted(
    recovering: Recovering, world: World, valkey: ValkeyServer
) -> None:
    group = await world.chat.create(ANA, BEN)
    await recovering.archive_all(world.stores)
    restored = Elsewhere(recovering.archive.positions)
    restored.noted = await recovering.archive.positions.of(0)
    await world.chat.send_many(20, ANA, group)
    await recovering.archive_all(world.stores)
    async with guarded(recovering, valkey, restored) as instance:
        with pytest.raises(RedisUnavailable):
            await instance.call("PING")


async def test_calls_to_a_fenced_instance_are_refused_at_once_and_told_no_details(
    recovering: Recovering, world: World, valkey: ValkeyServer
) -> None:
    async with guarded(recovering, valkey, recovering.archive.positions) as instance:
        await instance.call("HSET", FENCE_KEY, "fenced", "it was said so")
        instance.connection.close("for the test")
        await until(lambda: says_fenced(instance))
        calls = [instance.call("PING"), instance.pipeline([("PING",)])]
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, InstanceFenced)
            assert "it was said so" not in answer.message

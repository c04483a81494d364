"""A promoted replica with an archive, at ack level `replicated`: generations rise in place, and the archive is told."""

from __future__ import annotations

import dataclasses

import pytest
from tests.integration.recovery.conftest import Recovering
from tests.support.chat import ANA, BEN, CARA
from tests.support.past import World
from tests.support.valkey import wait_for_link

from qim_common.ids import ConversationId
from qim_common.recovery import Loss
from qim_common.redis import read_fingerprint
from qim_common.redis.fence import Fenced, Verdict
from qim_devkit.valkey import ValkeyServer


@pytest.fixture
def replicated(recovering: Recovering) -> Recovering:
    """The installation at that level."""
    return dataclasses.replace(recovering, ack_level="replicated")


async def meta_of(world: World, group: ConversationId) -> dict[bytes, bytes]:
    """What is one value of a group."""
    return await world.stores.hash(world.stores.keys(group, world.chat.tenant).grpmeta)


async def test_a_raised_generation_survives_the_loss_of_the_promoted_instance(
    replicated: Recovering, world: World, valkey: ValkeyServer, empty: ValkeyServer
) -> None:
    server = world.stores.store.instances[0]
    assert await replicated.guard(valkey).judge(server) is Verdict.ACCEPT
    group, quiet = await world.chat.create(ANA, BEN), await world.chat.create(ANA, BEN)
    await world.chat.send_many(3, ANA, group)
    await replicated.archive_all(world.stores)
    async with replicated.instance(empty) as replica:
        await replica.call("REPLICAOF", valkey.host, valkey.port)
        wait_for_link(empty)
        await world.chat.send(ANA, group)
        assert await world.stores.call("WAIT", 1, 5000) == 1
        await replica.call("REPLICAOF", "NO", "ONE")
    assert (await world.chat.send(ANA, group, body=b"lost")).seq == 5
    valkey.kill()

    async with replicated.world(empty) as promoted:
        instance = promoted.stores.store.instances[0]
        assert await replicated.guard(empty).judge(instance) is Verdict.ACCEPT
        assert (await promoted.chat.send(ANA, group, body=b"acknowledged")).seq == 5
        await promoted.chat.add(group, CARA)
        await replicated.archive_all(promoted.stores)
        for one, revision in ((group, 3), (quiet, 2)):
            meta = await meta_of(promoted, one)
            assert (meta[b"generation"], int(meta[b"revision"]), int(meta[b"arev"])) == (b"1", revision, revision)
        kept = {one: await meta_of(promoted, one) for one in (group, quiet)}
        fingerprint = await read_fingerprint(instance)
        assert fingerprint is not None
        positions = await replicated.archive.positions.of(0)
        assert {one.log_id for one in positions.values()} == {fingerprint.log_id}
        # It is lost as a whole, and rebuilt from the archive.
        await promoted.stores.call("FLUSHALL")
        await replicated.recover(empty, Loss.EXCLUDED)
    async with replicated.world(empty) as recovered:
        for one in (group, quiet):
            meta = await meta_of(recovered, one)
            assert {name: meta[name] for name in (b"generation", b"gens", b"revision", b"version")} == {
                name: kept[one][name] for name in (b"generation", b"gens", b"revision", b"version")
            }
        assert (await recovered.chat.send(ANA, group)).seq == 7


async def test_a_promoted_replica_that_lacks_what_the_archive_has_is_fenced_as_it_is(
    replicated: Recovering, world: World, valkey: ValkeyServer, empty: ValkeyServer
) -> None:
    server = world.stores.store.instances[0]
    assert await replicated.guard(valkey).judge(server) is Verdict.ACCEPT
    group = await world.chat.create(ANA, BEN)
    async with replicated.instance(empty) as replica:
        await replica.call("REPLICAOF", valkey.host, valkey.port)
        wait_for_link(empty)
        assert await world.stores.call("WAIT", 1, 5000) == 1
        await replica.call("REPLICAOF", "NO", "ONE")
    await world.chat.send(ANA, group)
    await replicated.archive_all(world.stores)
    valkey.kill()
    async with replicated.world(empty) as promoted:
        verdict = await replicated.guard(empty).judge(promoted.stores.store.instances[0])
        assert isinstance(verdict, Fenced)
        meta = await meta_of(promoted, group)
        assert (meta[b"generation"], b"gens" in meta) == (b"0", False)

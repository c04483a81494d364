"""`qimctl fence`: before maintenance, and as the way out where a bucket cannot be archived."""

from __future__ import annotations

import pytest
from tests.integration.recovery.conftest import BUCKETS, Recovering
from tests.integration.recovery.test_rebuilt_keys import conversations_of, live
from tests.support.chat import ANA
from tests.support.command_lines import Ended, run_program
from tests.support.past import Past, World
from tests.support.writers import until

from qim_common.redis import Connection, FencedInstance, Instance, RedisAddress, verify_topology
from qim_common.redis.fence import FENCE_KEY
from qim_common.redis.fence_by_hand import users
from qim_common.topology import Topology
from qim_devkit.valkey import ValkeyServer


async def claim(recovering: Recovering, valkey: ValkeyServer) -> None:
    """The instance belongs to the installation of the command line."""
    async with recovering.instance(valkey) as instance:
        await instance.call("DEL", "qim:topology")
        await verify_topology([instance], Topology((valkey.address,), BUCKETS, recovering.installation, "tiered"))


async def qimctl(command: str, environment: dict[str, str], stdin: str = "") -> Ended:
    return await run_program("qimctl", *command.split(), environment=environment, stdin=stdin)


async def test_a_writer_is_cut_off_until_the_fence_is_lifted(
    recovering: Recovering, world: World, valkey: ValkeyServer, variables: dict[str, str]
) -> None:
    await claim(recovering, valkey)
    guard = recovering.guard(valkey)
    writer = Instance(valkey.address, name="writer", instance_position=0)
    await writer.start()
    await writer.admit(guard)
    try:
        assert await writer.call("PING")
        declined = await qimctl("fence --instance 0", variables, stdin="n\n")
        assert declined.code == 1
        assert await writer.call("PING")

        done = await qimctl("fence --instance 0 --yes --why disks -o json", variables)
        assert done.code == 0, done.err
        assert done.json["fenced"] == "by an operator: disks"

        async def fenced() -> bool:
            try:
                await writer.call("PING")
            except FencedInstance as error:
                return "by an operator: disks" in error.detail
            except Exception:  # noqa: BLE001  it is just being cut off
                return False
            return False

        await until(fenced)
        again = await qimctl("fence --instance 0 --yes --why others", variables)
        assert "by an operator: disks" in again.out

        lifted = await qimctl("fence --instance 0 --lift", variables)
        assert lifted.code == 0, lifted.err

        async def serves() -> bool:
            try:
                return bool(await writer.call("PING"))
            except FencedInstance:
                return False

        await until(serves)
    finally:
        await writer.close()


async def test_the_way_out_of_a_bucket_that_cannot_be_archived(
    recovering: Recovering, world: World, past: Past, valkey: ValkeyServer, variables: dict[str, str]
) -> None:
    await claim(recovering, valkey)
    await live(past, world, 10)
    await recovering.archive_all(world.stores)
    conversations = sorted(await conversations_of(world))
    bad = world.stores.bucket(conversations[0], recovering.tenant)
    await world.stores.call("XADD", bad.dispatch, "*", "x", "junk")

    before = await qimctl("recover --instance 0 --accept-loss --yes", variables)
    assert "not fenced" in before.err
    assert (await qimctl("fence --instance 0 --yes", variables)).code == 0
    kept = await qimctl("recover --instance 0 --archive-complete --yes", variables)
    assert kept.code == 1
    assert "has the fields [b'x']" in kept.err
    half = await qimctl("fence --instance 0 --lift", variables)
    assert half.code == 1
    assert "only a recovery ends that" in half.err

    done = await qimctl("recover --instance 0 --accept-loss --yes", variables)
    assert done.code == 0, done.err
    for conversation in conversations:
        facts = await world.stores.membership.facts(world.chat.of(conversation), ANA)
        assert facts is not None
        assert facts.generation == 1
    assert await recovering.archive_all(world.stores) == 0


@pytest.mark.parametrize(
    ("arguments", "changes", "code", "told"),
    [
        ("--yes", {}, 2, "--instance"),
        ("--instance -1 --yes", {}, 2, "--instance"),
        ("--instance 1 --yes", {}, 1, "there is no instance 1"),
        ("--instance 0 --lift", {}, 1, "it is not fenced"),
        ("--instance 0 --yes", {"QIM_INSTALLATION_ID": "another"}, 1, "is another one"),
        ("--instance 0 --yes", {"QIM_REDIS_ADDR": ""}, 2, "QIM_REDIS_ADDR"),
        ("--instance 0 --yes", {"QIM_REDIS_ADDR": "127.0.0.1:1"}, 1, "BACKEND_UNAVAILABLE"),
    ],
)
async def test_what_cannot_be_fenced_is_refused_with_its_reason(
    recovering: Recovering,
    world: World,
    valkey: ValkeyServer,
    variables: dict[str, str],
    arguments: str,
    changes: dict[str, str],
    code: int,
    told: str,
) -> None:
    await claim(recovering, valkey)
    ended = await qimctl(f"fence {arguments}", variables | changes)
    assert ended.code == code, ended.err
    assert told in ended.err + ended.out
    assert await world.stores.call("HGET", FENCE_KEY, "fenced") is None


async def test_a_fence_of_another_reason_is_not_lifted(
    recovering: Recovering, world: World, valkey: ValkeyServer, variables: dict[str, str]
) -> None:
    await claim(recovering, valkey)
    await world.stores.call("HSET", FENCE_KEY, "fenced", "a replica was promoted")
    ended = await qimctl("fence --instance 0 --lift", variables)
    assert ended.code == 1
    assert "it was not fenced by hand: a replica was promoted" in ended.err
    assert await world.stores.call("HGET", FENCE_KEY, "fenced") == b"a replica was promoted"


async def test_an_empty_instance_needs_no_fence(empty: ValkeyServer, variables: dict[str, str]) -> None:
    ended = await qimctl("fence --instance 0 --yes", variables | {"QIM_REDIS_ADDR": empty.address})
    assert ended.code == 1
    assert "no data of this installation" in ended.err


async def test_others_than_writers_and_archivers_stay_connected(recovering: Recovering, valkey: ValkeyServer) -> None:
    reader = await Connection.open(RedisAddress.parse(valkey.address), name="session")
    writer = await Connection.open(RedisAddress.parse(valkey.address), name="qim-archiver")
    async with recovering.instance(valkey) as instance:
        assert len(await users(instance)) == 1
    for connection in (reader, writer):
        connection.close()
        await connection.wait_closed()

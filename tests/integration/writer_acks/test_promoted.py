"""A replica is promoted at ack level `replicated` while readers were further than it: nobody misses what follows."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import redis
from tests.support.chat import ANA, BEN, CARA, Chat
from tests.support.redis_stores import RedisStores, redis_stores
from tests.support.shifted_clock import HOUR, ShiftedClock
from tests.support.valkey import replica_of, require_valkey, wait_for_link

from qim_common.ids import ConversationId, uuid7
from qim_common.keys import BucketKeys
from qim_common.positions import Position
from qim_common.redis import Instance, RedisUnavailable, read_fingerprint, verify_topology
from qim_common.redis.fence import FENCE_KEY, Verdict
from qim_common.topology import Topology
from qim_devkit.valkey import ValkeyServer
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.domain.position import Checkpoint, Continue, Gap, Refuse, decide_start
from qim_writer.backends.redis import promotion
from qim_writer.backends.redis.fence import FenceGuard
from qim_writer.backends.redis.promotion import Promotion

pytestmark = pytest.mark.server

BUCKETS = 4
ALL = range(BUCKETS)


@pytest.fixture
def primary() -> Iterator[ValkeyServer]:
    """A primary that begins to synchronize a replica at once."""
    require_valkey()
    with ValkeyServer(options={"repl-diskless-sync-delay": "0"}) as server:
        yield server


@pytest.fixture
def replica(primary: ValkeyServer) -> Iterator[ValkeyServer]:
    """The primary's replica."""
    with replica_of(primary) as server:
        yield server


def guard_of(server: ValkeyServer, mode: Promotion = "resynchronise") -> FenceGuard:
    """The fence of a writer that uses this server."""
    return FenceGuard(0, topology_of(server), None, ack_level="replicated", promotion=mode)


def topology_of(server: ValkeyServer) -> Topology:
    return Topology((server.address,), BUCKETS, "tests")


@asynccontextmanager
async def opened(server: ValkeyServer) -> AsyncIterator[tuple[Chat, RedisStores]]:
    """The commands on a server, without waiting for replicas: what a test writes may be lost."""
    async with redis_stores(server, buckets=BUCKETS) as stores:
        yield Chat(stores), stores


async def found_good(stores: RedisStores, server: ValkeyServer) -> None:
    """The first start of an installation."""
    await verify_topology([instance_of(stores)], topology_of(server))
    assert await guard_of(server).judge(instance_of(stores)) is Verdict.ACCEPT


def instance_of(stores: RedisStores) -> Instance:
    return stores.store.instances[0]


def promote(replica: ValkeyServer) -> None:
    """From now on it follows nobody: what its primary still gets is lost."""
    with redis.Redis(host=replica.host, port=replica.port, protocol=2) as client:
        client.execute_command("REPLICAOF", "NO", "ONE")


async def caught_up(primary: RedisStores, replica: ValkeyServer) -> None:
    """Wait until the replica has everything."""
    assert await primary.call("WAIT", 1, 5000) == 1
    wait_for_link(replica)


async def generation(stores: RedisStores, group: ConversationId) -> tuple[int, bytes | None]:
    """The generation, and what is kept of those that were raised."""
    raised, kept = await stores.call("HMGET", stores.keys(group).grpmeta, "generation", "gens")
    return int(raised), kept


async def checkpoints(stores: RedisStores) -> dict[int, Checkpoint]:
    """Those of a consumer that has read everything there is."""
    bounds = await RedisDispatchLog(instance_of(stores), ALL).bounds(ALL)
    return {bucket: Checkpoint(log.last, log.log_id) for bucket, log in zip(ALL, bounds, strict=True)}


async def test_a_consumer_beyond_the_end_goes_on_also_where_the_promoted_clock_is_behind(
    primary: ValkeyServer, shifted: ShiftedClock
) -> None:
    promoted = shifted.server
    async with opened(primary) as (chat, stores):
        await found_good(stores, primary)
        groups = [await chat.create(ANA, BEN) for _ in range(8)]
        with redis.Redis(host=promoted.host, port=promoted.port, protocol=2) as client:
            client.execute_command("REPLICAOF", primary.host, primary.port)
        await caught_up(stores, promoted)
        promote(promoted)
        # In every bucket, and in conversations of which the replica knows nothing.
        for group in [*groups, *[await chat.create(ANA, CARA) for _ in range(8)]]:
            await chat.send(ANA, group)
        read = await checkpoints(stores)
        newest_ms = max(checkpoint.position.ms for checkpoint in read.values())
    primary.kill()
    shifted.set(-HOUR)
    async with opened(promoted) as (chat, stores):
        log = RedisDispatchLog(instance_of(stores), ALL)
        before = await log.bounds(ALL)
        assert {type(decide_start(read[bucket], bounds)) for bucket, bounds in zip(ALL, before, strict=True)} == {
            Refuse
        }
        assert await guard_of(promoted, "accept").judge(instance_of(stores)) is Verdict.ACCEPT
        for bucket, bounds in zip(ALL, await log.bounds(ALL), strict=True):
            assert decide_start(read[bucket], bounds) == Continue(read[bucket].position)
        sent = {group: await chat.send(ANA, group, body=b"acknowledged") for group in groups}
        assert all(one.time_ms > newest_ms for one in sent.values())
        got = await log.read({bucket: at.position for bucket, at in read.items()}, count=100, block_ms=1)
        assert sum(len(entries) for entries in got.entries.values()) == len(groups)


async def test_a_log_of_which_the_replica_has_nothing_gets_its_end_too(
    primary: ValkeyServer, replica: ValkeyServer
) -> None:
    async with opened(primary) as (chat, stores):
        await found_good(stores, primary)
        await caught_up(stores, replica)
        promote(replica)
        group = await chat.create(ANA, BEN)
        bucket = stores.store.place(chat.tenant, group).bucket
        read = (await checkpoints(stores))[bucket]
    primary.kill()
    async with opened(replica) as (_, stores):
        await guard_of(replica, "accept").judge(instance_of(stores))
        [bounds] = await RedisDispatchLog(instance_of(stores), ALL).bounds([bucket])
        assert decide_start(read, bounds) == Continue(read.position)
        assert decide_start(None, bounds) == Continue(Position(0, 0)), "nothing seems to have been trimmed"
        assert await stores.call("XLEN", BucketKeys(bucket).dispatch) == 0


async def test_an_end_is_never_lowered(primary: ValkeyServer, replica: ValkeyServer) -> None:
    async with opened(primary) as (chat, stores):
        await found_good(stores, primary)
        await chat.create(ANA, BEN)
        key = BucketKeys(0).dispatch
        await stores.call("XADD", key, "99999999999999-7", "e", b"")
        await caught_up(stores, replica)
        promote(replica)
    async with opened(replica) as (_, stores):
        for _ in range(2):
            await stores.call("HSET", FENCE_KEY, "run_id", "another")
            assert await guard_of(replica, "accept").judge(instance_of(stores)) is Verdict.ACCEPT
        info = await stores.call("XINFO", "STREAM", key)
        end = Position.parse(dict(zip(info[::2], info[1::2], strict=True))[b"last-generated-id"])
        assert Position(99999999999999, 7) < end < Position(99999999999999, 100)


async def test_generations_rise_where_they_stand_once_and_the_logs_are_begun_anew(
    primary: ValkeyServer, replica: ValkeyServer
) -> None:
    async with opened(primary) as (chat, stores):
        await found_good(stores, primary)
        group = await chat.create(ANA, BEN)
        message = uuid7()
        first = await chat.send(ANA, group, message_id=message)
        await caught_up(stores, replica)
        promote(replica)
        await chat.send(ANA, group, body=b"lost")
        read = await checkpoints(stores)
    primary.kill()
    async with opened(replica) as (chat, stores), opened(replica) as (_, others):
        verdicts = await asyncio.gather(
            *(guard_of(replica).judge(instance_of(one)) for one in (stores, others, stores, others))
        )
        assert set(verdicts) <= {Verdict.ACCEPT, Verdict.KNOWN}
        raised = (1, b"\0\0\0\1" + (1).to_bytes(6, "big"))
        assert await generation(stores, group) == raised
        fingerprint = await read_fingerprint(instance_of(stores))
        former = read[0].log_id
        assert fingerprint is not None
        assert (fingerprint.log_id != former, fingerprint.replaces) == (True, (former,))
        bounds = await RedisDispatchLog(instance_of(stores), ALL).bounds(ALL)
        assert {type(decide_start(read[b], log)) for b, log in zip(ALL, bounds, strict=True)} == {Gap}
        # What was acknowledged keeps its seq and answer; what was lost is given out again.
        assert await chat.send(ANA, group, message_id=message) == first
        assert (await chat.send(ANA, group, body=b"acknowledged")).seq == 2
        assert await guard_of(replica).judge(instance_of(stores)) is Verdict.KNOWN
        assert await generation(stores, group) == raised


async def test_a_restart_raises_nothing(primary: ValkeyServer, replica: ValkeyServer) -> None:
    async with opened(primary) as (chat, stores):
        await found_good(stores, primary)
        group = await chat.create(ANA, BEN)
    primary.kill()
    primary.start()
    async with opened(primary) as (_, stores):
        assert await guard_of(primary).judge(instance_of(stores)) is Verdict.ACCEPT
        assert await generation(stores, group) == (0, None)


async def test_accepting_raises_no_generation(primary: ValkeyServer, replica: ValkeyServer) -> None:
    async with opened(primary) as (chat, stores):
        await found_good(stores, primary)
        group = await chat.create(ANA, BEN)
        before = await read_fingerprint(instance_of(stores))
        await caught_up(stores, replica)
        promote(replica)
    async with opened(replica) as (_, stores):
        assert await guard_of(replica, "accept").judge(instance_of(stores)) is Verdict.ACCEPT
        assert await generation(stores, group) == (0, None)
        assert await read_fingerprint(instance_of(stores)) == before


async def test_an_instance_stays_unused_until_every_conversation_is_through(
    primary: ValkeyServer, replica: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt has no time at all here; it goes on where the one before ended."""
    monkeypatch.setattr(promotion, "_SCANNED", 10)
    async with opened(primary) as (chat, stores):
        await found_good(stores, primary)
        groups = [await chat.create(ANA, BEN) for _ in range(100)]
        await caught_up(stores, replica)
        promote(replica)
    async with opened(replica) as (_, stores):
        guard = guard_of(replica)
        known = await stores.call("HGET", FENCE_KEY, "run_id")
        raised = 0
        for _ in range(3):
            with pytest.raises(RedisUnavailable, match="were raised so far"):
                await guard.judge(instance_of(stores), seconds=0)
            assert await stores.call("HGET", FENCE_KEY, "run_id") == known, "its ids are not stored yet"
            done = sum([(await generation(stores, group))[0] for group in groups])
            assert raised <= done < len(groups)
            raised = done
        assert raised > 0
        assert await guard.judge(instance_of(stores), seconds=math.inf) is Verdict.ACCEPT
        assert {await generation(stores, group) for group in groups} == {(1, b"\0\0\0\1" + bytes(6))}

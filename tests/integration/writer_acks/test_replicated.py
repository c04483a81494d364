"""Ack level `replicated`, with real replicas: an answer means that the replica that may be promoted has fsynced it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import redis
from tests.support.chat import ANA, BEN, CARA, Chat, Outcomes, Sent, acting
from tests.support.redis_stores import RedisStores, redis_stores
from tests.support.valkey import connected_again, replica_of, require_valkey, wait_for_link

from qim_common.errors import BackendUnavailable
from qim_common.ids import ConversationId, uuid7
from qim_common.keys import ConversationKeys
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis import replication
from qim_writer.backends.redis.group_state import RedisGroupStateStore
from qim_writer.commands.clear_history import OwnClear
from qim_writer.commands.group_state import GroupState
from qim_writer.commands.trimming import Trimmer
from qim_writer.domain.policy import GroupSettings, Limits

pytestmark = pytest.mark.server

DEADLINE_SECONDS = 10.0


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing replicas are noticed in less time than in earnest."""
    monkeypatch.setattr(replication, "WAIT_MS", 200)


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


@asynccontextmanager
async def chat_on(server: ValkeyServer, replicas: int = 1) -> AsyncIterator[tuple[Chat, RedisStores]]:
    async with redis_stores(server, ack_level="replicated", replicas=replicas) as stores:
        yield Chat(stores), stores


async def back(stores: RedisStores) -> None:
    """Wait, with a bound, until the lane has found the replicas again."""
    async with asyncio.timeout(20):
        while stores.store.lanes[0].missing:  # noqa: ASYNC110  it looks by itself
            await asyncio.sleep(0.01)


async def every_change(chat: Chat, stores: RedisStores, group: ConversationId) -> list[Callable[[], Awaitable[object]]]:
    """One call of each kind that changes something, made with an id of its own."""
    states = RedisGroupStateStore(stores.store)
    groups = GroupState(stores.membership, states, Trimmer(states, stores.buckets), Limits())
    clear = OwnClear(stores.membership, states)
    ids = [uuid7() for _ in range(7)]
    return [
        lambda: chat.add(group, CARA, request_id=ids[0]),
        lambda: chat.remove(group, CARA, request_id=ids[1]),
        lambda: groups.update_settings(chat.operator, ids[2], group, GroupSettings(member_limit=7)),
        lambda: groups.clear_group(chat.operator, ids[3], group, 1),
        lambda: clear(acting(ANA), ids[4], group, 2),
        lambda: chat.create(ANA, BEN, request_id=ids[5]),
        lambda: chat.send(ANA, group, message_id=ids[6]),
    ]


async def test_what_is_answered_is_on_the_replica(primary: ValkeyServer, replica: ValkeyServer) -> None:
    async with chat_on(primary) as (chat, stores):
        group = await chat.create(ANA, BEN)
        sent = await chat.send_many(300, ANA, group)
        assert [one.seq for one in sent] == list(range(1, 301))
        with redis.Redis(host=replica.host, port=replica.port, protocol=2) as client:
            keys = stores.keys(group)
            for change in await every_change(chat, stores, group):
                await change()
                assert client.hgetall(keys.grpmeta) == await stores.hash(keys.grpmeta)
            assert client.hlen(keys.msgrec) == await chat.head(group)


async def test_a_server_that_forgot_its_scripts_gets_them_again(primary: ValkeyServer, replica: ValkeyServer) -> None:
    async with chat_on(primary) as (chat, stores):
        group = await chat.create(ANA, BEN)
        await stores.call("SCRIPT", "FLUSH")
        await chat.add(group, CARA)
        await stores.call("SCRIPT", "FLUSH")
        assert [one.seq for one in await chat.send_many(3, ANA, group)] == [2, 3, 4]


@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_without_the_replica_nothing_is_answered_and_a_retry_gets_the_first_answer(
    primary: ValkeyServer, replica: ValkeyServer, how: str
) -> None:
    async with chat_on(primary) as (chat, stores):
        group = await chat.create(ANA, BEN)
        await chat.send_many(2, ANA, group)
        if how == "killed":
            replica.kill()
        else:
            os.kill(replica.pid, signal.SIGSTOP)
        message, request = uuid7(), uuid7()
        async with asyncio.timeout(DEADLINE_SECONDS):
            both = await asyncio.gather(
                chat.send(ANA, group, message_id=message),
                chat.add(group, CARA, request_id=request),
                return_exceptions=True,
            )
        assert [type(error) for error in both if not isinstance(error, BackendUnavailable)] == []
        # From now on nothing is even written, and readers wait for nobody.
        head = await chat.head(group)
        with pytest.raises(BackendUnavailable):
            await chat.send(ANA, group)
        with pytest.raises(BackendUnavailable):
            await chat.leave(BEN, group)
        assert (await chat.head(group), await chat.read(ANA, group)) == (head, list(range(1, head + 1)))
        if how == "killed":
            replica.start()
            wait_for_link(replica)
        else:
            os.kill(replica.pid, signal.SIGCONT)
        await back(stores)
        again = await chat.send(ANA, group, message_id=message)
        answer = await chat.add(group, CARA, request_id=request)
        assert {again.seq, answer.seq} == {3, 4}
        assert await chat.head(group) == 4


async def test_a_repeated_answer_waits_for_the_replica_too(primary: ValkeyServer, replica: ValkeyServer) -> None:
    async with chat_on(primary) as (chat, stores):
        group = await chat.create(ANA, BEN)
        await chat.send_many(2, ANA, group)
        changes = await every_change(chat, stores, group)
        for change in changes:
            await change()
            os.kill(replica.pid, signal.SIGSTOP)
            async with asyncio.timeout(DEADLINE_SECONDS):
                with pytest.raises(BackendUnavailable):
                    await change()
            os.kill(replica.pid, signal.SIGCONT)
            await back(stores)
            await change()


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_service_starts_without_its_replicas_and_serves_once_they_are_there(
    primary: ValkeyServer, replicas: int
) -> None:
    async with chat_on(primary, replicas) as (chat, stores):
        with pytest.raises(BackendUnavailable):
            await chat.create(ANA, BEN)
        with replica_of(primary):
            if replicas == 1:
                await back(stores)
                assert await chat.create(ANA, BEN)
                return
            with pytest.raises(BackendUnavailable):
                await chat.create(ANA, BEN)
            with replica_of(primary):
                await back(stores)
                assert await chat.create(ANA, BEN)


async def test_a_promoted_replica_has_everything_that_was_answered(
    primary: ValkeyServer, replica: ValkeyServer
) -> None:
    async with chat_on(primary) as (chat, stores):
        groups = [await chat.create(ANA, BEN) for _ in range(5)]
        sinks = []
        for burst in range(40):
            sink = Outcomes(25)
            chat.stores.commits.submit(
                [chat.prepared(sink, index, ANA, groups[index % 5]) for index in range(sink.expected)]
            )
            sinks.append(sink)
            if burst == 20:
                async with asyncio.timeout(20):
                    await sinks[3].complete.wait()
        primary.kill()
        answers = [await sink.wait() for sink in sinks]
        keys = [stores.keys(group) for group in groups]
    acknowledged = [
        (index % 5, answer.seq) for sink in answers for index, answer in enumerate(sink) if isinstance(answer, Sent)
    ]
    assert len(acknowledged) >= 100
    with redis.Redis(host=replica.host, port=replica.port, protocol=2) as client:
        client.execute_command("REPLICAOF", "NO", "ONE")
        for group, found in enumerate(map(_seqs(client), keys)):
            assert {seq for number, seq in acknowledged if number == group} <= found


def _seqs(client: redis.Redis) -> Callable[[ConversationKeys], set[int]]:
    return lambda keys: {int(seq) for seq in client.hkeys(keys.msgrec)}


async def test_a_restarted_primary_serves_again(primary: ValkeyServer, replica: ValkeyServer) -> None:
    async with chat_on(primary) as (chat, stores):
        group = await chat.create(ANA, BEN)
        primary.kill()
        with pytest.raises(BackendUnavailable):
            await chat.send(ANA, group)
        primary.start()
        await connected_again(stores.store.instances[0])
        wait_for_link(replica)
        await back(stores)
        async with asyncio.timeout(20):
            while True:
                try:
                    assert (await chat.send(ANA, group)).seq == 1
                    break
                except BackendUnavailable:
                    # The first call may find the link up and the replica not yet counted.
                    await back(stores)

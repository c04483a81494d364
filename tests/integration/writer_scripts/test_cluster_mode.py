"""Every script on a server in cluster mode, which notices keys of another slot (storage.md, "Scripts").

The server has all slots, so it can only object to keys that do not belong together: those that a call declares, and,
as no script carries the flag allow-cross-slot-keys, those that a script puts together inside.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import ANY

import pytest
import pytest_asyncio
import redis
from tests.support.archiving import with_archive
from tests.support.chat import ANA, BEN, CARA, DAN, EVE, OPERATOR, TENANT, Chat, acting
from tests.support.redis_stores import RedisStores, redis_stores
from tests.support.valkey import require_valkey

from qim_common.ids import ConversationId, direct_conversation_id, uuid7
from qim_common.redis import Argument, Instance, ReplyError, Script, run
from qim_devkit.valkey import ValkeyServer, free_port
from qim_writer.backends.redis.archive_removals import RedisArchiveRemovals
from qim_writer.backends.redis.behind import RedisBehind
from qim_writer.backends.redis.eviction import RedisHotRecords
from qim_writer.backends.redis.group_state import RedisGroupStateStore
from qim_writer.backends.redis.membership import RedisMembershipStore
from qim_writer.backends.redis.outbox import RedisArchiveLease
from qim_writer.backends.redis.store import SCRIPTS, SEND, RedisStore
from qim_writer.commands.clear_history import OwnClear
from qim_writer.commands.group_state import GroupState
from qim_writer.commands.trimming import Trimmer
from qim_writer.domain.archive_rounds import gather
from qim_writer.domain.policy import GroupSettings, Limits
from qim_writer.domain.visible import UnreadSpan
from qim_writer.storage_outbox import Evicted, OutboxBehind

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def cluster_server() -> Iterator[ValkeyServer]:
    """A cluster of one node that has all slots."""
    require_valkey()
    with (
        ValkeyServer(options={"cluster-enabled": "yes", "cluster-port": str(free_port())}) as server,
        redis.Redis(host=server.host, port=server.port, protocol=2) as client,
    ):
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        for _ in range(100_000):
            if b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True):
                break
        else:
            pytest.fail("the cluster of one node did not come up")
        yield server


@dataclass
class Used:
    """The scripts that a test has run."""

    names: set[str] = field(default_factory=set)


@pytest_asyncio.fixture(params=["no archive", "an archive"])
async def stores(request: pytest.FixtureRequest, cluster_server: ValkeyServer) -> AsyncIterator[RedisStores]:
    """Stores on the cluster; conversations are spread over 256 buckets, each with a slot of its own."""
    async with redis_stores(cluster_server) as opened:
        await opened.call("FLUSHALL")
        if request.param == "an archive":
            await opened.begin_archive()
        yield opened


@pytest.fixture
def used(stores: RedisStores, monkeypatch: pytest.MonkeyPatch) -> Used:
    """Notes which scripts are run; all but `send`, which goes through the group commit."""
    noted = Used()
    original = RedisStore.submit

    def noting(
        self: RedisStore, instance: int, script: Script, keys: Sequence[Argument], args: Sequence[Argument]
    ) -> asyncio.Future[Any]:
        noted.names.add(script.name)
        return original(self, instance, script, keys, args)

    monkeypatch.setattr(RedisStore, "submit", noting)
    return noted


async def _live(chat: Chat, stores: RedisStores) -> list[ConversationId]:
    """Everything that can happen to groups and direct conversations, one bucket a call."""
    states = RedisGroupStateStore(stores.store)
    groups = GroupState(stores.membership, states, Trimmer(states, stores.buckets), Limits())
    own_clear = OwnClear(stores.membership, states)
    made = []
    for _ in range(3):
        group = await chat.create(ANA, BEN, group_id=b"", broadcast_max_members=2)
        made.append(group)
        await chat.send_many(5, ANA, group)
        await chat.add(group, CARA, DAN)
        await chat.leave(BEN, group)
        await chat.remove(group, CARA)
        await chat.add(group, BEN)
        await chat.send(BEN, group)
        assert await chat.read(BEN, group) == [9, 10]
        assert set(await chat.present(ANA, group, size=2)) == {ANA, BEN, DAN}
        assert set(await chat.at(group, 1)) == {ANA, BEN}
        facts = await stores.membership.facts(chat.of(group), ANA)
        assert facts is not None
        assert facts.person is not None
        (look,) = await stores.membership.looks(TENANT, ANA, [group])
        assert look is not None
        assert look.newest is not None
        assert await stores.messages.unread(TENANT, [(group, UnreadSpan(0, 10), facts.person.ordinal)]) == [1]
        settings = GroupSettings(member_limit=9, retention_days=3)
        await groups.update_settings(OPERATOR, uuid7(), group, settings)
        await groups.transfer(acting(ANA), uuid7(), group, BEN)
        await groups.freeze(OPERATOR, uuid7(), group, frozen=True)
        await own_clear(acting(ANA), uuid7(), group, 2)
        await groups.clear_group(OPERATOR, uuid7(), group, 4)
        assert not await states.trim(chat.of(group))
        assert await chat.read(ANA, group) == list(range(5, 11))
        assert [state.revision for state in await states.state_records(chat.of(group), 0, 10)]
        newest = await states.age_cut(chat.of(group), await stores.now_ms())
        assert newest is not None
        assert newest.seq == 10
        removal = await RedisArchiveRemovals(stores.store).removed(chat.of(group), 0)
        assert (removal.gone, removal.floor, removal.trimmed) == (0, 4, 4)
        bucket = stores.store.place(TENANT, group).bucket
        assert chat.of(group) in await states.retained_groups(bucket)
    for peer in (CARA, EVE):
        await chat.send(ANA, peer=peer)
        await chat.send(peer, peer=ANA)
        direct = direct_conversation_id(TENANT, ANA, peer)
        made.append(direct)
        assert await chat.read(peer, direct) == [1, 2]
    return made


async def test_every_script_touches_one_slot_a_call(stores: RedisStores, used: Used) -> None:
    chat = Chat(stores)
    made = await _live(chat, stores)
    assert len({stores.store.place(TENANT, conversation).bucket for conversation in made}) > 1
    assert used.names | {SEND.name} == {script.name for script in SCRIPTS}, "a script that no call here runs"


async def test_reading_up_to_the_archived_head_touches_one_slot_a_conversation(stores: RedisStores) -> None:
    chat = Chat(stores)
    group = await chat.create(ANA, BEN, broadcast_max_members=2)
    await chat.add(group, CARA)
    await chat.send(ANA, group)
    await stores.call("HSET", stores.keys(group).grpmeta, "aseq", 0, "arev", 1)
    server = stores.store.instances[0]
    readers = RedisMembershipStore(RedisStore([server], stores.store.topology, retention_ms=1, ack_level="archived"))
    changes = await readers.changes_since(chat.of(group), 1, 10)
    assert changes is not None
    assert changes.current == 1
    (waits,) = await readers.looks(TENANT, ANA, [group])
    assert waits is not None
    assert waits.facts.version == 1
    await stores.call("HSET", stores.keys(group).grpmeta, "aseq", 1, "arev", 2)
    for facts in (
        await readers.facts(chat.of(group), ANA),
        *(look and look.facts for look in await readers.looks(TENANT, ANA, [group])),
    ):
        assert facts is not None
        assert (facts.head, facts.newest_broadcast) == (1, 0)


async def test_the_archivers_scripts_touch_one_slot_a_call(stores: RedisStores) -> None:
    chat = Chat(stores)
    outbox = await with_archive(stores)
    groups = [await chat.create(ANA, BEN) for _ in range(3)]
    for group in groups:
        await chat.send_many(5, ANA, group)
    state = await outbox.state()
    for bucket, position in state.archived.items():
        read = await outbox.read({bucket: position}, max_bytes=2**20)
        for entries in read.entries.values():
            assert await outbox.note([gather(bucket, position, entries)]) == frozenset()
    behind = RedisBehind(stores.store.instances[0], stores.store.topology)
    assert await behind.look() == OutboxBehind(0, None, ANY)
    hot = RedisHotRecords(stores.store.instances[0], stores.store.topology)
    for group in groups:
        assert await hot.evict(chat.of(group), 0) == Evicted(4, more=False)
    lease = RedisArchiveLease(stores.store.instances[0], token=b"one", seconds=5)
    other = RedisArchiveLease(stores.store.instances[0], token=b"other", seconds=5)
    assert (await lease.hold(), await other.hold()) == (True, False)
    await lease.release()
    assert await other.hold()
    await lease.release()
    assert not await lease.hold()


async def test_the_server_notices_keys_of_other_slots(cluster_server: ValkeyServer, stores: RedisStores) -> None:
    # Or else the test above shows nothing.
    instance: Instance = stores.store.instances[0]
    hidden = Script("hidden", "#!lua\nredis.call('SET', KEYS[1], 1)\nreturn redis.call('SET', '{b002}:' .. ARGV[1], 1)")
    with pytest.raises(ReplyError, match="same slot"):
        await run(instance, hidden, ["{b001}:a"], ["b"])
    declared = Script("declared", "#!lua\nreturn redis.call('SET', KEYS[1], KEYS[2])")
    with pytest.raises(ReplyError, match="CROSSSLOT"):
        await run(instance, declared, ["{b001}:a", "{b002}:b"], [])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_no_script_hides_keys_of_other_slots(script: Script) -> None:
    # On a standalone server the flag has no effect, and in a cluster it lets through exactly the undeclared keys.
    assert "allow-cross-slot-keys" not in script.source.partition("\n")[0]

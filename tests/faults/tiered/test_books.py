"""The books themselves: what is lost, used twice, changed or made up in a store is found by checking them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
import redis
from tests.model.world import TENANT, World
from tests.support.account import Account
from tests.support.chorus import Chorus
from tests.support.ledger import Ledger
from tests.support.projection import BUCKETS

from qim_common.errors import QimError
from qim_common.ids import ConversationId, group_conversation_id, uuid7
from qim_common.keys import ConversationKeys, PersonKeys
from qim_common.topology import Topology

pytestmark = [pytest.mark.server, pytest.mark.slow]

Damage = Callable[[Any, ConversationKeys, Account], object]


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A suite on Redis alone, whose keys are damaged."""
    async with World.running(tmp_path_factory.mktemp("books") / "suite") as running:
        yield running


def new_group() -> ConversationId:
    """An id."""
    return group_conversation_id(ConversationId(uuid7()))


def store_of(world: World, group: ConversationId) -> tuple[Any, ConversationKeys]:
    """The Redis client of a group's instance (untyped) and its keys."""
    topology = Topology(world.suite.valkey_addresses, BUCKETS, "tests")
    bucket = topology.conversation_bucket(TENANT, group)
    host, _, port = str(topology.addresses[topology.instance_of(bucket)]).rpartition(":")
    return redis.Redis(host=host, port=int(port), protocol=2), ConversationKeys(TENANT, group, bucket)


def another_body(store: Any, keys: ConversationKeys, account: Account) -> None:
    """The newest message says something else."""
    record = bytearray(store.hget(keys.msgrec, account.model.head))
    record[-1] ^= 1
    store.hset(keys.msgrec, account.model.head, bytes(record))


DAMAGES: dict[str, Damage] = {
    "the newest message is gone": lambda store, keys, account: store.hdel(keys.msgrec, account.model.head),
    "the newest message says something else": another_body,
    "the head goes back": lambda store, keys, _: store.decr(keys.msgcseq),
    "own messages count as unread": lambda store, keys, _: store.setrange(keys.msgsnd(0), 0, b"\xff\xff\xff" * 400),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_is_found(world: World, damage: str) -> None:
    ledger = Ledger(world, [new_group()], seed=1, directs=0, pace=0.0)
    (account,) = ledger.accounts
    async with ledger.working():
        await ledger.more(60)
    await ledger.carry_on(lambda account: account.saying(b"the newest"))
    await ledger.check(repeats=0)
    store, keys = store_of(world, account.lane.group)
    DAMAGES[damage](store, keys, account)
    with pytest.raises((AssertionError, QimError, ExceptionGroup)):
        await ledger.check(repeats=0)


async def test_a_mark_that_goes_back_is_found(world: World) -> None:
    ledger = Ledger(world, [new_group()], seed=2, directs=0, pace=0.0)
    (account,) = ledger.accounts
    async with ledger.working():
        await ledger.more(60)
    who = max(account.model.members)
    await ledger.carry_on(lambda account: account.lane.read(who, account.model.head))
    await ledger.check(repeats=0)
    topology = Topology(world.suite.valkey_addresses, BUCKETS, "tests")
    bucket = topology.person_bucket(TENANT, who)
    host, _, port = str(topology.addresses[topology.instance_of(bucket)]).rpartition(":")
    with redis.Redis(host=host, port=int(port), protocol=2) as store:
        assert store.hdel(PersonKeys(TENANT, who, bucket).read_cursors, account.lane.group)
    with pytest.raises((AssertionError, ExceptionGroup)):
        await ledger.check(repeats=0)


@pytest.mark.parametrize("seqs", [[], [1, 2], [2]], ids=["made up", "twice", "elsewhere"])
async def test_a_message_that_is_not_where_it_was_acknowledged_is_found(world: World, seqs: list[int]) -> None:
    chorus = Chorus(world, [new_group()], singers=2, pace=0.0)
    async with chorus.singing():
        await chorus.more(50)
    await chorus.check()
    (sung,) = chorus.acknowledged.values()
    (first,) = (name for name, one in sung.items() if one.sent.seq == 1)
    one = sung.pop(first)
    for seq in seqs:
        sung[uuid7()] = replace(one, sent=replace(one.sent, seq=seq))
    with pytest.raises(AssertionError):
        await chorus.check()

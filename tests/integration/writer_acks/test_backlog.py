"""The gate towards the archive: above the bound nothing is taken that makes the backlog grow, and all else goes on."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from prometheus_client import REGISTRY
from tests.support.chat import ANA, BEN, CARA, DAN, Chat, acting, user
from tests.support.redis_stores import RedisStores, redis_stores
from tests.support.valkey import connected_again

from qim_common.errors import ArchiveBacklogFull
from qim_common.ids import ConversationId, uuid7
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis import backlog as backlog_module
from qim_writer.backends.redis.backlog import Backlog
from qim_writer.backends.redis.group_state import RedisGroupStateStore
from qim_writer.commands.clear_history import OwnClear
from qim_writer.commands.group_state import GroupState
from qim_writer.commands.trimming import Trimmer
from qim_writer.domain.policy import Limits

pytestmark = pytest.mark.server

MOST = 100


@dataclass
class Outbox:
    """A chat whose outbox takes `MOST` messages."""

    stores: RedisStores
    chat: Chat

    @property
    def gate(self) -> Backlog:
        assert self.stores.store.backlog is not None
        return self.stores.store.backlog

    async def fill(self, recorded: int, archived: int = 0) -> None:
        """So much is recorded and archived in all buckets together, and the gate has looked."""
        for number, bucket in enumerate(self.stores.store.buckets):
            counters = ("rec", recorded, "arcd", archived) if number == 0 else ("rec", 0, "arcd", 0)
            await self.stores.call("HSET", bucket.meta, *counters)
        await self.gate.look()


@pytest_asyncio.fixture
async def outbox(valkey_session: ValkeyServer) -> AsyncIterator[Outbox]:
    async with redis_stores(valkey_session, buckets=4, outbox_max=MOST) as stores:
        await stores.begin_archive()
        yield Outbox(stores, Chat(stores))


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def refused(outbox: Outbox, group: ConversationId) -> bool:
    """Whether a send is refused for the backlog, with the time to come again."""
    (outcome,) = await outbox.chat.outcomes((ANA, group, {}))
    return isinstance(outcome, ArchiveBacklogFull) and outcome.retry_after is not None


async def test_it_closes_above_the_bound_and_opens_below_nine_tenths(outbox: Outbox) -> None:
    group = await outbox.chat.create(ANA, BEN)
    for recorded, archived, closed in (
        (100, 0, False),
        (101, 0, True),
        (101, 1, True),
        (500, 409, True),
        (500, 410, False),
        (510, 410, False),
        (512, 410, True),
    ):
        await outbox.fill(recorded, archived)
        assert await refused(outbox, group) is closed
        assert metric("qim_writer_outbox_messages", instance="0") == recorded - archived


async def test_closed_it_refuses_what_grows_the_backlog_and_nothing_else(outbox: Outbox) -> None:
    chat = outbox.chat
    request, message = uuid7(), uuid7()
    group = await chat.create(ANA, BEN, CARA, request_id=request)
    sent = await chat.send(ANA, group, message_id=message)
    joined = uuid7()
    await chat.add(group, DAN, request_id=joined)
    states = RedisGroupStateStore(outbox.stores.store)
    groups = GroupState(outbox.stores.membership, states, Trimmer(states, 4), Limits())
    before = metric("qim_writer_outbox_refusals_total")
    await outbox.fill(MOST + 1)
    head = await chat.head(group)
    for refusal in (
        chat.send(ANA, group),
        chat.send(ANA, peer=BEN),
        chat.create(ANA, BEN),
        chat.add(group, user(9)),
    ):
        with pytest.raises(ArchiveBacklogFull):
            await refusal
    assert (await chat.head(group), metric("qim_writer_outbox_refusals_total")) == (head, before + 4)
    # What was carried out before has its answer; what is in effect already is no growth.
    assert await chat.create(ANA, BEN, CARA, request_id=request) == group
    assert (await chat.add(group, DAN, request_id=joined)).seq == 2
    assert (await chat.add(group, DAN)).changed == 0
    await chat.remove(group, DAN)
    await chat.leave(CARA, group)
    await groups.clear_group(chat.operator, uuid7(), group, 1)
    await OwnClear(outbox.stores.membership, states)(acting(ANA), uuid7(), group, 2)
    assert await chat.read(ANA, group) == [3, 4]
    await outbox.fill(0)
    assert (await chat.send(ANA, group, message_id=message)).seq == sent.seq
    assert (await chat.send(ANA, group)).seq == 5


async def test_it_looks_by_itself_and_keeps_its_state_while_an_instance_is_down(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_module, "LOOK_SECONDS", 0.005)
    looking = asyncio.create_task(outbox.gate.run())
    await outbox.stores.call("HSET", outbox.stores.store.buckets[0].meta, "rec", MOST + 1)
    await until(outbox, full=True)
    instance = outbox.stores.store.instances[0]
    connection = instance.connection
    connection.close("the test")
    await connection.wait_closed()
    await outbox.gate.look()
    assert outbox.gate.full(0)
    await connected_again(instance)
    await outbox.stores.call("HSET", outbox.stores.store.buckets[0].meta, "arcd", MOST)
    await until(outbox, full=False)
    looking.cancel()


async def until(outbox: Outbox, *, full: bool) -> None:
    async with asyncio.timeout(20):
        while outbox.gate.full(0) is not full:  # noqa: ASYNC110  it looks by itself
            await asyncio.sleep(0.002)


async def test_what_is_committed_is_counted(outbox: Outbox) -> None:
    group = await outbox.chat.create(ANA, BEN)
    await outbox.chat.send_many(MOST, ANA, group)
    await outbox.gate.look()
    assert await refused(outbox, group)


@pytest.mark.parametrize("junk", [("HSET", "rec", "many"), ("SET", "a string")])
async def test_counters_that_are_none_hide_the_number_and_not_the_gate(outbox: Outbox, junk: tuple[str, ...]) -> None:
    group = await outbox.chat.create(ANA, BEN)
    own = outbox.stores.bucket(group)
    strange = next(bucket for bucket in outbox.stores.store.buckets if bucket.bucket != own.bucket)
    verb, *rest = junk
    await outbox.stores.call("DEL", strange.meta)
    await outbox.stores.call(verb, strange.meta, *rest)
    await outbox.stores.call("HSET", own.meta, "rec", 101, "arcd", 0)
    await outbox.gate.look()
    assert math.isnan(metric("qim_writer_outbox_messages", instance="0"))
    assert await refused(outbox, group)


async def test_the_number_is_unknown_while_an_instance_does_not_answer(
    valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with redis_stores(valkey, buckets=4, outbox_max=MOST) as stores:
        await stores.begin_archive()
        gate = stores.store.backlog
        assert gate is not None
        await gate.look()
        assert metric("qim_writer_outbox_messages", instance="0") == 0
        valkey.kill()
        for _ in range(5):
            await gate.look()
        assert math.isnan(metric("qim_writer_outbox_messages", instance="0"))
        valkey.start()
        await connected_again(stores.store.instances[0])
        await gate.look()
        assert metric("qim_writer_outbox_messages", instance="0") == 0
    assert caplog.text.count("its backlog is not known") == 1
    assert caplog.text.count("its backlog is known again") == 1

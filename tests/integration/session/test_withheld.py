"""The mailbox after clearing: every delivered seq comes, with its body or withheld (design.md invariant 12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import redis
from tests.support.valkey import require_valkey

from qim_client import ActorClient, GatewayClient, GroupSettings, LeaverHistory, OperatorClient, Outgoing
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, uuid7
from qim_common.keys import ConversationKeys
from qim_common.topology import Topology
from qim_devkit.suite import Suite

TENANT = TenantId(1)
SECONDS = 10.0
SMALL = GroupSettings(broadcast_max_members=3)
"""With four members or more, events reach only those concerned."""

pytestmark = pytest.mark.server

Person = Callable[[], ActorClient]


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    require_valkey()
    directory: Path = tmp_path_factory.mktemp("withheld")
    async with Suite(directory / "suite", valkeys=1) as running:
        yield running


@pytest_asyncio.fixture(scope="module")
async def gateway(suite: Suite) -> AsyncIterator[GatewayClient]:
    addresses = suite.addresses
    async with GatewayClient(
        addresses["writer"], addresses["session"], suite.gateway_files(), timeout=SECONDS
    ) as client:
        yield client


@pytest_asyncio.fixture(scope="module")
async def operator(suite: Suite) -> AsyncIterator[OperatorClient]:
    async with OperatorClient(suite.addresses["admin"], suite.operator_files(), TENANT, timeout=SECONDS) as client:
        yield client


@pytest.fixture
def person(gateway: GatewayClient) -> Person:
    return lambda: gateway.as_actor(TENANT, UserId(uuid7()))


async def until_trimmed(suite: Suite, group: ConversationId, floor: int) -> None:
    """Wait until the records at and below the floor are gone."""
    topology = Topology(suite.valkey_addresses, 256, "")
    keys = ConversationKeys(TENANT, group, topology.conversation_bucket(TENANT, group))
    host, _, port = suite.valkey_addresses[0].rpartition(":")
    with redis.Redis(host=host, port=int(port), protocol=2) as store:
        async with asyncio.timeout(SECONDS):
            while int(store.hget(keys.grpmeta, "trimmed") or 0) < floor:  # noqa: ASYNC110  the writer tells nobody
                await asyncio.sleep(0.01)


async def mailbox(somebody: ActorClient, group: ConversationId, limit: int = 1000) -> list[int | tuple[int, int]]:
    """The whole mailbox in pages: messages as their seqs, withheld stretches as pairs."""
    async with asyncio.timeout(SECONDS):
        while group not in {entry.conversation async for entry in somebody.conversations()}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    found: list[int | tuple[int, int]] = []
    page = await somebody.pull_mailbox(limit=limit)
    while page.entries:
        for entry in page.entries:
            if entry.message is not None:
                found.append(entry.message.seq)
            elif entry.withheld is not None:
                found.append((entry.withheld.first, entry.withheld.last))
        page = await somebody.pull_mailbox(ack=[page.entries[-1].cursor], limit=limit)
    return found


async def send(somebody: ActorClient, group: ConversationId, count: int) -> None:
    for _ in range(count):
        await somebody.send_to(group, b"x")


async def test_below_the_floor_is_one_range_for_each_delivered_stretch(
    suite: Suite, operator: OperatorClient, person: Person
) -> None:
    ana, ben, cara, dan, eve = (person() for _ in range(5))
    group = (await ana.create_group([ben.actor.user, cara.actor.user], settings=SMALL)).group
    await send(ana, group, 3)
    await operator.add_members(group, [dan.actor.user])  # seq 4 reaches dan only
    await send(ana, group, 2)
    await operator.add_members(group, [eve.actor.user])  # seq 7 reaches eve only
    await send(ana, group, 4)
    await operator.clear_group_history(group, up_to_seq=9)
    assert await mailbox(ana, group) == [(1, 3), (5, 6), (8, 9), 10, 11]
    # The own event keeps its body while its record is there, and is one seq among others afterwards.
    await until_trimmed(suite, group, 9)
    assert await mailbox(dan, group) == [(4, 6), (8, 9), 10, 11]
    assert await mailbox(eve, group) == [(7, 9), 10, 11]


async def test_the_own_event_comes_with_its_body_though_it_is_hidden(operator: OperatorClient, person: Person) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    await send(ana, group, 2)
    await operator.remove_members(group, [ben.actor.user], leaver_history=LeaverHistory.NONE)
    assert await mailbox(ben, group) == [(1, 2), 3]


async def test_an_own_clear_withholds_what_was_delivered(person: Person) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    await send(ana, group, 5)
    await ben.clear_history(group, up_to_seq=3)
    assert await mailbox(ben, group) == [(1, 3), 4, 5]
    assert await mailbox(ana, group) == [1, 2, 3, 4, 5]


async def test_pages_of_any_size_hold_the_same(
    gateway: GatewayClient, operator: OperatorClient, person: Person
) -> None:
    ana, ben, cara = person(), person(), person()
    group = (await ana.create_group([ben.actor.user, cara.actor.user], settings=SMALL)).group
    for _ in range(3):
        await send(ana, group, 2)
        await operator.add_members(group, [person().actor.user])
    await operator.clear_group_history(group, up_to_seq=4)
    for limit in (1, 2, 3, 1000):
        fresh = gateway.as_actor(TENANT, ben.actor.user, DeviceId(uuid7()))
        assert await mailbox(fresh, group, limit) == [(1, 2), (4, 4), 5, 7, 8]


async def test_a_long_history_below_the_floor_is_one_entry(
    suite: Suite, gateway: GatewayClient, operator: OperatorClient, person: Person
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    async with gateway.open_stream() as stream:
        for _ in range(20):
            await stream.send([Outgoing(ana.actor, b"x", conversation=group) for _ in range(256)])
    await operator.clear_group_history(group, up_to_seq=5_118)
    await until_trimmed(suite, group, 5_118)
    assert await mailbox(ben, group, 3) == [(1, 5_118), 5_119, 5_120]

"""Session replicas that are killed, started again and stopped for a while under traffic.

Whatever happens to one of them, the others project its partitions, and people's lists, conversation sets and mailboxes
are what a fold of the answered sends and changes says.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.projection import BUCKETS, Projection
from tests.support.service_metrics import counted
from tests.support.traffic import Room, Traffic
from tests.support.valkey import require_valkey

from qim_client import GatewayClient, OperatorClient
from qim_client.names import user_id
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, group_conversation_id, uuid7
from qim_devkit.suite import Suite

TENANT = TenantId(1)
SESSIONS = 3
RATE = 400
TAKEN_OVER_SECONDS = 10.0
"""How long the partitions of a dead replica may stay behind (a lease lasts 6 s and is renewed every 2 s)."""

SETTLE_SECONDS = 30.0
CALLS_AT_ONCE = 16
PAGE = 1000
WATCHER = user_id("watcher")
"""Is in every conversation, and so has one in each partition."""

PEOPLE = [user_id(f"person-{number}") for number in range(12)]

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(180)]


@dataclass
class Replicas:
    """A suite with three session replicas, and one conversation in each dispatch partition."""

    suite: Suite
    gateways: dict[str, GatewayClient]
    operator: OperatorClient
    projection: Projection
    traffic: Traffic

    async def create(self, groups: Iterable[ConversationId]) -> None:
        """Make groups of the watcher and three others, in which traffic runs from now on."""
        at_once = asyncio.Semaphore(CALLS_AT_ONCE)
        choice = random.Random(str(groups))  # noqa: S311 - no secret

        async def create(group: ConversationId) -> None:
            owner, *others = choice.sample(PEOPLE, 3)
            async with at_once:
                created = (
                    await self.gateways["session"].as_actor(TENANT, owner).create_group([WATCHER, *others], group=group)
                )
            self.traffic.rooms.append(Room(created.group, dict.fromkeys([owner, WATCHER, *others], 1)))

        await asyncio.gather(*map(create, groups))

    async def add(self, room: Room, user: UserId) -> None:
        """An operator adds somebody."""
        added = await self.operator.add_members(room.conversation, [user])
        room.event(added.seq, added.time_ms)
        room.members[user] = added.seq

    async def everything_is_projected(self, seconds: float) -> None:
        """A message in every conversation, and all are projected by whoever holds the leases, in everybody's list."""
        async with asyncio.timeout(seconds):
            async with self.gateways["session"].open_stream() as stream:
                rooms = list(self.traffic.rooms)
                for start in range(0, len(rooms), 64):
                    await self.traffic.send(stream, rooms[start : start + 64])
            wanted = {room.conversation: room.time_ms for room in rooms}
            await self.until(lambda: self.settled(max(wanted.values())))
        assert await self.reached(wanted)

    async def settled(self, time_ms: int) -> bool:
        """Whether the holders of the leases have projected everything up to this time, in every partition."""
        return await self.projection.settled_ms() >= time_ms

    async def reached(self, wanted: dict[ConversationId, int]) -> bool:
        """Whether the lists of all members have these conversations at these times, or later ones."""
        people = {user for room in self.traffic.rooms for user in room.members}
        lists = dict(zip(people, await asyncio.gather(*map(self.projection.activity, people)), strict=True))
        return all(
            lists[user].get(room.conversation, 0) >= wanted[room.conversation]
            for room in self.traffic.rooms
            if room.conversation in wanted
            for user in room.members
        )

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait; the caller bounds it."""
        while not await condition():  # noqa: ASYNC110  the store tells nobody
            await asyncio.sleep(0.05)

    async def shared_by(self, replicas: int) -> None:
        """Wait until so many replicas hold all partitions, each its share."""

        async def shared() -> bool:
            holders = Counter((await self.projection.leases()).values())
            shares = sorted(holders.values())
            return len(shares) == replicas and sum(shares) == BUCKETS and shares[-1] - shares[0] <= 1

        async with asyncio.timeout(SETTLE_SECONDS):
            await self.until(shared)

    async def compare_everything(self) -> None:
        """Lists, conversation sets and mailboxes of everybody are what was sent; asked at different replicas."""
        rooms = self.traffic.rooms
        async with asyncio.timeout(SETTLE_SECONDS):
            await self.until(lambda: self.reached({room.conversation: room.time_ms for room in rooms}))
        gateways = list(self.gateways.values())
        for number, user in enumerate({user for room in rooms for user in room.members}):
            own = {room.conversation: room for room in rooms if user in room.members}
            await self.registered(user, set(own))
            person = gateways[number % len(gateways)].as_actor(TENANT, user, DeviceId(uuid7()))
            entries = [entry async for entry in person.conversations()]
            assert [entry.last_activity_ms for entry in entries] == sorted(
                (room.time_ms for room in own.values()), reverse=True
            )
            told = {entry.conversation: (entry.last_activity_ms, entry.unread_count) for entry in entries}
            assert told == {group: (room.time_ms, room.unread(user)) for group, room in own.items()}
            mailbox: dict[ConversationId, list[int]] = {}
            page = await person.pull_mailbox(limit=PAGE)
            while page.entries:
                newest = {}
                for entry in page.entries:
                    assert entry.message is not None
                    mailbox.setdefault(entry.conversation, []).append(entry.message.seq)
                    newest[entry.conversation] = entry.cursor
                page = await person.pull_mailbox(ack=list(newest.values()), limit=PAGE)
            assert mailbox == {group: list(range(room.members[user], room.head + 1)) for group, room in own.items()}
        assert await counted(self.suite, "qim_session_group_interval_missing_total", *self.suite.session_names) == 0

    async def registered(self, user: UserId, wanted: set[ConversationId]) -> None:
        """Wait until the person's set holds exactly these."""

        async def held() -> bool:
            return await self.projection.authority(user) >= wanted

        async with asyncio.timeout(SETTLE_SECONDS):
            await self.until(held)
        assert await self.projection.authority(user) == wanted


def one_in_each_partition(projection: Projection) -> list[ConversationId]:
    """Ids of groups whose partitions are all there are."""
    found: dict[int, ConversationId] = {}
    while len(found) < BUCKETS:
        group = group_conversation_id(ConversationId(uuid7()))
        found.setdefault(projection.topology.conversation_bucket(TENANT, group), group)
    return list(found.values())


@pytest_asyncio.fixture(scope="module")
async def replicas(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Replicas]:
    """A suite that these tests may break; each leaves it with three replicas that run."""
    require_valkey()
    directory: Path = tmp_path_factory.mktemp("replicas") / "suite"
    async with AsyncExitStack() as stack:
        suite = await stack.enter_async_context(Suite(directory, sessions=SESSIONS))
        gateways = {
            name: await stack.enter_async_context(
                GatewayClient(suite.addresses["writer"], suite.addresses[name], suite.gateway_files(), timeout=30.0)
            )
            for name in suite.session_names
        }
        operator = OperatorClient(suite.addresses["admin"], suite.operator_files(), TENANT, timeout=30.0)
        stack.push_async_callback(operator.close)
        projection = await stack.enter_async_context(Projection(suite, TENANT))
        running = Replicas(suite, gateways, operator, projection, Traffic(TENANT, []))
        await running.create(one_in_each_partition(projection))
        yield running


async def test_the_partitions_of_a_killed_replica_move_within_10_s_and_some_come_back(replicas: Replicas) -> None:
    await replicas.shared_by(SESSIONS)
    async with replicas.traffic.running(replicas.gateways["session"], a_second=RATE):
        await replicas.traffic.more(500)
        await replicas.suite.kill("session")
        await replicas.everything_is_projected(TAKEN_OVER_SECONDS)
        await replicas.shared_by(SESSIONS - 1)
        await replicas.create(group_conversation_id(ConversationId(uuid7())) for _ in range(20))
        await replicas.suite.restart("session")
        await replicas.shared_by(SESSIONS)
        await replicas.everything_is_projected(TAKEN_OVER_SECONDS)
        await replicas.traffic.more(500)
    await replicas.compare_everything()


async def test_a_replica_that_stands_still_for_longer_than_its_leases_does_no_harm_when_it_wakes_up(
    replicas: Replicas,
) -> None:
    await replicas.shared_by(SESSIONS)
    async with replicas.traffic.running(replicas.gateways["session"], a_second=RATE):
        await replicas.traffic.more(500)
        replicas.suite.pause("session-1")
        try:
            await replicas.everything_is_projected(TAKEN_OVER_SECONDS)
            await replicas.shared_by(SESSIONS - 1)
            for room, newcomer in zip(replicas.traffic.rooms[:20], itertools.cycle(PEOPLE), strict=False):
                if newcomer not in room.members:
                    await replicas.add(room, newcomer)
            await replicas.create(group_conversation_id(ConversationId(uuid7())) for _ in range(20))
            await replicas.traffic.more(500)
        finally:
            replicas.suite.resume("session-1")
        await replicas.shared_by(SESSIONS)
        await replicas.everything_is_projected(TAKEN_OVER_SECONDS)
        await replicas.traffic.more(500)
    await replicas.compare_everything()

"""T-HEAVY: a person with 5,000 conversations sees all of them while traffic runs in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.traffic import Room, Traffic
from tests.support.valkey import require_valkey

from qim_client import GatewayClient
from qim_client.answers import Conversation
from qim_client.names import user_id
from qim_common.ids import TenantId, UserId, direct_conversation_id
from qim_devkit.suite import Suite

TENANT = TenantId(1)
DIRECT, GROUPS = 4_500, 500
HEAVY = user_id("heavy")
FRAME = 250
CALLS_AT_ONCE = 16
SETTLE_SECONDS = 60.0

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest_asyncio.fixture
async def suite(tmp_path: Path) -> AsyncIterator[Suite]:
    require_valkey()
    async with Suite(tmp_path / "suite", sessions=2) as running:
        yield running


async def rooms_of(gateway: GatewayClient) -> list[Room]:
    """The person's conversations: direct ones, which begin with the first message, and groups of two."""
    rooms = []
    for number in range(DIRECT):
        peer = user_id(f"peer-{number}")
        conversation = direct_conversation_id(TENANT, HEAVY, peer)
        rooms.append(Room(conversation, {HEAVY: 1, peer: 1}, peers=(HEAVY, peer)))
    at_once = asyncio.Semaphore(CALLS_AT_ONCE)

    async def create(owner: UserId) -> Room:
        async with at_once:
            created = await gateway.as_actor(TENANT, owner).create_group([HEAVY])
            return Room(created.group, {owner: 1, HEAVY: 1})

    return rooms + await asyncio.gather(*(create(user_id(f"owner-{number}")) for number in range(GROUPS)))


async def whole_list(gateway: GatewayClient, page_size: int) -> list[Conversation]:
    """The list as it comes, page after page."""
    person = gateway.as_actor(TENANT, HEAVY)
    page = await person.list_conversations(page_size=page_size)
    entries = list(page.conversations)
    while page.next_page_token:
        page = await person.list_conversations(page_size=page_size, page_token=page.next_page_token)
        entries += page.conversations
    return entries


async def test_a_person_sees_all_of_5000_conversations_while_traffic_runs_in_them(suite: Suite) -> None:
    gateways = [
        GatewayClient(suite.addresses["writer"], suite.addresses[name], suite.gateway_files(), timeout=30.0)
        for name in suite.session_names
    ]
    async with gateways[0], gateways[1]:
        rooms = {room.conversation: room for room in await rooms_of(gateways[0])}
        traffic = Traffic(TENANT, list(rooms.values()))
        async with gateways[0].open_stream() as stream:
            for start in range(0, len(traffic.rooms), FRAME):
                await traffic.send(stream, traffic.rooms[start : start + FRAME])
        async with asyncio.timeout(SETTLE_SECONDS):
            while len(await whole_list(gateways[0], 1000)) < len(rooms):  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.05)

        async with traffic.running(gateways[0]):
            for gateway, page_size in zip(gateways * 2, (100, 1000, 500, 250), strict=True):
                began = traffic.sent
                entries = await whole_list(gateway, page_size)
                assert {entry.conversation for entry in entries} == rooms.keys(), f"pages of {page_size}"
                assert traffic.sent > began
            await traffic.more(FRAME)

        wanted = {room.conversation: (room.head, room.time_ms, room.unread(HEAVY)) for room in traffic.rooms}
        async with asyncio.timeout(SETTLE_SECONDS):
            while True:
                entries = await whole_list(gateways[1], 1000)
                times = [entry.last_activity_ms for entry in entries]
                if times == sorted((room.time_ms for room in traffic.rooms), reverse=True):
                    break
                await asyncio.sleep(0.05)
        told = {entry.conversation: (entry.head_seq, entry.last_activity_ms, entry.unread_count) for entry in entries}
        assert len(entries) == len(rooms)
        assert told == wanted
        unread = sum(room.unread(HEAVY) for room in traffic.rooms)
        assert [await gateway.as_actor(TENANT, HEAVY).get_total_unread() for gateway in gateways] == [unread, unread]

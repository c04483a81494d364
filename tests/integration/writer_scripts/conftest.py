"""The writer's stores on the shared Valkey, and helpers that look below them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.support.chat import Chat
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.ids import ConversationId
from qim_devkit.valkey import ValkeyServer
from qim_writer.domain.policy import Limits


@pytest_asyncio.fixture
async def stores(valkey_session: ValkeyServer) -> AsyncIterator[RedisStores]:
    """Stores on an empty server."""
    async with redis_stores(valkey_session) as opened:
        yield opened


@pytest_asyncio.fixture
async def chat(stores: RedisStores) -> Chat:
    """The writer's commands, with small bounds."""
    return Chat(stores, limits=Limits(broadcast_max_members=5, fanout_max_members=8))


async def move_head(stores: RedisStores, conversation: ConversationId, head: int) -> None:
    """Puts a conversation's head where it would take long to get by sending; its sender column is that of nobody."""
    keys = stores.keys(conversation)
    await stores.call("SET", keys.msgcseq, head)
    for segment in range(head // 65_536 + 1):
        seqs = min(head - segment * 65_536, 65_536)
        if seqs:
            await stores.call("SET", keys.msgsnd(segment), b"\xff\xff\xff" * seqs)

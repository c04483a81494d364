"""That the contract tests of the tiered backend do read from the archive."""

from __future__ import annotations

import pytest
from tests.contract.conftest import tiered_backend
from tests.support.chat import ANA, BEN, Chat
from tests.support.redis_stores import RedisStores

from qim_common.cassandra import CassandraSession
from qim_devkit.valkey import ValkeyServer

pytestmark = pytest.mark.server


async def test_only_what_must_stay_is_in_redis_when_messages_are_read(
    valkey_session: ValkeyServer, cassandra_session: CassandraSession
) -> None:
    async with tiered_backend(valkey_session, cassandra_session) as backend:
        assert isinstance(backend.stores, RedisStores)
        chat = Chat(backend.stores)
        group = await chat.create(ANA, BEN)
        await chat.send_many(5, ANA, group)
        await chat.leave(BEN, group)
        await chat.send_many(5, ANA, group)
        assert await chat.read(ANA, group) == list(range(1, 12))
        assert await chat.read(BEN, group) == list(range(1, 6))
        # The leave at 6 and what was right before it are previews; the newest message is one too.
        assert {int(seq) for seq in await backend.stores.hash(backend.stores.keys(group).msgrec)} == {5, 6, 11}

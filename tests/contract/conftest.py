"""The backends on which every test of this folder runs. A new one registers itself in BACKENDS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from tests.support.cassandra import CASSANDRA_MARKS
from tests.support.chat import Chat, Stores
from tests.support.redis_stores import RedisStores, redis_stores
from tests.support.tiered_stores import tiered_stores

from qim_common.cassandra import CassandraSession
from qim_common.ids import ConversationId
from qim_devkit.valkey import ValkeyServer
from qim_writer.domain.policy import Limits


@dataclass(frozen=True)
class Backend:
    """One backend for one test, empty at first.

    `forget_dispatch` does what the retention of the dispatch log does in time: every entry so far of the bucket that
    holds the conversation is gone. `stored_names` are the names of everything that is kept, to compare.
    """

    stores: Stores
    forget_dispatch: Callable[[ConversationId], Awaitable[None]]
    stored_names: Callable[[], Awaitable[set[bytes]]]


@asynccontextmanager
async def redis_backend(server: ValkeyServer) -> AsyncIterator[Backend]:
    """One Valkey."""
    async with redis_stores(server) as stores:
        yield Backend(stores, stores.forget_dispatch, lambda: _names(stores))


@asynccontextmanager
async def tiered_backend(server: ValkeyServer, session: CassandraSession) -> AsyncIterator[Backend]:
    """One Valkey, from which everything is archived before it is read (tests.support.tiered_stores)."""
    async with tiered_stores(server, session) as (stores, archiving):

        async def forget_dispatch(conversation: ConversationId) -> None:
            await archiving.archive()
            await stores.forget_dispatch(conversation)

        yield Backend(stores, forget_dispatch, lambda: _names(stores))


async def _names(stores: RedisStores) -> set[bytes]:
    return set(await stores.call("KEYS", "*"))


Opened = AbstractAsyncContextManager[Backend]
BACKENDS: dict[str, Callable[[pytest.FixtureRequest], Opened]] = {
    "redis": lambda request: redis_backend(request.getfixturevalue("valkey_session")),
    "tiered": lambda request: tiered_backend(
        request.getfixturevalue("valkey_session"), request.getfixturevalue("cassandra_session")
    ),
}
MARKS = {"redis": (), "tiered": CASSANDRA_MARKS}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test that asks for a backend needs a server."""
    for item in items:
        if "backend" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.server)


@pytest.fixture(params=[pytest.param(name, marks=MARKS[name]) for name in BACKENDS])
def opening(request: pytest.FixtureRequest) -> Opened:
    """Each backend in turn, its servers running."""
    return BACKENDS[request.param](request)


@pytest_asyncio.fixture
async def backend(opening: Opened) -> AsyncIterator[Backend]:
    """Each backend in turn, for one test."""
    async with opening as opened:
        yield opened


@pytest_asyncio.fixture
async def chat(backend: Backend) -> Chat:
    """The writer's commands on the backend, with small bounds."""
    return Chat(backend.stores, limits=Limits(broadcast_max_members=6, fanout_max_members=10))

"""The backends on which every test of this folder runs. A new one registers itself in BACKENDS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from tests.support.chat import Chat, Stores
from tests.support.redis_stores import redis_stores

from qim_common.ids import ConversationId
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
async def redis_backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """One Valkey."""
    async with redis_stores(request.getfixturevalue("valkey_session")) as stores:

        async def stored_names() -> set[bytes]:
            return set(await stores.call("KEYS", "*"))

        yield Backend(stores, stores.forget_dispatch, stored_names)


BACKENDS: dict[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Backend]]] = {
    "redis": redis_backend,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test that asks for a backend needs a server."""
    for item in items:
        if "backend" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.server)


@pytest_asyncio.fixture(params=sorted(BACKENDS))
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """Each backend in turn."""
    async with BACKENDS[request.param](request) as opened:
        yield opened


@pytest_asyncio.fixture
async def chat(backend: Backend) -> Chat:
    """The writer's commands on the backend, with small bounds."""
    return Chat(backend.stores, limits=Limits(broadcast_max_members=6, fanout_max_members=10))

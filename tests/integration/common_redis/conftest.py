"""Connections and instances that end with their test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio

from qim_common.redis import Connection, Instance, RedisAddress
from qim_devkit.valkey import ValkeyServer

MakeInstance = Callable[..., Instance]
Until = Callable[[Callable[[], bool]], Awaitable[None]]

BOUND_SECONDS = 10.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that the event loop or a child process brings about."""
    async with asyncio.timeout(BOUND_SECONDS):
        while not condition():  # noqa: ASYNC110  conditions of another process have no event
            await asyncio.sleep(0.002)


@pytest_asyncio.fixture
async def connection(valkey_session: ValkeyServer) -> AsyncIterator[Connection]:
    """A connection to the shared server."""
    opened = await Connection.open(RedisAddress.parse(valkey_session.address), name="test")
    yield opened
    opened.close()
    await opened.wait_closed()


@pytest_asyncio.fixture
async def make_instance() -> AsyncIterator[MakeInstance]:
    """A function that makes instances (not started), all closed at the end of the test."""
    made: list[Instance] = []

    def make(server: ValkeyServer, position: int = 0, **options: float | None) -> Instance:
        made.append(Instance(server.address, name="test", instance_position=position, **options))
        return made[-1]

    yield make
    for instance in made:
        await instance.close()

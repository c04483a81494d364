"""Client CPU per call: `Connection` against redis-py's asyncio client and its pipeline, in one run on one server.

Two shapes: a small command, and the script call of a group commit (storage.md, "Speed"): 770 arguments of 100 bytes.
CPU is user and system time of this process only; the server's is not in it. Takes less than ten seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import redis.asyncio

from qim_common.redis import Argument, Connection, RedisAddress
from qim_devkit.valkey import ValkeyServer

SCRIPT = "#!lua flags=no-writes\nreturn ARGV[1]"
BATCH_ARGUMENTS = 770
ARGUMENT_BYTES = 100
IN_FLIGHT = 32
ROUNDS = 3

Call = Callable[[int], Awaitable[object]]
"""Makes that many calls, `IN_FLIGHT` at a time."""


@dataclass(frozen=True)
class Shape:
    """What one call sends, and how many calls one measurement makes."""

    name: str
    command: tuple[Argument, ...]
    calls: int


async def cpu_per_call(make_calls: Call, calls: int) -> float:
    """The least CPU time per call of some rounds, in microseconds."""
    await make_calls(IN_FLIGHT)
    best = float("inf")
    for _ in range(ROUNDS):
        before = time.process_time()
        await make_calls(calls)
        best = min(best, (time.process_time() - before) / calls * 1e6)
    return best


def with_connection(connection: Connection, command: Sequence[Argument]) -> Call:
    """`Connection.call`, a window of calls at a time."""

    async def make_calls(calls: int) -> None:
        for _ in range(calls // IN_FLIGHT):
            futures = [connection.call(*command) for _ in range(IN_FLIGHT)]
            for future in futures:
                await future

    return make_calls


def with_connection_pipeline(connection: Connection, command: Sequence[Argument]) -> Call:
    """`Connection.pipeline`: one write and one future for a window of commands."""

    async def make_calls(calls: int) -> None:
        for _ in range(calls // IN_FLIGHT):
            await connection.pipeline([command] * IN_FLIGHT)

    return make_calls


def with_client(client: redis.asyncio.Redis, command: Sequence[Argument]) -> Call:
    """redis-py's asyncio client, with a connection of its pool for each call in flight."""

    async def make_calls(calls: int) -> None:
        for _ in range(calls // IN_FLIGHT):
            calls_in_flight = (
                client.execute_command(*command)  # type: ignore[no-untyped-call]
                for _ in range(IN_FLIGHT)
            )
            await asyncio.gather(*calls_in_flight)

    return make_calls


def with_client_pipeline(client: redis.asyncio.Redis, command: Sequence[Argument]) -> Call:
    """redis-py's asyncio pipeline of a window of commands."""

    async def make_calls(calls: int) -> None:
        for _ in range(calls // IN_FLIGHT):
            pipeline = client.pipeline(transaction=False)
            for _ in range(IN_FLIGHT):
                pipeline.execute_command(*command)
            await pipeline.execute()

    return make_calls


@dataclass(frozen=True, slots=True)
class ClientCost:
    """Microseconds of this process's CPU per call, by shape."""

    client: str
    cpu_us: dict[str, float]


async def connection(*, quick: bool) -> list[ClientCost]:
    """Measures every client with every shape. Raises ValkeyStartError."""
    scale = 4 if quick else 1
    shapes = [
        Shape("PING", ("PING",), 3200 // scale),
        Shape(f"EVALSHA, {BATCH_ARGUMENTS} x {ARGUMENT_BYTES} bytes", (), 320 // scale),
    ]
    with ValkeyServer() as server:
        own = await Connection.open(RedisAddress.parse(server.address), name="bench")
        client = redis.asyncio.Redis(host=server.host, port=server.port, protocol=2, max_connections=2 * IN_FLIGHT)
        sha1 = (await own.call("SCRIPT", "LOAD", SCRIPT)).decode()
        call: tuple[Argument, ...] = ("EVALSHA", sha1, 0, *[bytes(ARGUMENT_BYTES)] * BATCH_ARGUMENTS)
        ways: dict[str, Callable[[Sequence[Argument]], Call]] = {
            "qim Connection.call": partial(with_connection, own),
            "qim Connection.pipeline": partial(with_connection_pipeline, own),
            "redis-py asyncio": partial(with_client, client),
            "redis-py asyncio pipeline": partial(with_client_pipeline, client),
        }
        costs = []
        for name, make in ways.items():
            figures = {
                shape.name: round(await cpu_per_call(make(shape.command or call), shape.calls), 1) for shape in shapes
            }
            costs.append(ClientCost(name, figures))
        await client.aclose()
        own.close()
        await own.wait_closed()
    return costs

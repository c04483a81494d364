"""Client CPU per call: `Connection` against redis-py's asyncio client and its pipeline, in one run on one server.

    python bench/redis_connection.py

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
import uvloop
from rich.console import Console
from rich.table import Table

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


async def main() -> None:
    """Measure and print the table."""
    table = Table(title=f"client CPU per call in us, {IN_FLIGHT} in flight, best of {ROUNDS} rounds")
    with ValkeyServer() as server:
        connection = await Connection.open(RedisAddress.parse(server.address), name="bench")
        client = redis.asyncio.Redis(host=server.host, port=server.port, protocol=2, max_connections=2 * IN_FLIGHT)
        sha1 = (await connection.call("SCRIPT", "LOAD", SCRIPT)).decode()
        arguments = [bytes(ARGUMENT_BYTES)] * BATCH_ARGUMENTS
        shapes = [
            Shape("PING", ("PING",), 3200),
            Shape(f"EVALSHA, {BATCH_ARGUMENTS} x {ARGUMENT_BYTES} bytes", ("EVALSHA", sha1, 0, *arguments), 320),
        ]
        table.add_column("client")
        for shape in shapes:
            table.add_column(shape.name, justify="right")
        ways: dict[str, Callable[[Sequence[Argument]], Call]] = {
            "qim Connection.call": partial(with_connection, connection),
            "qim Connection.pipeline": partial(with_connection_pipeline, connection),
            "redis-py asyncio": partial(with_client, client),
            "redis-py asyncio pipeline": partial(with_client_pipeline, client),
        }
        for name, make in ways.items():
            figures = [await cpu_per_call(make(shape.command), shape.calls) for shape in shapes]
            table.add_row(name, *(f"{figure:.1f}" for figure in figures))
        await client.aclose()
        connection.close()
        await connection.wait_closed()
    Console().print(table)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())

"""Prepared calls against one Redis, so many in flight: the time and the CPU that the instance takes for them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.figures import Latency, latency_of
from qim_common.redis import Argument, Connection, checked

Call = Sequence[Sequence[Argument]]
"""Commands that are written together; a script call is one command."""


@dataclass(frozen=True, slots=True)
class RedisFigures:
    """What the instance made of some calls.

    Attributes:
        per_second: messages.
        redis_us: microseconds of the instance's CPU per message, user and system (INFO cpu).
        client_us: the same of this process, which packs the arguments.
        latency: of whole calls, fsync included.
    """

    name: str
    messages: int
    per_call: int
    in_flight: int
    per_second: float
    redis_us: float
    client_us: float
    latency: Latency


async def replay(
    connection: Connection, name: str, calls: Sequence[Call], per_call: int, in_flight: int
) -> tuple[RedisFigures, list[Any]]:
    """Makes the calls in order, `in_flight` at a time; the figures and all replies.

    Raises ReplyError when a command fails, BackendUnavailable when the instance does."""
    latencies: list[float] = []
    replies: list[Any] = []
    waiting: deque[Any] = deque()
    redis_before, own_before, started = await cpu_of(connection), time.process_time(), time.perf_counter()

    def answered(begin: float, _: object) -> None:
        latencies.append(time.perf_counter() - begin)

    for call in calls:
        if len(waiting) >= in_flight:
            replies += checked(await waiting.popleft())
        future = connection.pipeline(call)
        future.add_done_callback(partial(answered, time.perf_counter()))
        waiting.append(future)
    while waiting:
        replies += checked(await waiting.popleft())
    seconds, own = time.perf_counter() - started, time.process_time() - own_before
    redis = await cpu_of(connection) - redis_before
    messages = len(calls) * per_call
    figures = RedisFigures(
        name=name,
        messages=messages,
        per_call=per_call,
        in_flight=in_flight,
        per_second=round(messages / seconds),
        redis_us=round(redis / messages * 1e6, 2),
        client_us=round(own / messages * 1e6, 2),
        latency=latency_of(latencies),
    )
    return figures, replies


async def cpu_of(connection: Connection) -> float:
    """CPU seconds of the instance so far, all its threads, user and system."""
    fields = await _cpu_fields(connection)
    return fields["used_cpu_sys"] + fields["used_cpu_user"]


async def main_thread_cpu(connection: Connection) -> float:
    """CPU seconds of the thread that executes commands, user and system."""
    fields = await _cpu_fields(connection)
    return fields["used_cpu_sys_main_thread"] + fields["used_cpu_user_main_thread"]


async def _cpu_fields(connection: Connection) -> dict[str, float]:
    text: bytes = await connection.call("INFO", "cpu")
    rows = (line.partition(":") for line in text.decode().splitlines() if ":" in line)
    return {name: float(value) for name, _, value in rows}

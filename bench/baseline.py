"""What the machine gives without qim: plain commands with messages of the same size, and its disk.

As redis-benchmark with `-P 256`, but through the connection that the writer uses, on a Valkey with the same settings
(`appendfsync always`), with two pipelines in flight as the writer has two calls.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.figures import Latency, latency_of
from bench.redis_load import Call, RedisFigures, replay
from qim_common.redis import Connection, RedisAddress
from qim_devkit.valkey import ValkeyServer

PER_CALL: Final = 256
IN_FLIGHT: Final = 2
_PROBES: Final = 200
_PROBE_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Baseline:
    """The disk's time for writing 64 KiB and `fdatasync`, and the plain commands."""

    fsync: Latency
    commands: list[RedisFigures]


async def baseline(messages: int, body_bytes: int) -> Baseline:
    """Measures both. Raises ValkeyStartError, ReplyError, BackendUnavailable."""
    body = random.Random(7).randbytes(body_bytes)  # noqa: S311  no secret
    ways: dict[str, Callable[[int], Call]] = {
        "SET a message": lambda at: [("SET", f"m:{at + k}", body) for k in range(PER_CALL)],
        "XADD a message, 200 streams": lambda at: [
            ("XADD", f"s:{(at + k) % 200}", "*", "e", body) for k in range(PER_CALL)
        ],
        "one HSET a call": lambda at: [("HSET", "h", *(part for k in range(PER_CALL) for part in (at + k, body)))],
    }
    figures = []
    with ValkeyServer() as server:
        connection = await Connection.open(RedisAddress.parse(server.address), name="bench")
        for name, make in ways.items():
            calls = [make(at) for at in range(0, messages, PER_CALL)]
            found, _ = await replay(connection, name, calls, PER_CALL, IN_FLIGHT)
            figures.append(found)
        connection.close()
        await connection.wait_closed()
    return Baseline(probe_fsync(), figures)


def probe_fsync() -> Latency:
    """The time of appending 64 KiB to a file and `fdatasync`, in the directory where the Valkeys keep their data."""
    block = os.urandom(_PROBE_BYTES)
    seconds = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(_PROBES):
            started = time.perf_counter()
            file.write(block)
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - started)
    return latency_of(seconds)

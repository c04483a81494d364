"""The commit instances of a suite with the backend `tiered`, for whoever runs it: does the suite take them as they are?

A Valkey that dies is started again with whatever data is there, as an orchestrator would do it. Whether it is the one
that was lost is not judged here but by the services; this module only reads what they found.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from qim_common.errors import BackendUnavailable
from qim_common.redis import Instance, RedisAddress, Role, StartRefused, read_fingerprint
from qim_common.redis.fence import is_known, read_fence
from qim_devkit.valkey import ValkeyServer

PAUSE_SECONDS: Final = 2.0
"""Between the end of a Valkey and its next start: time to take its data away, for whoever tries a recovery."""

_JUDGED_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.25
_CONNECT_SECONDS: Final = 5.0
_RECOVER: Final = '; its conversations wait for a recovery: docs/recovery.md, "Try it on one machine"'


async def start_again(number: int, server: ValkeyServer) -> None:
    """Start a Valkey that has ended, after a moment, as the instance `number`; standard error has a line of it.

    Called in a thread that outlives the server (qim_devkit.tether). Raises ValkeyStartError.
    """
    _tell(f"valkey-{number} has ended; it is started again with the data that is there")
    await asyncio.sleep(PAUSE_SECONDS)
    server.start()


async def tell_of(number: int, server: ValkeyServer) -> None:
    """Tell on standard error where the services do not take the instance `number`; nothing where they do."""
    end = asyncio.get_running_loop().time() + _JUDGED_SECONDS
    found = await judge(server.address)
    while found is None and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(_POLL_SECONDS)
        found = await judge(server.address)
    if found is None:
        _tell(f"instance {number} (valkey-{number}) is not compared with the archive yet: does Cassandra answer?")
    elif found:
        _tell(f"instance {number} (valkey-{number}) {found}{_RECOVER}")


async def judge(address: str) -> str | None:
    """What is wrong with a commit instance, in words; empty where it is taken, None where nobody has judged it yet."""
    instance = Instance(RedisAddress.parse(address), name="qim-dev", instance_position=0)
    try:
        await instance.start(_CONNECT_SECONDS)
        if await read_fingerprint(instance, Role.COMMIT) is None:
            return "has no fingerprint: its data is gone"
        mark, ids = await read_fence(instance)
    except (BackendUnavailable, StartRefused):
        return None
    finally:
        await instance.close()
    if mark.fenced:
        return f"is fenced: {mark.fenced}"
    return "" if is_known(mark, ids) else None


def _tell(words: str) -> None:
    print(f"qim: {words}", file=sys.stderr, flush=True)

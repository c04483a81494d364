"""Who recovers an instance: one run at a time, for as long as it says that it lives."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from qim_common.recovery import RecoveryRefused
from qim_writer.storage_recovery import RecoverableInstance

LOCK_WAIT_SECONDS: Final = 40.0
"""Longer than the lock of a run that was killed lives."""

_LOCK_PAUSE_SECONDS: Final = 0.5
_RENEW_SECONDS: Final = 5.0


@asynccontextmanager
async def locked(instance: RecoverableInstance) -> AsyncIterator[None]:
    """Hold the right to recover the instance, renewed while the work goes on.

    Raises RecoveryRefused: another run has it, or has taken it because this one stood still."""
    token = secrets.token_hex(16)
    end = time.monotonic() + LOCK_WAIT_SECONDS
    while not await instance.lock(token):
        if time.monotonic() > end:
            raise RecoveryRefused("another recovery of this instance is running")
        await asyncio.sleep(_LOCK_PAUSE_SECONDS)
    overtaken = asyncio.Event()
    keeper = asyncio.create_task(_keep(instance, token, asyncio.current_task(), overtaken))
    try:
        yield
    except asyncio.CancelledError:
        if overtaken.is_set():
            raise RecoveryRefused("another recovery of this instance has begun") from None
        raise
    finally:
        keeper.cancel()
        await asyncio.wait([keeper])
        await instance.unlock(token)


async def _keep(
    instance: RecoverableInstance, token: str, worker: asyncio.Task[object] | None, overtaken: asyncio.Event
) -> None:
    while True:
        await asyncio.sleep(_RENEW_SECONDS)
        if not await instance.lock(token) and worker is not None:
            overtaken.set()
            worker.cancel()

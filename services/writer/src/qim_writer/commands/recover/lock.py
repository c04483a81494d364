"""Who recovers an instance: one run at a time, for as long as it says that it lives."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from qim_common.errors import BackendUnavailable, QimError
from qim_common.recovery import RecoveryRefused
from qim_writer.storage_recovery import RecoverableInstance

LOCK_WAIT_SECONDS: Final = 40.0
"""Longer than the lock of a run that was killed lives."""

_LOCK_PAUSE_SECONDS: Final = 0.5
_RENEW_SECONDS: Final = 5.0
_HELD_SECONDS: Final = 20.0
"""How long a run goes on without a renewal, less than the lock lives: the instance may be connecting again."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def locked(instance: RecoverableInstance) -> AsyncIterator[None]:
    """Hold the right to recover the instance, renewed while the work goes on.

    Raises RecoveryRefused: another run has it, or has taken it or may soon because this one could not renew it."""
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
            raise RecoveryRefused("the right to recover this instance was lost: another run may have begun") from None
        raise
    finally:
        keeper.cancel()
        await asyncio.wait([keeper])
        with suppress(BackendUnavailable):
            # Without an answer it ends by itself.
            await instance.unlock(token)


async def _keep(
    instance: RecoverableInstance, token: str, worker: asyncio.Task[object] | None, overtaken: asyncio.Event
) -> None:
    held_at = time.monotonic()
    while True:
        await asyncio.sleep(_RENEW_SECONDS)
        asked, held = time.monotonic(), True
        try:
            held = await instance.lock(token)
            held_at = asked
        except QimError as error:
            _log.warning("the lock of the recovery was not renewed: %s", error)
        if (not held or time.monotonic() - held_at > _HELD_SECONDS) and worker is not None:
            overtaken.set()
            worker.cancel()
            return

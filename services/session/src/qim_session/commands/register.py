"""The registrar: from the list of new conversations to the authority (storage.md, "Session").

It writes first and pops then, and only heads that equal what it wrote: a crash in between repeats a write that has
no second effect, and several registrars drop nothing that nobody wrote. The projection never waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from qim_common.backoff import Backoff
from qim_common.errors import QimError
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.domain.entries import ProjectionEntry
from qim_session.storage.projection import ENTRIES_PER_CALL, ConversationSets, ProjectionStore

_log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 1.0
"""How often the list is looked at without being told: what another process left there is found."""


class Registrar:
    """Registers what waits on one session instance. Run `run` in a task; cancel it to stop."""

    def __init__(self, store: ProjectionStore, sets: ConversationSets, metrics: SessionMetrics) -> None:
        self._store = store
        self._sets = sets
        self._metrics = metrics
        self._news = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._asked = 0
        self._flushed = 0

    def notify(self) -> None:
        """Something waits: look at once."""
        self._news.set()

    async def run(self) -> None:
        """Register until cancelled."""
        backoff = Backoff()
        while True:
            try:
                registered = await self.register_batch()
            except QimError as error:
                _log.warning("conversations cannot be registered now", extra={"error": str(error)})
            except Exception:  # noqa: BLE001  what waits stays on the list and is tried again
                _log.exception("registering conversations failed")
            else:
                backoff.reset()
                if not registered:
                    await self._wait_for_news()
                continue
            self._metrics.conversation_state_failures.inc()
            await backoff.sleep()

    async def register_batch(self) -> int:
        """Register up to 250 conversations; returns how many were found, 0 when nothing waits.

        Raises BackendUnavailable: some may have been written; they stay on the list.
        """
        entries, waiting = await self._store.pending(ENTRIES_PER_CALL)
        self._metrics.conversation_state_pending.set(waiting)
        if not entries:
            return 0
        await self._write(entries)
        return len(entries)

    async def flush(self) -> None:
        """Register everything that waits at this moment; also of other processes, whose registrars may go on meanwhile.

        Callers at the same time share the work. Raises BackendUnavailable.
        """
        self._asked += 1
        ticket = self._asked
        async with self._flushing:
            if self._flushed >= ticket:
                return  # by a flush that began after this call
            covered = self._asked
            await self._drain()
            self._flushed = covered

    async def _drain(self) -> None:
        # Everything that waited is written once as many as waited have been popped here, or none is left.
        left: int | None = None
        while left is None or left > 0:
            entries, waiting = await self._store.pending(ENTRIES_PER_CALL)
            if not entries:
                return
            left = waiting if left is None else left
            left -= await self._write(entries)

    async def _write(self, entries: Sequence[ProjectionEntry]) -> int:
        await self._sets.register(entries)
        self._metrics.conversation_state_written.inc(len(entries))
        return await self._store.pop_pending(entries)

    async def _wait_for_news(self) -> None:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await self._news.wait()
        except TimeoutError:
            return
        finally:
            self._news.clear()

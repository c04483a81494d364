"""Which partitions this replica consumes (storage.md, "Session": replicas share partitions by leases).

Every replica sends a heartbeat every 2 s to one script, which hands out fair shares. Leases decide who does the work,
not whether it is right: that is the checkpoint's compare-and-set, in every call of every batch. So a replica that was
stalled and wakes up does no harm, and two that hold a partition for a moment only waste some work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from qim_common.errors import BackendUnavailable, QimError
from qim_common.telemetry.metrics import DispatchMetrics
from qim_session.domain.leases import LEASE_MS, RENEW_SECONDS, Tenure, renewed
from qim_session.storage.partitions import LeaseStore

_log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 0.5
"""Between a heartbeat that failed and the next one."""


class Leases:
    """Holds this replica's share. `run` it in a task; to stop, cancel the task and then `release`.

    Args:
        store: the one that all replicas have in common.
        holder: this process's name, chosen at random at its start.
        on_change: called with everything that is held now, at once when it changes; must not block.
    """

    def __init__(
        self,
        store: LeaseStore,
        metrics: DispatchMetrics,
        *,
        holder: bytes,
        on_change: Callable[[frozenset[int]], None],
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._holder = holder
        self._on_change = on_change
        self._tenure = Tenure()
        self._told: frozenset[int] = frozenset()

    @property
    def held(self) -> frozenset[int]:
        """The partitions that were told last."""
        return self._told

    async def run(self) -> None:
        """Renew until cancelled. Heartbeats that fail for longer than a lease's life lose everything."""
        while True:
            sent_at = _now()
            if await self._renew(sent_at):
                next_at = sent_at + RENEW_SECONDS
            else:
                self._metrics.lease_failures.inc()
                next_at = _now() + AGAIN_SECONDS
                if self._told:
                    next_at = min(next_at, self._tenure.until)
            self._tell(self._tenure.at(_now()))
            await asyncio.sleep(next_at - _now())

    async def release(self) -> None:
        """Stop holding anything, and let the others have it at once; nothing is raised."""
        self._tenure = Tenure()
        self._tell(frozenset())
        try:
            async with asyncio.timeout(RENEW_SECONDS):
                await self._store.release(self._holder)
        except (QimError, TimeoutError) as error:
            _log.warning("leases could not be released and run out instead", extra={"error": str(error)})

    async def _renew(self, sent_at: float) -> bool:
        try:
            # No longer than what is held may be held, so that its end is noticed in time.
            left = self._tenure.until - sent_at if self._told else RENEW_SECONDS
            async with asyncio.timeout(min(RENEW_SECONDS, max(left, AGAIN_SECONDS))):
                partitions = await self._store.renew(self._holder, LEASE_MS)
        except TimeoutError:
            _log.warning("leases cannot be renewed in time")
        except BackendUnavailable as error:
            _log.warning("leases cannot be renewed", extra={"error": str(error)})
        except Exception:  # noqa: BLE001  a replica that cannot tell what it holds lets it run out
            _log.exception("renewing leases failed")
        else:
            self._tenure = renewed(partitions, sent_at)
            return True
        return False

    def _tell(self, held: frozenset[int]) -> None:
        if held == self._told:
            return
        gained, lost = held - self._told, self._told - held
        self._metrics.lease_takeovers.inc(len(gained))
        self._metrics.lease_losses.inc(len(lost))
        self._metrics.partitions_held.set(len(held))
        _log.info("partitions changed hands", extra={"held": len(held), "gained": len(gained), "lost": len(lost)})
        self._told = held
        self._on_change(held)


def _now() -> float:
    return asyncio.get_running_loop().time()

"""Whether this process is the archiver of an instance now: a lease that is renewed."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from qim_common.errors import QimError
from qim_common.telemetry.metrics import ArchiverMetrics
from qim_common.telemetry.standing import Standing
from qim_writer.storage_outbox import ArchiveLease

LEASE_SECONDS: Final = 5.0
"""A standby takes over after this at the latest, and the pause between two looks."""

RENEW_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


class Holding:
    """The lease of one instance, called `name` in logs. Two holders at once do no harm, so a late look costs repeated
    work only."""

    def __init__(self, lease: ArchiveLease, metrics: ArchiverMetrics, *, name: str = "the archiver's lease") -> None:
        self._lease = lease
        self._metrics = metrics
        self._held = asyncio.Event()
        self._name = name
        self._not_renewed = Standing(_log, "it is renewed again", level=logging.INFO)

    @property
    def held(self) -> bool:
        """Whether this process has it."""
        return self._held.is_set()

    async def wait(self) -> None:
        """Until this process has it."""
        await self._held.wait()

    async def run(self) -> None:
        """Takes and renews it until cancelled."""
        clock = asyncio.get_running_loop().time
        until = 0.0
        while True:
            asked = clock()
            try:
                until = asked + LEASE_SECONDS if await self._lease.hold() else 0.0
                self._not_renewed.over(self._name)
            except QimError as error:
                self._not_renewed.holds(self._name, f"it was not renewed: {error}")
            except Exception as error:  # noqa: BLE001  whatever it is, the next look tries again
                self._not_renewed.holds(self._name, f"it cannot be renewed: {error}", error)
            self._set(held=clock() < until)
            await asyncio.sleep(RENEW_SECONDS)

    async def release(self) -> None:
        """Gives it up; without an answer it ends by itself."""
        if not self.held:
            return
        self._set(held=False)
        try:
            await self._lease.release()
        except QimError as error:
            _log.info("the archiver's lease ends by itself: %s", error)

    def _set(self, *, held: bool) -> None:
        if held == self.held:
            return
        if held:
            self._held.set()
            self._metrics.leases_held.inc()
        else:
            self._held.clear()
            self._metrics.leases_held.dec()

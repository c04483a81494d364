"""Removing what lies at or below the floor, and retention by age: the floor first, the records afterwards.

Readers are cut by the floor from the moment it moves, so the removal may take its time, stop in the middle and be
done by several processes at once. What a writer that ended has left is found again, by all of its replicas.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from qim_common.errors import QimError
from qim_writer.storage import Conversation, GroupStateStore

_log = logging.getLogger(__name__)

MS_PER_DAY: Final = 86_400_000
RETENTION: Final = "retention"
"""Who moved the floor, in the record of changes."""

JUMP_SECONDS: Final = 3_600.0
"""By so much the clock may be set forward while a writer runs, and retention goes on."""

_STEP_SECONDS: Final = 0.002
"""Between two removals of 1,000 records, which others have the instance for."""


def since_boot() -> float:
    """Seconds by a clock that nobody sets; a machine that sleeps ages by it, where the system has such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Trimmer:
    """Removes records of conversations whose floor has moved, one after another, in small steps."""

    def __init__(self, states: GroupStateStore, buckets: int) -> None:
        self._states = states
        self._buckets = buckets
        self._due: asyncio.Queue[Conversation] = asyncio.Queue()
        self._waiting: set[Conversation] = set()

    def floor_moved(self, conversation: Conversation) -> None:
        """A floor has moved; its records go soon."""
        if conversation not in self._waiting:
            self._waiting.add(conversation)
            self._due.put_nowait(conversation)

    async def find_left(self) -> None:
        """Takes up every removal that somebody has begun, or should have. Buckets that cannot be read wait."""
        for bucket in range(self._buckets):
            try:
                left = await self._states.untrimmed_groups(bucket)
            except QimError as error:
                _log.warning("removals may be left in bucket %d: %s", bucket, error)
                continue
            for conversation in left:
                self.floor_moved(conversation)

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            conversation = await self._due.get()
            self._waiting.discard(conversation)
            try:
                more = True
                while more:
                    more = await self._states.trim(conversation)
                    await asyncio.sleep(_STEP_SECONDS)
            except QimError as error:
                _log.warning("records below a floor stay until they are found again: %s", error)
            except Exception:  # noqa: BLE001  whatever it is, the records below other floors go
                _log.exception("records below a floor cannot be removed")


class Retention:
    """Retention by age: `retention_days` of each group, checked in rounds.

    A floor that has moved never comes back, so a clock that is set forward while the writer runs moves none: by more
    than `JUMP_SECONDS` against the clock since boot, rounds wait until it is back, or until somebody who has looked at
    the clock restarts the writer.
    """

    def __init__(
        self,
        states: GroupStateStore,
        trimmer: Trimmer,
        buckets: int,
        *,
        interval_seconds: float,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = since_boot,
    ) -> None:
        self._states = states
        self._trimmer = trimmer
        self._buckets = buckets
        self._interval = interval_seconds
        self._clock = clock
        self._elapsed = elapsed
        self._ahead = clock() - elapsed()

    async def run(self) -> None:
        """Takes up the removals that were left, then rounds until cancelled."""
        while True:
            try:
                await self._trimmer.find_left()
                await self.round()
            except Exception:  # noqa: BLE001  whatever it is, the next round tries again
                _log.exception("the retention round failed")
            await asyncio.sleep(self._interval)

    async def round(self) -> int:
        """Looks at every group that has a retention; how many floors moved.

        A bucket whose instance does not answer waits for the next round."""
        jumped = self._clock() - self._elapsed() - self._ahead
        if jumped > JUMP_SECONDS:
            _log.error("the clock was set forward by %.0f s: no floor moves by age until it is back", jumped)
            return 0
        moved = 0
        for bucket in range(self._buckets):
            try:
                for group in await self._states.retained_groups(bucket):
                    moved += await self._keep(group)
            except QimError as error:
                _log.warning("retention leaves out bucket %d: %s", bucket, error)
        return moved

    async def _keep(self, group: Conversation) -> bool:
        """Moves the floor of one group; whether it has moved."""
        now = await self._states.age_cut(group, 0)
        if now is None or not now.policy.settings.retention_days:
            return False
        before_ms = int(self._clock() * 1000) - now.policy.settings.retention_days * MS_PER_DAY
        cut = await self._states.age_cut(group, before_ms)
        if cut is None or cut.seq <= cut.floor:
            return False
        raised = await self._states.raise_floor(group, cut.seq, now.policy, RETENTION, None)
        if raised is None:
            return False  # its settings have just changed; the next round sees them
        self._trimmer.floor_moved(group)
        return True

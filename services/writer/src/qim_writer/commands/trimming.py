"""Removing what lies at or below the floor, and retention by age: the floor first, the records afterwards.

Readers are cut by the floor from the moment it moves, so the removal may take its time, stop in the middle and be
done by several processes at once.
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

_FIRST_PAUSE: Final = 0.05


class Trimmer:
    """Removes records of conversations whose floor has moved, one after another, in small steps."""

    def __init__(self, states: GroupStateStore) -> None:
        self._states = states
        self._due: asyncio.Queue[Conversation] = asyncio.Queue()

    def floor_moved(self, conversation: Conversation) -> None:
        """A floor has moved; its records go soon."""
        self._due.put_nowait(conversation)

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            conversation = await self._due.get()
            try:
                more = True
                while more:
                    more = await self._states.trim(conversation)
            except QimError as error:
                _log.warning("records below a floor stay for now: %s", error)
                await asyncio.sleep(_FIRST_PAUSE)
                self._due.put_nowait(conversation)


class Retention:
    """Retention by age: `retention_days` of each group, checked in rounds."""

    def __init__(
        self,
        states: GroupStateStore,
        trimmer: Trimmer,
        buckets: int,
        *,
        interval_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._states = states
        self._trimmer = trimmer
        self._buckets = buckets
        self._interval = interval_seconds
        self._clock = clock

    async def run(self) -> None:
        """Rounds until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.round()
            except QimError as error:
                _log.warning("the retention round ends early: %s", error)

    async def round(self) -> int:
        """Looks at every group that has a retention; how many floors moved. Raises BackendUnavailable."""
        moved = 0
        for bucket in range(self._buckets):
            for group in await self._states.retained_groups(bucket):
                moved += await self._keep(group)
        return moved

    async def _keep(self, group: Conversation) -> bool:
        now_ms = int(self._clock() * 1000)
        found = await self._states.newest_seq_before(group, now_ms)
        if found is None or not found[1].settings.retention_days:
            return False
        days = found[1].settings.retention_days
        found = await self._states.newest_seq_before(group, now_ms - days * MS_PER_DAY)
        if found is None or not found[0]:
            return False
        seq, policy = found
        before = await self._states.raise_floor(group, seq, policy, RETENTION, None)
        if before is None:
            return False  # its settings have just changed; the next round sees them
        self._trimmer.floor_moved(group)
        return before.floor == seq

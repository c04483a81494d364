"""Removing what lies at or below the floor, and retention by age: the floor first, the records afterwards.

Readers are cut by the floor from the moment it moves, so the removal may take its time, stop in the middle and be
done by several processes at once. What a writer that ended has left is found again, by all of its replicas.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from qim_common.errors import QimError
from qim_common.telemetry.standing import Standing
from qim_writer.commands.archive_removal import ArchiveRemoval
from qim_writer.storage import AgeCut, Conversation, GroupStateStore

_log = logging.getLogger(__name__)

MS_PER_DAY: Final = 86_400_000
RETENTION: Final = "retention"
"""Who moved the floor, in the record of changes."""

JUMP_SECONDS: Final = 3_600.0
"""By so much the clock may be set forward while a writer runs, and retention goes on."""

_STEP_SECONDS: Final = 0.002
"""Between two removals of 1,000 records, which others have the instance for."""

_SOON_SECONDS: Final = 5.0
_SOON_MOST: Final = 1_000
"""Conversations whose removal waits for the archiver are looked at again after so long; more of them with the next
round of the retention."""


def since_boot() -> float:
    """Seconds by a clock that nobody sets; a machine that sleeps ages by it, where the system has such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class _Line:
    """Conversations that wait for the same thing, each once."""

    def __init__(self, where: str) -> None:
        self._where = f"records below floors in {where}"
        self._staying = Standing(_log, "they can be removed again")
        self._due: asyncio.Queue[Conversation] = asyncio.Queue()
        self._waiting: set[Conversation] = set()

    def add(self, conversation: Conversation) -> None:
        """It waits, unless it does already."""
        if conversation not in self._waiting:
            self._waiting.add(conversation)
            self._due.put_nowait(conversation)

    async def work(self, remove: Callable[[Conversation], Awaitable[None]]) -> None:
        """Works until cancelled."""
        while True:
            conversation = await self._due.get()
            self._waiting.discard(conversation)
            try:
                await remove(conversation)
                self._staying.over(self._where)
            except QimError as error:
                self._staying.holds(self._where, f"they stay until they are found again: {error}")
            except Exception:  # noqa: BLE001  whatever it is, the records below other floors go
                _log.exception("records below a floor cannot be removed")


class Trimmer:
    """Removes records of conversations whose floor has moved, one after another, in small steps.

    `archive`: what is removed from it too; None where there is none. It has a line of its own, so that an archive that
    does not answer holds nothing up in Redis. What waits for the archiver is tried again after `soon_seconds`.
    `instance_of`: of a bucket, for what is logged.
    """

    def __init__(
        self,
        states: GroupStateStore,
        buckets: int,
        archive: ArchiveRemoval | None = None,
        *,
        soon_seconds: float = _SOON_SECONDS,
        instance_of: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self._states = states
        self._soon_seconds = soon_seconds
        self._buckets = buckets
        self._archive = archive
        self._in_redis = _Line("Redis")
        self._in_archive = _Line("the archive")
        self._instance_of = instance_of
        self._unread = Standing(_log, "the removals that are left can be read again")
        self._soon: set[Conversation] = set()

    def floor_moved(self, conversation: Conversation) -> None:
        """A floor has moved; its records go soon."""
        self._in_redis.add(conversation)

    async def find_left(self) -> None:
        """Takes up every removal that somebody has begun, or should have. Buckets that cannot be read wait."""
        unread = set()
        for bucket in range(self._buckets):
            try:
                left = await self._states.untrimmed_groups(bucket)
            except QimError as error:
                unread.add(name := f"instance {self._instance_of(bucket)}")
                self._unread.holds(name, f"removals may be left: {error}")
                continue
            for conversation in left:
                self.floor_moved(conversation)
        self._unread.only(unread)

    async def run(self) -> None:
        """Works until cancelled."""
        archive = self._archive
        async with asyncio.TaskGroup() as together:
            together.create_task(self._in_redis.work(self._clear_redis))
            if archive is not None:
                together.create_task(self._in_archive.work(partial(self._clear_archive, archive)))
                together.create_task(self._look_again())

    async def remove(self, conversation: Conversation) -> None:
        """As much of one conversation's removal as may be done now; `find_left` finds what is left.

        Raises BackendUnavailable."""
        await self._clear_redis(conversation)
        if self._archive is not None:
            await self._archive.remove(conversation)

    async def _clear_redis(self, conversation: Conversation) -> None:
        more = True
        while more:
            more = await self._states.trim(conversation)
            await asyncio.sleep(_STEP_SECONDS)
        if self._archive is not None:
            self._in_archive.add(conversation)

    async def _clear_archive(self, archive: ArchiveRemoval, conversation: Conversation) -> None:
        if await archive.remove(conversation) and len(self._soon) < _SOON_MOST:
            self._soon.add(conversation)

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(self._soon_seconds)
            waiting, self._soon = self._soon, set()
            for conversation in waiting:
                self.floor_moved(conversation)


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
        instance_of: Callable[[int], int] = lambda _: 0,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = since_boot,
    ) -> None:
        self._states = states
        self._trimmer = trimmer
        self._buckets = buckets
        self._interval = interval_seconds
        self._instance_of = instance_of
        self._left_out = Standing(_log, "retention goes on")
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
        jumped = self.clock_ahead()
        if jumped:
            _log.error("the clock was set forward by %.0f s: no floor moves by age until it is back", jumped)
            return 0
        moved = 0
        left_out = set()
        for bucket in range(self._buckets):
            try:
                for group in await self._states.retained_groups(bucket):
                    cut = await self.cut(group)
                    moved += cut is not None and cut.seq > cut.floor and await self.move(group, cut)
            except QimError as error:
                left_out.add(name := f"instance {self._instance_of(bucket)}")
                self._left_out.holds(name, f"retention leaves it out: {error}")
        self._left_out.only(left_out)
        return moved

    def clock_ahead(self) -> float:
        """By how many seconds the clock was set forward, where that is so much that no floor moves; else 0."""
        jumped = self._clock() - self._elapsed() - self._ahead
        return jumped if jumped > JUMP_SECONDS else 0.0

    async def cut(self, group: Conversation) -> AgeCut | None:
        """Where the floor of one group belongs now, with the policy that says so; None without a retention.

        Raises BackendUnavailable."""
        now = await self._states.age_cut(group, 0)
        if now is None or not now.policy.settings.retention_days:
            return None
        before_ms = int(self._clock() * 1000) - now.policy.settings.retention_days * MS_PER_DAY
        cut = await self._states.age_cut(group, before_ms)
        return None if cut is None else replace(cut, policy=now.policy)

    async def move(self, group: Conversation, cut: AgeCut) -> bool:
        """Move the floor there; False where the group's settings have just changed: the next round sees them.

        Raises BackendUnavailable."""
        if await self._states.raise_floor(group, cut.seq, cut.policy, RETENTION, None) is None:
            return False
        self._trimmer.floor_moved(group)
        return True

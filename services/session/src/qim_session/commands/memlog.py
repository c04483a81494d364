"""The registrar's other source: who was put into a conversation, also if nobody ever writes there (storage.md).

It registers first and trims then, just behind what it registered: a crash in between repeats a write that has no
second effect. The holder of a partition's lease does it; two at once do no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Final

from qim_common.backoff import Backoff
from qim_common.errors import QimError
from qim_common.positions import Position
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.memlog import joined
from qim_session.storage.partitions import MemberLog, MemlogEntry
from qim_session.storage.projection import ENTRIES_PER_CALL, ConversationSets

_log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 0.5
"""How often the logs are looked at."""

ENTRIES_PER_READ: Final = 4
"""Of one partition in one read; an entry holds up to 1,000 people."""

PARTITIONS_PER_READ: Final = 32


class MemlogRegistrar:
    """Registers from the membership logs of one commit instance. `run` it in a task and tell it what to `hold`."""

    def __init__(self, log: MemberLog, sets: ConversationSets, metrics: SessionMetrics) -> None:
        self._members = log
        self._sets = sets
        self._metrics = metrics
        self._held: frozenset[int] = frozenset()

    def hold(self, partitions: Iterable[int]) -> None:
        """Register these partitions from now on; those of other instances are left out."""
        self._held = frozenset(partitions) & frozenset(self._members.partitions)

    async def run(self) -> None:
        """Register until cancelled."""
        outage = Backoff()
        while True:
            try:
                await self._register_all(self._held)
            except QimError as error:
                _log.warning("the membership logs cannot be registered now", extra={"error": str(error)})
            except Exception:  # noqa: BLE001  what waits stays in the log and is tried again
                _log.exception("registering the membership logs failed")
            else:
                outage.reset()
                await asyncio.sleep(IDLE_SECONDS)
                continue
            self._metrics.conversation_state_failures.inc()
            await outage.sleep()

    async def drain(self, partitions: Collection[int]) -> None:
        """Register everything that these partitions' logs hold, held or not.

        Raises BackendUnavailable: some may have been registered; what was not is still there.
        """
        await self._register_all(partitions)

    async def _register_all(self, partitions: Collection[int]) -> None:
        ordered = sorted(partitions)
        for start in range(0, len(ordered), PARTITIONS_PER_READ):
            waiting = ordered[start : start + PARTITIONS_PER_READ]
            while waiting:
                found = await self._members.oldest(waiting, count=ENTRIES_PER_READ)
                await self._register(found)
                waiting = [partition for partition, entries in found.items() if len(entries) == ENTRIES_PER_READ]

    async def _register(self, found: dict[int, list[MemlogEntry]]) -> None:
        people: list[ProjectionEntry] = []
        through: dict[int, Position] = {}
        for partition, entries in found.items():
            for entry in entries:
                try:
                    people += joined(entry.data, entry.position.ms)
                except ValueError as error:
                    # Nothing reads it better later, and the ones behind it must not wait for ever.
                    self._metrics.conversation_state_failures.inc()
                    _log.error(
                        "a membership log entry cannot be read and is left out",
                        extra={"partition": partition, "position": str(entry.position), "error": str(error)},
                    )
            through[partition] = entries[-1].position
        for start in range(0, len(people), ENTRIES_PER_CALL):
            await self._sets.register(people[start : start + ENTRIES_PER_CALL])
        if through:
            await self._members.trim(through)
        self._metrics.memlog_registered.inc(len(people))

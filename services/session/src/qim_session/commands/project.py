"""Project: the writer's low-latency lane into the lists (storage.md, "Session": two lanes feed one script).

It makes lists fresh while the durable lane lags, and is never needed: what does not fit is dropped and counted, what
the durable lane has done already is skipped, and whatever fails is left to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from qim_common.errors import InvalidArgument, MembershipVersionExpired, QimError, TooManyItems
from qim_common.telemetry.metrics import SessionMetrics
from qim_common.topology import Topology
from qim_session.commands.audience import Audiences
from qim_session.commands.progress import ProgressReader
from qim_session.commands.projection import Projector
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.hints import Hint, HintQueue

_log = logging.getLogger(__name__)

RUNS_MAX: Final = 250
CONCERNED_MAX: Final = 1000
WAITING_MAX: Final = 5_000
"""Hints that wait in this process; some tenths of a second's work."""

VERSIONS_AT_ONCE: Final = 64
"""Hints of how many conversations and versions one round works on."""


class Project:
    """The command behind the method of the same name, and the worker that carries it out (`run` in a task).

    Args:
        audiences: of this lane alone; a round asks about each conversation from one place.
        progress: of the durable lane.
    """

    def __init__(
        self,
        projector: Projector,
        audiences: Audiences,
        progress: ProgressReader,
        topology: Topology,
        metrics: SessionMetrics,
    ) -> None:
        self._projector = projector
        self._audiences = audiences
        self._progress = progress
        self._topology = topology
        self._metrics = metrics
        self._waiting = HintQueue(WAITING_MAX)
        self._news = asyncio.Event()

    def __call__(self, hints: Sequence[Hint]) -> None:
        """Take what there is room for; returns at once.

        Raises:
            InvalidArgument: no hint; a version or a time below 1.
            TooManyItems: more than 250 hints, or 1,000 people of one.
        """
        if not hints:
            raise InvalidArgument("runs", "must hold at least one")
        check_count(len(hints))
        for number, hint in enumerate(hints):
            if hint.version < 1:
                raise InvalidArgument(f"runs[{number}].membership_version", "must be from 1")
            if hint.time_ms < 1:
                raise InvalidArgument(f"runs[{number}].time_ms", "must be from 1")
            if len(hint.concerned) > CONCERNED_MAX:
                raise TooManyItems(message=f"at most {CONCERNED_MAX} concerned people in one run")
        dropped = sum(not self._waiting.put(hint) for hint in hints if hint.reaches_anyone)
        self._metrics.hints_dropped.inc(dropped)
        self._news.set()

    async def run(self) -> None:
        """Carry out what waits until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while rows := self._waiting.take(VERSIONS_AT_ONCE):
                try:
                    await self._project(rows)
                except QimError as error:
                    self._drop(rows, str(error))
                except Exception:  # noqa: BLE001  whatever it is, the durable lane brings it
                    _log.exception("hints of the low-latency lane cannot be projected")
                    self._metrics.hints_dropped.inc(sum(map(len, rows)))

    async def _project(self, rows: Sequence[Sequence[Hint]]) -> None:
        progress = await self._progress.partitions()
        found = await asyncio.gather(*(self._entries(row, progress) for row in rows))
        entries = [entry for row in found for entry in row]
        await self._projector.hint(entries)
        self._metrics.projected_entries.inc(len(entries))

    async def _entries(self, hints: Sequence[Hint], progress: Mapping[int, int]) -> list[ProjectionEntry]:
        """What the hints of one conversation are to its people's lists."""
        entries: list[ProjectionEntry] = []
        for hint in sorted(hints, key=lambda hint: hint.version):  # so that members move forward
            partition = self._topology.conversation_bucket(hint.tenant, hint.conversation)
            if progress.get(partition, 0) > hint.time_ms:
                continue
            people = set(hint.concerned)
            if hint.reaches_all:
                try:
                    people |= await self._audiences.members(hint.tenant, hint.conversation, hint.version)
                except MembershipVersionExpired as error:
                    self._drop([[hint]], str(error))
            entries += [
                ProjectionEntry(hint.tenant, user, hint.conversation, hint.time_ms, hint.big) for user in people
            ]
        return entries

    def _drop(self, rows: Sequence[Sequence[Hint]], why: str) -> None:
        self._metrics.hints_dropped.inc(sum(map(len, rows)))
        _log.info("hints of the low-latency lane are left to the durable one", extra={"error": why})


def check_count(runs: int) -> None:
    """Raises TooManyItems above 250; before they are read."""
    if runs > RUNS_MAX:
        raise TooManyItems(message=f"at most {RUNS_MAX} runs in one call")

"""Who each stretch of a conversation reached (design.md invariants 3 and 4).

The members at a version never change, so they are loaded once and moved on by the membership events in the log
itself. The writer is asked only where this memory has nothing or stands at another version: after a start, after an
eviction, and when a stretch is read again.
"""

from __future__ import annotations

import logging

from qim_common.errors import MembershipVersionExpired
from qim_common.ids import UserId, show
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.domain.folding import ConversationRun, Step
from qim_session.domain.membership import Members, MembersCache
from qim_session.storage import MembershipSource

_log = logging.getLogger(__name__)


class Audiences:
    """Tells for each person of a run when the newest message reached them.

    One conversation may be asked about by one caller at a time, which its partition's consumer is.
    """

    def __init__(self, source: MembershipSource, cache: MembersCache, metrics: SessionMetrics) -> None:
        self._source = source
        self._cache = cache
        self._metrics = metrics

    async def reached(self, run: ConversationRun) -> dict[UserId, int]:
        """Person to commit time (ms) of the newest message of `run` that reached them.

        A step whose members nobody knows any more (MEMBERSHIP_VERSION_EXPIRED) is left out, logged and counted: the
        change log is kept for as long as the dispatch log, so this means that an operator cut it.

        Raises BackendUnavailable when the writer does not answer.
        """
        newest: dict[UserId, int] = {}
        for step in run.steps:
            try:
                await self._add(run, step, newest)
            except MembershipVersionExpired:
                self._metrics.audiences_unresolved.inc()
                _log.error(
                    "the members at a version are gone, its messages are not projected",
                    extra={"conversation": show(run.conversation), "version": step.version, "seq": step.seq},
                )
        return newest

    async def _add(self, run: ConversationRun, step: Step, newest: dict[UserId, int]) -> None:
        change = step.change
        if step.opaque:
            change = await self._source.change(run.tenant, run.conversation, step.version)
        if change is not None:
            newest.update(dict.fromkeys(change.people, step.time_ms))
            members = self._cache.get(run.tenant, run.conversation)
            if members is not None and members.version == change.version - 1:
                members.apply(change)
                self._cache.put(run.tenant, run.conversation, members)
        if step.broadcast:
            members = await self._members_at(run, step.version)
            newest.update(dict.fromkeys(members.people, step.time_ms))

    async def _members_at(self, run: ConversationRun, version: int) -> Members:
        members = self._cache.get(run.tenant, run.conversation)
        if members is None or members.version != version:
            members = Members(version, set(await self._source.members(run.tenant, run.conversation, version)))
            self._cache.put(run.tenant, run.conversation, members)
        return members

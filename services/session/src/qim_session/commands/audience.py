"""Who each stretch of a conversation reached (design.md invariants 3 and 4).

The members at a version never change, so they are loaded once and moved on by the membership events in the log
itself. The writer is asked only where this memory has nothing or stands at another version: after a start, after an
eviction, and when a stretch is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from qim_common.errors import MembershipVersionExpired
from qim_common.ids import ConversationId, TenantId, UserId, show
from qim_common.telemetry.metrics import DispatchMetrics
from qim_session.domain.folding import ConversationRun, Step
from qim_session.domain.membership import Members, MembersCache, MembershipChange
from qim_session.storage.conversations import MembershipSource

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reached:
    """Whom something reached.

    Attributes:
        times: person to commit time (ms) of the newest of it.
        big: of them those for whom the conversation is big from now on.
    """

    times: dict[UserId, int] = field(default_factory=dict)
    big: set[UserId] = field(default_factory=set)


class Audiences:
    """Tells for each person of a run when the newest message reached them.

    One conversation may be asked about by one caller at a time, which its partition's consumer is; another lane has
    an object of its own.
    """

    def __init__(self, source: MembershipSource, cache: MembersCache, metrics: DispatchMetrics) -> None:
        self._source = source
        self._cache = cache
        self._metrics = metrics

    async def reached(self, run: ConversationRun) -> Reached:
        """Whom the messages of `run` reached.

        A step whose members nobody knows any more (MEMBERSHIP_VERSION_EXPIRED) is left out, logged and counted: the
        change log is kept for as long as the dispatch log, so this means that an operator cut it.

        Raises BackendUnavailable when the writer does not answer.
        """
        reached = Reached()
        for step in run.steps:
            try:
                await self._add(run, step, reached)
            except MembershipVersionExpired:
                self._metrics.audiences_unresolved.inc()
                _log.error(
                    "the members at a version are gone, its messages are not projected",
                    extra={"conversation": show(run.conversation), "version": step.version, "seq": step.seq},
                )
        return reached

    def forget(self) -> None:
        """Forget all members: after a recovery that lost changes, versions are given out again."""
        self._cache.clear()

    async def members(self, tenant: TenantId, conversation: ConversationId, version: int) -> set[UserId]:
        """The members at `version`; not to be changed, and valid until the next call about the conversation.

        Raises MembershipVersionExpired, and BackendUnavailable when the writer does not answer.
        """
        members = self._cache.get(tenant, conversation)
        if members is None or members.version != version:
            members = Members(version, set(await self._source.members(tenant, conversation, version)))
            self._cache.put(tenant, conversation, members)
        return members.people

    def follow(self, tenant: TenantId, conversation: ConversationId, change: MembershipChange) -> None:
        """Move what is in memory on by a membership event of the log."""
        members = self._cache.get(tenant, conversation)
        if members is not None and members.version == change.version - 1:
            members.apply(change)
            self._cache.put(tenant, conversation, members)

    async def _add(self, run: ConversationRun, step: Step, reached: Reached) -> None:
        change = step.change
        if step.opaque:
            change = await self._source.change(run.tenant, run.conversation, step.version)
        if change is not None:
            _note(reached, change.people, step)
            self.follow(run.tenant, run.conversation, change)
        if step.broadcast:
            _note(reached, await self.members(run.tenant, run.conversation, step.version), step)


def _note(reached: Reached, people: Iterable[UserId], step: Step) -> None:
    reached.times.update(dict.fromkeys(people, step.time_ms))
    if step.big:
        reached.big.update(people)

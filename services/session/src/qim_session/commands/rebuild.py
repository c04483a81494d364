"""A person's list, built again from the authority (storage.md, "Session": the person whose epoch mark is old).

The projection may be lost: lists, checkpoints and epoch marks. Whoever finds a gap raises the epoch, and each person
is rebuilt on their next call of any kind, never all of them at once. The order of the steps misses nothing: the epoch
is read first, so that one that rises meanwhile makes the mark old again; what waits to be registered is registered
before the set is read; and what is projected meanwhile goes to the list itself, where an older time changes nothing.
Cursors and flags, which the store may have lost too, come back before the mark, so that no call meets their absence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Protocol

from qim_common.enums import MemberState
from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.telemetry.metrics import SessionMetrics
from qim_common.topology import Topology
from qim_session.domain.list_pages import ListPosition
from qim_session.storage.conversations import STATES_PER_CALL, Conversations
from qim_session.storage.lists import ListRestore
from qim_session.storage.projection import ConversationSets

_log = logging.getLogger(__name__)

_ALL_READ = 2**53 - 1
"""A read cursor behind every message: unread is not asked for."""


class PendingRegistrations(Protocol):
    """What waits on one session instance to be registered."""

    async def flush(self) -> None:
        """Register everything that waits there now. Raises BackendUnavailable."""
        ...


class Rebuild:
    """Sees to it that a person's list is complete before it is used.

    Args:
        pending: by session instance, in their configured order.
        topology: of the session instances.
        restore_marks: brings cursors and flags back that the store may have lost; None: nothing has them.
    """

    def __init__(
        self,
        lists: ListRestore,
        sets: ConversationSets,
        conversations: Conversations,
        pending: Sequence[PendingRegistrations],
        topology: Topology,
        metrics: SessionMetrics,
        *,
        restore_marks: Callable[[TenantId, UserId], Awaitable[None]] | None = None,
    ) -> None:
        self._restore_marks = restore_marks
        self._lists = lists
        self._sets = sets
        self._conversations = conversations
        self._pending = tuple(pending)
        self._topology = topology
        self._metrics = metrics
        self._running: dict[tuple[TenantId, UserId], asyncio.Task[None]] = {}

    async def ensure(self, tenant: TenantId, user: UserId) -> None:
        """Rebuild the person's list unless that was done in this epoch; calls at the same time share one run.

        A run goes on when its caller is gone, so that a large list is there for the next call.

        Raises:
            BackendUnavailable: a store or the writer does not answer; the list is not complete, and the next call
                tries again.
        """
        person = (tenant, user)
        while True:
            epoch, mark = await self._lists.epoch(tenant, user)
            if mark == epoch:
                return
            running = self._running.get(person)
            if running is None:
                # A context of its own: no caller's deadline cuts what others wait for as well.
                running = asyncio.create_task(self._rebuild(tenant, user, epoch), context=Context())
                self._running[person] = running
                running.add_done_callback(lambda task: self._finish(person, task))
            await asyncio.shield(running)

    def _finish(self, person: tuple[TenantId, UserId], task: asyncio.Task[None]) -> None:
        del self._running[person]
        if not task.cancelled() and task.exception() is not None:
            # Retrieved, also where every caller has gone; those who wait have it raised.
            _log.warning("a person's list could not be rebuilt", extra={"error": str(task.exception())})

    async def _rebuild(self, tenant: TenantId, user: UserId, epoch: int) -> None:
        await self._pending[self._topology.instance_of(self._topology.person_bucket(tenant, user))].flush()
        conversations = await self._sets.of(tenant, user)
        for start in range(0, len(conversations), STATES_PER_CALL):
            part = conversations[start : start + STATES_PER_CALL]
            await self._restore(tenant, user, part)
        if self._restore_marks is not None:
            await self._restore_marks(tenant, user)
        await self._lists.mark(tenant, user, epoch)
        self._metrics.users_rebuilt.inc()

    async def _restore(self, tenant: TenantId, user: UserId, part: Sequence[ConversationId]) -> None:
        asked = dict.fromkeys(part, _ALL_READ)
        states = await self._conversations.states(tenant, user, asked, with_preview=False)
        known = [state for state in states if state.state is not MemberState.UNKNOWN]
        if len(known) < len(states):
            # Registered, so the person was in it; a state that denies it breaks an invariant.
            self._metrics.group_interval_missing.inc(len(states) - len(known))
        places = [ListPosition(state.last_activity_ms, state.conversation) for state in known]
        await self._lists.restore(tenant, user, places, [state.conversation for state in known if state.big])

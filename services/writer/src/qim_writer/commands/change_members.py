"""Adding, removing and leaving: planned on one look at the group, committed if that look still holds.

Changes of one group queue in this process and run one after another; changes that another replica makes meanwhile are
met by up to three re-plans (design.md, "Decisions between the sources").
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from qim_common.enums import LeaverHistory
from qim_common.errors import InvalidArgument, MembershipChanged, PermissionDenied, TooManyItems
from qim_common.idempotency import IdempotencyKey
from qim_common.identity import Actor, Principal
from qim_common.ids import (
    ConversationId,
    DeviceId,
    MembershipOp,
    TenantId,
    UserId,
    control_body,
    membership_event_message_id,
    parse_group,
    parse_id,
    parse_user,
)
from qim_common.records import Audience, RecordType, pack_tail
from qim_common.telemetry.metrics import writer_metrics
from qim_writer.commands.callers import caller_of_actor, caller_of_principal
from qim_writer.domain.changes import ChangePlan, ChangeRequest, distinct, plan_change
from qim_writer.domain.hints import CommitHints, HintRun
from qim_writer.domain.policy import Limits
from qim_writer.domain.stays import Stay
from qim_writer.storage import ChangeAnswer, Conversation, MembershipStore

PEOPLE_MAX: Final = 1_000
"""People of one call: one script, one seq, one version (design.md invariant 2)."""

PLANS: Final = 4
"""The first plan and three re-plans."""

CONTROL_TYPE: Final = b"qim.membership.v1"


@dataclass(frozen=True, slots=True)
class AdminChange:
    """An operator's or back end's change, as it came."""

    request_id: bytes
    group_id: bytes
    op: MembershipOp
    people: Sequence[bytes]
    owner: bytes = b""
    leaver: LeaverHistory | None = None


class GroupQueues:
    """One queue a group: who waits, waits for its own group only."""

    def __init__(self) -> None:
        self._locks: dict[tuple[TenantId, ConversationId], tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        """How many groups have a change under way."""
        return len(self._locks)

    @asynccontextmanager
    async def turn(self, group: Conversation) -> AsyncIterator[None]:
        """Waits until every earlier change of the group is through."""
        name = (group.tenant, group.id)
        lock, waiting = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._locks[name]
            if waiting == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, waiting - 1)


class MemberChanges:
    """The membership changes of this process."""

    def __init__(
        self,
        store: MembershipStore,
        limits: Limits,
        queues: GroupQueues | None = None,
        hints: CommitHints | None = None,
    ) -> None:
        self._hints = hints
        self._store = store
        self._limits = limits
        self._queues = GroupQueues() if queues is None else queues

    async def by_principal(self, principal: Principal, change: AdminChange) -> tuple[Conversation, ChangeAnswer]:
        """AdminChangeMembers. Raises InvalidArgument, TooManyItems, PermissionDenied (no such group),
        MemberLimitExceeded, OwnerCannotLeave, GroupFrozen, MembershipChanged, IdempotencyKeyReused, RequestTooOld."""
        parse_id(change.request_id, "request_id")
        group = Conversation(principal.tenant, parse_group(change.group_id))
        people = _people(change.people)
        owner = parse_user(change.owner, "owner_user_id") if change.owner else None
        if owner is not None and change.op is not MembershipOp.JOIN:
            raise InvalidArgument("owner_user_id", "goes with adding people only")
        if change.leaver is not None and change.op is not MembershipOp.REMOVE:
            raise InvalidArgument("leaver_history", "goes with removing people only")
        request = ChangeRequest(change.op, people, principal.initiator, owner, change.leaver)
        key = caller_of_principal(principal).key(
            group.id,
            change.request_id,
            b"change_members",
            bytes((change.op, change.leaver or 0)),
            owner or b"",
            principal.initiator or b"",
            *people,
        )
        return group, await self._change(group, request, key)

    async def leave(self, actor: Actor, request_id: bytes, group_id: bytes) -> tuple[Conversation, Stay]:
        """LeaveGroup: the caller's newest stay afterwards. Leaving twice succeeds without an event.

        Raises InvalidArgument, PermissionDenied, OwnerCannotLeave, MembershipChanged, IdempotencyKeyReused,
        RequestTooOld."""
        parse_id(request_id, "request_id")
        group = Conversation(actor.tenant, parse_group(group_id))
        key = caller_of_actor(actor).key(group.id, request_id, b"leave_group")
        request = ChangeRequest(MembershipOp.LEAVE, (actor.user,), actor.user)
        answer = await self._change(group, request, key, device=actor.device)
        return group, await self._stay_of_answer(group, actor.user, answer)

    async def _stay_of_answer(self, group: Conversation, user: UserId, answer: ChangeAnswer) -> Stay:
        """The stay that the first answer was about, also when the person has come back since."""
        facts = await self._store.facts(group, user)
        if facts is None or facts.person is None:
            raise PermissionDenied
        ended = [stay for stay in facts.person.stays if stay.left_at and stay.ended_version <= answer.version]
        if not ended:
            raise PermissionDenied
        return ended[-1]

    async def _change(
        self, group: Conversation, request: ChangeRequest, key: IdempotencyKey, device: DeviceId | None = None
    ) -> ChangeAnswer:
        async with self._queues.turn(group):
            for attempt in range(PLANS):
                facts = await self._store.plan_facts(group, request.people, key)
                if facts.answer is not None:
                    return facts.answer
                if facts.state is None:
                    raise PermissionDenied
                plan = plan_change(facts.state, request, self._limits)
                answer = await self._store.apply(group, plan, _event_tail(group, plan, device), key)
                if answer is not None:
                    if answer.seq:
                        writer_metrics().membership_events.labels(plan.op.name.lower()).inc()
                        self._hint(group, plan, answer)
                    return answer
                if attempt + 1 < PLANS:
                    writer_metrics().membership_retries.inc()
        raise MembershipChanged

    def _hint(self, group: Conversation, plan: ChangePlan, answer: ChangeAnswer) -> None:
        """Tells the low-latency lane, unless the answer is that of an earlier call with the same id."""
        if self._hints is None or (answer.version, answer.changed) != (plan.base.version + 1, len(plan.people)):
            return
        self._hints.changed(
            HintRun(
                group.tenant,
                group.id,
                answer.version,
                answer.time_ms,
                broadcast=plan.audience is Audience.BROADCAST,
                concerned=plan.people,
                big=plan.big,
                became_big=plan.big and not plan.base.big,
            )
        )


def _people(raw: Sequence[bytes]) -> tuple[UserId, ...]:
    if not raw:
        raise InvalidArgument("user_ids", "must name at least one person")
    if len(raw) > PEOPLE_MAX:
        raise TooManyItems(metadata={"field": "user_ids", "most": str(PEOPLE_MAX)})
    return distinct([parse_user(user, f"user_ids[{index}]") for index, user in enumerate(raw)])


def _event_tail(group: Conversation, plan: ChangePlan, device: DeviceId | None) -> bytes:
    """The tail of the event's record (contracts.md, "Ids"; ADR decision 2)."""
    planned = plan.base.version
    message_id = membership_event_message_id(group.tenant, group.id, plan.op, plan.actor, planned, plan.people)
    body = control_body(plan.op, plan.actor, plan.people)
    return pack_tail(RecordType.CONTROL, plan.sender, device or plan.sender, message_id, CONTROL_TYPE, body)

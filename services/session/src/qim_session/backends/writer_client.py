"""What the session service asks of the writer, over mTLS. All of it only reads, so that a repeat has no effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import grpc

from qim.membership.v1 import membership_pb2
from qim.membership.v1.membership_pb2_grpc import GroupMembershipStub
from qim.writer.v1 import internal_pb2, writer_pb2
from qim.writer.v1.internal_pb2_grpc import InternalStub
from qim.writer.v1.writer_pb2_grpc import WriterStub
from qim_common.calls import CURRENT
from qim_common.channels import ChannelProvider
from qim_common.enums import MemberState
from qim_common.errors import (
    BackendUnavailable,
    InstanceFenced,
    MembershipVersionExpired,
    Overloaded,
    QimError,
    from_rpc_error,
)
from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId
from qim_session.domain.cursors import Raised
from qim_session.domain.membership import MembershipChange
from qim_session.storage.conversations import (
    NONE_HIDDEN,
    ConversationState,
    DeliveredPage,
    WireEntry,
    WireMessage,
    Withheld,
)

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

CALL_SECONDS: Final = 5.0
"""The time that a question and its repeats have where no caller's deadline is nearer."""

MEMBERS_SECONDS: Final = 30.0
"""The same for all members of a group, up to 100,000 in chunks of 1,000."""

ATTEMPTS: Final = 3
FIRST_PAUSE_SECONDS: Final = 0.05

# A table is several times as fast as the enum, and a page has hundreds of rows.
_STATES: Final[Mapping[int, MemberState]] = {int(state): state for state in MemberState}

_ANSWERS: Final = (MembershipVersionExpired, BackendUnavailable, InstanceFenced, Overloaded)
"""What the writer may say about the question itself; everything else is a fault between the two services."""


class AnswerTooLargeError(Exception):
    """The answer is above the channel's limit; gRPC says so without a reason of qim's."""


class WriterClient:
    """The `MembershipSource` and `Conversations` of the writer behind a channel."""

    def __init__(self, channels: ChannelProvider) -> None:
        self._channels = channels

    async def members(self, tenant: TenantId, conversation: ConversationId, version: int) -> set[UserId]:
        """As `MembershipSource.members`."""
        request = membership_pb2.RecipientsForVersionRequest(
            tenant_id=tenant, group_id=conversation, membership_version=version
        )

        async def ask(timeout: float) -> set[UserId]:
            stub = self._channels.stub(GroupMembershipStub)
            people: set[UserId] = set()
            async for chunk in stub.RecipientsForVersion(request, timeout=timeout):
                people.update(map(UserId, chunk.user_ids))
            return people

        return await self._ask(ask, "RecipientsForVersion", MEMBERS_SECONDS)

    async def change(self, tenant: TenantId, group: ConversationId, version: int) -> MembershipChange:
        """As `MembershipSource.change`."""
        request = writer_pb2.MembersSinceRequest(
            tenant_id=tenant, group_id=group, membership_version=version - 1, limit=1
        )

        async def ask(timeout: float) -> writer_pb2.MembersSinceResponse:
            return await self._channels.stub(WriterStub).MembersSince(request, timeout=timeout)

        answer = await self._ask(ask, "MembersSince", CALL_SECONDS)
        if not answer.changes or answer.changes[0].version != version:
            raise MembershipVersionExpired
        found = answer.changes[0]
        return MembershipChange(
            version=version, seq=found.seq, op=MembershipOp(found.op), people=tuple(map(UserId, found.user_ids))
        )

    async def states(
        self,
        tenant: TenantId,
        user: UserId,
        read: Mapping[ConversationId, int],
        *,
        with_preview: bool,
        hidden: Mapping[ConversationId, int] = NONE_HIDDEN,
    ) -> list[ConversationState]:
        """As `Conversations.states`; previews that are too much for one answer are asked for in halves."""
        try:
            return await self._states(tenant, user, read, with_preview, hidden)
        except AnswerTooLargeError:
            rows = list(read.items())
            if len(rows) == 1:
                raise BackendUnavailable from None
            middle = len(rows) // 2
            halves = [
                await self.states(tenant, user, dict(half), with_preview=with_preview, hidden=hidden)
                for half in (rows[:middle], rows[middle:])
            ]
            return halves[0] + halves[1]

    async def _states(
        self,
        tenant: TenantId,
        user: UserId,
        read: Mapping[ConversationId, int],
        with_preview: bool,
        hidden: Mapping[ConversationId, int],
    ) -> list[ConversationState]:
        request = internal_pb2.ConversationStatesRequest(tenant_id=tenant, user_id=user, with_preview=with_preview)
        for conversation, read_seq in read.items():
            request.conversations.add(
                conversation_id=conversation, read_seq=read_seq, hidden_seq=hidden.get(conversation)
            )

        async def ask(timeout: float) -> internal_pb2.ConversationStatesResponse:
            return await self._channels.stub(InternalStub).ConversationStates(request, timeout=timeout)

        answer = await self._ask(ask, "ConversationStates", CALL_SECONDS)
        states = list(map(_state, answer.states))
        if [state.conversation for state in states] != list(read):
            _log.error("the writer answered ConversationStates for other conversations than it was asked about")
            raise BackendUnavailable
        return states

    async def delivered(
        self, tenant: TenantId, user: UserId, conversation: ConversationId, *, after_seq: int, limit: int
    ) -> DeliveredPage:
        """As `Conversations.delivered`."""
        request = internal_pb2.DeliveredPageRequest(
            tenant_id=tenant, user_id=user, conversation_id=conversation, after_seq=after_seq, limit=limit
        )

        async def ask(timeout: float) -> internal_pb2.DeliveredPageResponse:
            return await self._channels.stub(InternalStub).DeliveredPage(request, timeout=timeout)

        answer = await self._ask(ask, "DeliveredPage", CALL_SECONDS)
        return DeliveredPage(
            entries=tuple(map(_delivered, answer.entries)),
            next_after_seq=answer.next_after_seq,
            more=answer.more,
            generation=answer.generation,
            waiting=answer.waiting,
            newest_delivered_seq=answer.newest_delivered_seq,
            first_time_ms=next((entry.message.time_ms for entry in answer.entries if entry.HasField("message")), 0),
        )

    async def _ask(self, ask: Callable[[float], Awaitable[_T]], method: str, seconds: float) -> _T:
        """Ask, and ask again while the writer cannot be reached, within the caller's deadline.

        Raises what `refusal_of` gives, nothing else.
        """
        call = CURRENT.get(None)
        remaining = None if call is None else call.remaining()
        end = asyncio.get_running_loop().time() + (seconds if remaining is None else min(seconds, remaining))
        pause = FIRST_PAUSE_SECONDS
        for attempt in range(1, ATTEMPTS + 1):
            left = end - asyncio.get_running_loop().time()
            try:
                return await ask(left)
            except grpc.aio.AioRpcError as failure:
                error = from_rpc_error(failure)
                again = error.code is grpc.StatusCode.UNAVAILABLE and not isinstance(error, InstanceFenced)
                if not again or attempt == ATTEMPTS or left <= pause:
                    refusal = refusal_of(error)
                    if refusal is not error and isinstance(refusal, QimError):
                        said = {"asked": method, "code": error.code.name, "error": str(error)}
                        _log.error("the writer did not answer", extra=said)
                    raise refusal from None
            await asyncio.sleep(pause)
            pause *= 4
        raise AssertionError("the last attempt returns or raises")


def refusal_of(error: QimError) -> QimError | AnswerTooLargeError:
    """What the session's caller is told where the writer answered `error` to a question.

    The writer's own refusals go through as they are, with their words and RetryInfo; AnswerTooLargeError lets the
    question be halved; anything else is BackendUnavailable.
    """
    if isinstance(error, _ANSWERS):
        return error
    if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and not error.reason:
        return AnswerTooLargeError()
    return BackendUnavailable()


def _state(wire: internal_pb2.ConversationState) -> ConversationState:
    entry = wire.entry
    return ConversationState(
        ConversationId(entry.conversation_id),
        _STATES[entry.state],
        WireEntry(entry.SerializeToString()),
        unread_count=entry.unread_count,
        joined_at=entry.stay.joined_at_conversation_seq,
        earliest_available_seq=entry.earliest_available_conversation_seq,
        newest_delivered_seq=wire.newest_delivered_seq,
        last_activity_ms=entry.last_activity_ms,
        generation=entry.generation,
        upper_seq=wire.upper_seq,
        readable=wire.readable,
        big=wire.big,
        hidden=wire.hidden,
        raised=tuple(Raised(one.generation, one.base_seq) for one in wire.raised) if wire.raised else (),
    )


def _delivered(wire: internal_pb2.DeliveredEntry) -> WireMessage | Withheld:
    if wire.HasField("message"):
        return WireMessage(wire.message.SerializeToString())
    return Withheld(wire.withheld.first_seq, wire.withheld.last_seq)

"""`qim.writer.v1.Internal`: what the session service asks about one person."""

from __future__ import annotations

from typing import Any

import grpc

from qim.common.v1 import types_pb2
from qim.writer.v1 import internal_pb2, internal_pb2_grpc
from qim_common.ids import ConversationId, kind_of
from qim_common.records import Record
from qim_writer.commands.states import ConversationState, PersonStates, Withheld
from qim_writer.handlers import convert
from qim_writer.storage import Conversation

Context = grpc.aio.ServicerContext[Any, Any]


class InternalHandler(internal_pb2_grpc.InternalServicer):
    """The person is a subject field; the peer is the session service."""

    def __init__(self, states: PersonStates) -> None:
        self._states = states

    async def ConversationStates(  # noqa: N802
        self, request: internal_pb2.ConversationStatesRequest, context: Context
    ) -> internal_pb2.ConversationStatesResponse:
        """See the proto."""
        queries = [(query.conversation_id, query.read_seq) for query in request.conversations]
        found = await self._states.conversations(
            request.tenant_id, request.user_id, queries, with_preview=request.with_preview
        )
        return internal_pb2.ConversationStatesResponse(states=[_state(id_, state) for id_, state in found])

    async def DeliveredPage(  # noqa: N802
        self, request: internal_pb2.DeliveredPageRequest, context: Context
    ) -> internal_pb2.DeliveredPageResponse:
        """See the proto."""
        page = await self._states.delivered(
            request.tenant_id, request.user_id, request.conversation_id, request.after_seq, request.limit
        )
        return internal_pb2.DeliveredPageResponse(
            entries=[_entry(page.conversation, entry) for entry in page.entries],
            next_after_seq=page.next_after,
            more=page.more,
            generation=page.generation,
        )


def _state(conversation_id: ConversationId, state: ConversationState | None) -> internal_pb2.ConversationState:
    if state is None:
        return internal_pb2.ConversationState(conversation_id=conversation_id)
    facts, newest = state.facts, state.person.newest
    return internal_pb2.ConversationState(
        conversation_id=conversation_id,
        kind=types_pb2.ConversationKind.ValueType(kind_of(conversation_id)),
        state=types_pb2.MemberState.ValueType(newest.state),
        head_seq=state.head,
        unread_count=state.unread,
        stay=convert.stay_of(newest),
        earliest_available_conversation_seq=state.visible.earliest,
        preview=None if state.preview is None else convert.message_of(state.conversation, state.preview),
        newest_delivered_seq=state.newest_delivered,
        last_activity_ms=state.last_activity_ms,
        membership_version=facts.version_for(state.person),
        revision=facts.revision if state.person.present else 0,
        generation=facts.generation,
        upper_seq=state.upper,
        frozen=facts.policy.frozen and state.person.present,
        readable=state.readable,
    )


def _entry(conversation: Conversation, entry: Record | Withheld) -> internal_pb2.DeliveredEntry:
    if isinstance(entry, Withheld):
        return internal_pb2.DeliveredEntry(withheld=types_pb2.SeqRange(first_seq=entry.first, last_seq=entry.last))
    return internal_pb2.DeliveredEntry(message=convert.message_of(conversation, entry))

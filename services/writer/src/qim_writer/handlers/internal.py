"""`qim.writer.v1.Internal`: what the session service asks about one person."""

from __future__ import annotations

from typing import Any

import grpc

from qim.common.v1 import types_pb2
from qim.writer.v1 import internal_pb2, internal_pb2_grpc
from qim_common.ids import kind_of
from qim_common.records import Record
from qim_writer.commands.delivered import DeliveredPages, Withheld
from qim_writer.commands.states import ConversationQuery, ConversationState, PersonStates
from qim_writer.handlers import convert
from qim_writer.storage import Conversation

Context = grpc.aio.ServicerContext[Any, Any]


class InternalHandler(internal_pb2_grpc.InternalServicer):
    """The person is a subject field; the peer is the session service."""

    def __init__(self, states: PersonStates, delivered: DeliveredPages) -> None:
        self._states = states
        self._delivered = delivered

    async def ConversationStates(  # noqa: N802
        self, request: internal_pb2.ConversationStatesRequest, context: Context
    ) -> internal_pb2.ConversationStatesResponse:
        """See the proto."""
        queries = [
            ConversationQuery(
                query.conversation_id, query.read_seq, query.hidden_seq if query.HasField("hidden_seq") else None
            )
            for query in request.conversations
        ]
        found = await self._states.conversations(
            request.tenant_id, request.user_id, queries, with_preview=request.with_preview
        )
        answer = internal_pb2.ConversationStatesResponse()
        for conversation, state in found:
            # In place: a message that is made first is written and read again to be put into another.
            answer.states.add(**({"entry": {"conversation_id": conversation}} if state is None else _state(state)))
        return answer

    async def DeliveredPage(  # noqa: N802
        self, request: internal_pb2.DeliveredPageRequest, context: Context
    ) -> internal_pb2.DeliveredPageResponse:
        """See the proto."""
        page = await self._delivered.page(
            request.tenant_id, request.user_id, request.conversation_id, request.after_seq, request.limit
        )
        return internal_pb2.DeliveredPageResponse(
            entries=[_entry(page.conversation, entry) for entry in page.entries],
            next_after_seq=page.next_after,
            more=page.more,
            generation=page.generation,
            waiting=page.waiting,
            newest_delivered_seq=page.newest,
        )


def _state(state: ConversationState) -> dict[str, Any]:
    facts, newest = state.facts, state.person.newest
    entry = {
        "conversation_id": state.conversation.id,
        "kind": kind_of(state.conversation.id),
        "state": newest.state,
        "head_seq": state.head,
        "unread_count": state.unread,
        "stay": convert.stay_fields(newest),
        "earliest_available_conversation_seq": state.visible.earliest,
        "preview": None if state.preview is None else convert.message_fields(state.conversation, state.preview),
        "last_activity_ms": state.last_activity_ms,
        "revision": facts.revision if state.person.present else 0,
        "generation": facts.generation,
    }
    return {
        "entry": entry,
        "newest_delivered_seq": state.newest_delivered,
        "membership_version": facts.version_for(state.person),
        "upper_seq": state.upper,
        "frozen": facts.frozen and state.person.present,
        "readable": state.readable,
        "big": facts.big,
        "hidden": state.hidden,
        "raised": [{"generation": generation, "base_seq": base} for generation, base in facts.raised],
    }


def _entry(conversation: Conversation, entry: Record | Withheld) -> internal_pb2.DeliveredEntry:
    if isinstance(entry, Withheld):
        return internal_pb2.DeliveredEntry(withheld=types_pb2.SeqRange(first_seq=entry.first, last_seq=entry.last))
    return internal_pb2.DeliveredEntry(message=convert.message_of(conversation, entry))

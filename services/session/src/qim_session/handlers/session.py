"""`qim.session.v1.Session`: protobuf in and out, nothing else. What is not here answers UNIMPLEMENTED."""

from __future__ import annotations

from typing import Any, Final

from qim.common.v1 import types_pb2
from qim.session.v1 import session_pb2
from qim.session.v1.session_pb2_grpc import SessionServicer
from qim_common.calls import require_actor
from qim_common.ids import ConversationKind, parse_conversation
from qim_session.commands.list_conversations import ListConversations, ListedConversation
from qim_session.commands.mark_read import MarkRead
from qim_session.commands.person_conversations import PersonConversations
from qim_session.commands.pull_mailbox import Acknowledgement, MailboxEntry, PullMailbox
from qim_session.domain.cursors import Cursor
from qim_session.storage import MemberState, Withheld

_KINDS: Final = {
    None: types_pb2.CONVERSATION_KIND_UNSPECIFIED,
    ConversationKind.DIRECT: types_pb2.CONVERSATION_KIND_DIRECT,
    ConversationKind.GROUP: types_pb2.CONVERSATION_KIND_GROUP,
}
_STATES: Final = {
    MemberState.UNKNOWN: types_pb2.MEMBER_STATE_UNSPECIFIED,
    MemberState.MEMBER: types_pb2.MEMBER_STATE_MEMBER,
    MemberState.LEFT: types_pb2.MEMBER_STATE_LEFT,
    MemberState.REMOVED: types_pb2.MEMBER_STATE_REMOVED,
}

SERVICE: Final = session_pb2.DESCRIPTOR.services_by_name["Session"].full_name


class SessionHandler(SessionServicer):
    """The methods that this version has."""

    def __init__(
        self,
        *,
        list_conversations: ListConversations,
        person_conversations: PersonConversations,
        mark_read: MarkRead,
        pull_mailbox: PullMailbox,
    ) -> None:
        self._list_conversations = list_conversations
        self._person_conversations = person_conversations
        self._mark_read = mark_read
        self._pull_mailbox = pull_mailbox

    async def ListConversations(  # noqa: N802  the generated base class names it
        self, request: session_pb2.ListConversationsRequest, context: Any
    ) -> session_pb2.ListConversationsResponse:
        """A page of the actor's list."""
        page = await self._list_conversations(
            require_actor(), page_size=request.page_size, page_token=request.page_token
        )
        return session_pb2.ListConversationsResponse(
            conversations=map(_conversation, page.conversations), next_page_token=page.next_page_token
        )

    async def GetConversation(  # noqa: N802  the generated base class names it
        self, request: session_pb2.GetConversationRequest, context: Any
    ) -> session_pb2.Conversation:
        """One entry of the actor's list."""
        conversation = parse_conversation(request.conversation_id)
        return _conversation(await self._person_conversations.one(require_actor(), conversation))

    async def GetTotalUnread(  # noqa: N802  the generated base class names it
        self, request: session_pb2.GetTotalUnreadRequest, context: Any
    ) -> session_pb2.GetTotalUnreadResponse:
        """Unread over all conversations that the actor is still in."""
        total = await self._person_conversations.total_unread(require_actor())
        return session_pb2.GetTotalUnreadResponse(unread_count=total)

    async def MarkRead(  # noqa: N802  the generated base class names it
        self, request: session_pb2.MarkReadRequest, context: Any
    ) -> session_pb2.MarkReadResponse:
        """The actor has read up to a seq."""
        conversation = parse_conversation(request.conversation_id)
        mark = await self._mark_read(require_actor(), conversation=conversation, seq=request.seq)
        return session_pb2.MarkReadResponse(read_seq=mark.read_seq, unread_count=mark.unread_count)

    async def PullMailbox(  # noqa: N802  the generated base class names it
        self, request: session_pb2.PullMailboxRequest, context: Any
    ) -> session_pb2.PullMailboxResponse:
        """Acknowledgements, then what is not acknowledged."""
        acknowledged = [_acknowledgement(ack, f"ack[{number}]") for number, ack in enumerate(request.ack)]
        mailbox = await self._pull_mailbox(require_actor(), acknowledged=acknowledged, limit=request.limit)
        return session_pb2.PullMailboxResponse(entries=map(_entry, mailbox.entries), more=mailbox.more)


def _conversation(listed: ListedConversation) -> session_pb2.Conversation:
    state = listed.state
    wire = session_pb2.Conversation(
        conversation_id=state.conversation,
        kind=_KINDS[state.kind],
        state=_STATES[state.state],
        head_seq=state.head_seq,
        unread_count=state.unread_count,
        read_seq=listed.read_seq,
        stay=types_pb2.Stay.FromString(state.stay),
        earliest_available_conversation_seq=state.earliest_available_seq,
        last_activity_ms=state.last_activity_ms,
        revision=state.revision,
        generation=state.generation,
    )
    if state.preview is not None:
        wire.preview.MergeFromString(state.preview)
    return wire


def _acknowledgement(ack: session_pb2.DeviceCursor, field: str) -> Acknowledgement:
    conversation = parse_conversation(ack.conversation_id, f"{field}.conversation_id")
    return Acknowledgement(conversation, Cursor(ack.generation, ack.seq))


def _entry(entry: MailboxEntry) -> session_pb2.MailboxEntry:
    wire = session_pb2.MailboxEntry(conversation_id=entry.conversation, generation=entry.generation)
    if isinstance(entry.content, Withheld):
        wire.withheld.first_seq = entry.content.first_seq
        wire.withheld.last_seq = entry.content.last_seq
    else:
        wire.message.MergeFromString(entry.content)
    return wire

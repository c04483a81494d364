"""`qim.session.v1.Session`: protobuf in and out, nothing else."""

from __future__ import annotations

from typing import Any, Final

from qim.session.v1 import session_pb2
from qim.session.v1.session_pb2_grpc import SessionServicer
from qim_common.bindings import Bindings
from qim_common.calls import require_actor
from qim_common.ids import parse_conversation, parse_id
from qim_session.commands.flags import SetConversationFlags
from qim_session.commands.list_conversations import ListConversations
from qim_session.commands.live.service import LiveService
from qim_session.commands.mark_read import MarkRead
from qim_session.commands.person_conversations import PersonConversations
from qim_session.commands.project import Project
from qim_session.commands.pull_mailbox import PullMailbox
from qim_session.handlers.convert import complete, from_acknowledgement, to_conversation, to_mailbox_entry
from qim_session.handlers.project import hints_of
from qim_session.handlers.subscribe import SubscribeStream

SERVICE: Final = session_pb2.DESCRIPTOR.services_by_name["Session"].full_name


class SessionHandler(SessionServicer):
    """All methods."""

    def __init__(
        self,
        *,
        list_conversations: ListConversations,
        person_conversations: PersonConversations,
        mark_read: MarkRead,
        set_conversation_flags: SetConversationFlags,
        pull_mailbox: PullMailbox,
        project: Project,
        live: LiveService,
        bindings: Bindings,
    ) -> None:
        self._list_conversations = list_conversations
        self._person_conversations = person_conversations
        self._mark_read = mark_read
        self._set_conversation_flags = set_conversation_flags
        self._pull_mailbox = pull_mailbox
        self._project = project
        self._live = live
        self._bindings = bindings

    async def ListConversations(  # noqa: N802  the generated base class names it
        self, request: session_pb2.ListConversationsRequest, context: Any
    ) -> session_pb2.ListConversationsResponse:
        """A page of the actor's list."""
        page = await self._list_conversations(
            require_actor(),
            page_size=request.page_size,
            page_token=request.page_token,
            include_hidden=request.include_hidden,
        )
        answer = session_pb2.ListConversationsResponse(next_page_token=page.next_page_token)
        for listed in page.conversations:
            complete(answer.conversations.add(), listed)
        return answer

    async def GetConversation(  # noqa: N802  the generated base class names it
        self, request: session_pb2.GetConversationRequest, context: Any
    ) -> session_pb2.Conversation:
        """One entry of the actor's list."""
        conversation = parse_conversation(request.conversation_id)
        return to_conversation(await self._person_conversations.one(require_actor(), conversation))

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

    async def SetConversationFlags(  # noqa: N802  the generated base class names it
        self, request: session_pb2.SetConversationFlagsRequest, context: Any
    ) -> session_pb2.Conversation:
        """The actor hides or mutes a conversation, or no longer does."""
        entry = await self._set_conversation_flags(
            require_actor(),
            request_id=parse_id(request.request_id, "request_id"),
            conversation=parse_conversation(request.conversation_id),
            hidden=request.hidden if request.HasField("hidden") else None,
            muted=request.muted if request.HasField("muted") else None,
        )
        return to_conversation(entry)

    async def Subscribe(  # type: ignore[override]  # noqa: N802  writes its answers itself
        self, request_iterator: Any, context: Any
    ) -> None:
        """The live stream of a gateway's connected persons."""
        await SubscribeStream(self._live, self._bindings).serve(context)

    async def PullMailbox(  # noqa: N802  the generated base class names it
        self, request: session_pb2.PullMailboxRequest, context: Any
    ) -> session_pb2.PullMailboxResponse:
        """Acknowledgements, then what is not acknowledged."""
        acknowledged = [from_acknowledgement(ack, f"ack[{number}]") for number, ack in enumerate(request.ack)]
        pulled = await self._pull_mailbox(require_actor(), acknowledged=acknowledged, limit=request.limit)
        entries = [to_mailbox_entry(entry.conversation, entry.generation, entry.content) for entry in pulled.entries]
        return session_pb2.PullMailboxResponse(entries=entries, more=pulled.more)

    async def Project(  # noqa: N802  the generated base class names it
        self, request: session_pb2.ProjectRequest, context: Any
    ) -> session_pb2.ProjectResponse:
        """The writer's low-latency lane."""
        self._project(hints_of(request))
        return session_pb2.ProjectResponse()

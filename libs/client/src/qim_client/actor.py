"""What a gateway does for one end user: the methods of GroupMembership, Writer and Session that take an actor.

Every method takes `timeout` in seconds for all attempts together (None: the client's) and raises the QimError that the
service answered. A method that changes something makes its id once and repeats the call with it; pass `request_id` to
repeat it yourself later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from qim.membership.v1 import membership_pb2
from qim.session.v1 import session_pb2
from qim.writer.v1 import writer_pb2
from qim_client import answers, convert
from qim_client.services import Services
from qim_client.values import MAX_SEQ, DeviceCursor, Direction, GroupSettings, Member, Message, Outgoing
from qim_common.errors import InvalidArgument
from qim_common.identity import ACTOR_KEY, Actor
from qim_common.ids import ConversationId, UserId, uuid7
from qim_common.settings_wire import settings_to_wire

MAX_PAGE = 1000


class ActorClient:
    """One end user, on one device."""

    def __init__(self, services: Services, actor: Actor) -> None:
        self.actor = actor
        self._services = services
        self._metadata = ((ACTOR_KEY, actor.to_message().SerializeToString()),)

    async def create_group(
        self,
        members: Sequence[UserId] = (),
        *,
        group: ConversationId | None = None,
        settings: GroupSettings | None = None,
        request_id: bytes | None = None,
        timeout: float | None = None,
    ) -> answers.GroupCreated:
        """A group that this person owns; `group` None: its id is derived from tenant, person and request id."""
        request = membership_pb2.GroupCreateRequest(
            request_id=request_id or uuid7(),
            group_id=group or b"",
            member_user_ids=members,
            settings=settings_to_wire(settings) if settings else None,
        )
        return convert.group_created(
            await self._services.membership.call(
                lambda stub: stub.CreateGroup, request, metadata=self._metadata, timeout=timeout
            )
        )

    async def send(self, item: Outgoing, *, timeout: float | None = None) -> answers.Sent:
        """Commit one message of this person; for many, `GatewayClient.open_stream`.

        Raises InvalidArgument when `item` is another person's.
        """
        if item.actor != self.actor:
            raise InvalidArgument("item.actor", "is not the person of this client")
        answer = await self._services.writer.call(
            lambda stub: stub.SendMessage,
            writer_pb2.SendMessageRequest(message=convert.outgoing_to_wire(item)),
            metadata=self._metadata,
            timeout=timeout,
            repeat_aborted=not item.expected_version,
        )
        return convert.sent(answer)

    async def send_to(
        self, conversation: ConversationId, body: bytes, *, custom_type: str = "", timeout: float | None = None
    ) -> answers.Sent:
        """Commit a new message to a conversation."""
        item = Outgoing(self.actor, body, conversation=conversation, custom_type=custom_type)
        return await self.send(item, timeout=timeout)

    async def send_to_person(
        self, peer: UserId, body: bytes, *, custom_type: str = "", timeout: float | None = None
    ) -> answers.Sent:
        """Commit a new message to the direct conversation with `peer`, which the first one creates."""
        return await self.send(Outgoing(self.actor, body, peer=peer, custom_type=custom_type), timeout=timeout)

    async def leave_group(
        self, group: ConversationId, *, request_id: bytes | None = None, timeout: float | None = None
    ) -> answers.Left:
        """Leave; leaving twice succeeds without an event."""
        request = writer_pb2.LeaveGroupRequest(request_id=request_id or uuid7(), group_id=group)
        return convert.left(
            await self._services.writer.call(
                lambda stub: stub.LeaveGroup, request, metadata=self._metadata, timeout=timeout
            )
        )

    async def pull_history(
        self,
        conversation: ConversationId,
        *,
        from_seq: int = 0,
        direction: Direction = Direction.OLDER,
        limit: int = 100,
        timeout: float | None = None,
    ) -> answers.HistoryPage:
        """Visible messages from `from_seq` on (inclusive; 0: from the newest or the oldest), 1 to 1000."""
        request = writer_pb2.PullHistoryRequest(
            conversation_id=conversation,
            from_seq=from_seq,
            direction=writer_pb2.Direction.ValueType(direction),
            limit=limit,
        )
        return convert.history_page(
            await self._services.writer.call(
                lambda stub: stub.PullHistory, request, metadata=self._metadata, timeout=timeout
            )
        )

    async def history(
        self, conversation: ConversationId, *, from_seq: int = 0, direction: Direction = Direction.OLDER
    ) -> AsyncIterator[Message]:
        """All visible messages from `from_seq` on, page after page."""
        while True:
            page = await self.pull_history(conversation, from_seq=from_seq, direction=direction, limit=MAX_PAGE)
            for message in page.messages:
                yield message
            if not page.next_from_seq:
                return
            from_seq = page.next_from_seq

    async def get_messages(
        self, conversation: ConversationId, seqs: Sequence[int], *, timeout: float | None = None
    ) -> answers.MessagesFound:
        """The messages with these seqs, 1 to 1000 of them; those that the person may not see are left out."""
        request = writer_pb2.GetMessagesRequest(conversation_id=conversation, seqs=seqs)
        return convert.messages_found(
            await self._services.writer.call(
                lambda stub: stub.GetMessages, request, metadata=self._metadata, timeout=timeout
            )
        )

    async def get_visible_range(
        self, conversation: ConversationId, *, timeout: float | None = None
    ) -> answers.VisibleRange:
        """What the person may read now."""
        request = writer_pb2.GetVisibleRangeRequest(conversation_id=conversation)
        return convert.visible_range(
            await self._services.writer.call(
                lambda stub: stub.GetVisibleRange, request, metadata=self._metadata, timeout=timeout
            )
        )

    async def members_since(
        self, group: ConversationId, version: int, *, limit: int = 100, timeout: float | None = None
    ) -> answers.MembershipChanges:
        """The changes after a membership version, oldest first, 1 to 1000 of them."""
        request = writer_pb2.MembersSinceRequest(group_id=group, membership_version=version, limit=limit)
        return convert.membership_changes(
            await self._services.writer.call(
                lambda stub: stub.MembersSince, request, metadata=self._metadata, timeout=timeout
            )
        )

    async def members_page(
        self, group: ConversationId, *, page_size: int = 100, page_token: str = "", timeout: float | None = None
    ) -> answers.MemberPage:
        """Present members in a stable order, 1 to 1000 of them."""
        request = membership_pb2.MemberPageRequest(group_id=group, page_size=page_size, page_token=page_token)
        answer = await self._services.membership.call(
            lambda stub: stub.MembersPage, request, metadata=self._metadata, timeout=timeout
        )
        return convert.member_page(answer)

    async def members(self, group: ConversationId) -> AsyncIterator[Member]:
        """All present members, page after page."""
        token = ""
        while True:
            page = await self.members_page(group, page_size=MAX_PAGE, page_token=token)
            for member in page.members:
                yield member
            if not (token := page.next_page_token):
                return

    async def authorize_send(self, conversation: ConversationId, *, timeout: float | None = None) -> None:
        """Returns when the person could send now."""
        request = membership_pb2.AuthorizeSendRequest(conversation_id=conversation)
        await self._services.membership.call(
            lambda stub: stub.AuthorizeSend, request, metadata=self._metadata, timeout=timeout
        )

    async def authorize_history(self, conversation: ConversationId, *, timeout: float | None = None) -> None:
        """Returns when the person may read some of the history."""
        request = membership_pb2.AuthorizeHistoryRequest(conversation_id=conversation)
        await self._services.membership.call(
            lambda stub: stub.AuthorizeHistory, request, metadata=self._metadata, timeout=timeout
        )

    async def freeze_delivery(
        self, conversation: ConversationId, *, timeout: float | None = None
    ) -> answers.FrozenDelivery:
        """The exact version at which the person would send now, for `Outgoing.expected_version`."""
        request = membership_pb2.FreezeDeliveryRequest(conversation_id=conversation)
        return convert.frozen_delivery(
            await self._services.membership.call(
                lambda stub: stub.FreezeDelivery, request, metadata=self._metadata, timeout=timeout
            )
        )

    async def list_conversations(
        self,
        *,
        page_size: int = 100,
        page_token: str = "",
        include_hidden: bool = False,
        timeout: float | None = None,
    ) -> answers.ConversationPage:
        """The person's conversations, newest activity first, 1 to 1000 of them; a page may hold fewer, or none.

        Every page of a list is asked for with the same `include_hidden`.
        """
        request = session_pb2.ListConversationsRequest(
            page_size=page_size, page_token=page_token, include_hidden=include_hidden
        )
        return convert.conversation_page(
            await self._services.session.call(
                lambda stub: stub.ListConversations, request, metadata=self._metadata, timeout=timeout
            )
        )

    async def conversations(self) -> AsyncIterator[answers.Conversation]:
        """All conversations, page after page; one that rises meanwhile may come twice (storage.md, "Session")."""
        token = ""
        while True:
            page = await self.list_conversations(page_size=MAX_PAGE, page_token=token)
            for conversation in page.conversations:
                yield conversation
            if not (token := page.next_page_token):
                return

    async def get_conversation(
        self, conversation: ConversationId, *, timeout: float | None = None
    ) -> answers.Conversation:
        """One entry of the person's list."""
        request = session_pb2.GetConversationRequest(conversation_id=conversation)
        return convert.conversation(
            await self._services.session.call(
                lambda stub: stub.GetConversation, request, metadata=self._metadata, timeout=timeout
            )
        )

    async def get_total_unread(self, *, timeout: float | None = None) -> int:
        """What is unread in all conversations that the person is still in."""
        answer = await self._services.session.call(
            lambda stub: stub.GetTotalUnread,
            session_pb2.GetTotalUnreadRequest(),
            metadata=self._metadata,
            timeout=timeout,
        )
        return answer.unread_count

    async def clear_history(
        self,
        conversation: ConversationId,
        *,
        up_to_seq: int = 0,
        request_id: bytes | None = None,
        timeout: float | None = None,
    ) -> int:
        """Move the person's own clear point up, on all devices; 0: everything they have. Answers where it is then."""
        request = writer_pb2.ClearHistoryRequest(
            request_id=request_id or uuid7(), conversation_id=conversation, up_to_seq=up_to_seq
        )
        answer = await self._services.writer.call(
            lambda stub: stub.ClearHistory, request, metadata=self._metadata, timeout=timeout
        )
        return answer.own_clear_seq

    async def clear_group_history(
        self,
        group: ConversationId,
        *,
        up_to_seq: int = 0,
        request_id: bytes | None = None,
        timeout: float | None = None,
    ) -> int:
        """Move the group's floor up for all, as its owner; 0: everything. Answers where it is then."""
        request = writer_pb2.ClearGroupHistoryRequest(
            request_id=request_id or uuid7(), group_id=group, up_to_seq=up_to_seq
        )
        answer = await self._services.writer.call(
            lambda stub: stub.ClearGroupHistory, request, metadata=self._metadata, timeout=timeout
        )
        return answer.group_floor_seq

    async def transfer_ownership(
        self, group: ConversationId, owner: UserId, *, request_id: bytes | None = None, timeout: float | None = None
    ) -> UserId:
        """Make another member the owner, as the owner. Answers who owns the group then."""
        request = writer_pb2.TransferOwnershipRequest(
            request_id=request_id or uuid7(), group_id=group, new_owner_user_id=owner
        )
        answer = await self._services.writer.call(
            lambda stub: stub.TransferOwnership, request, metadata=self._metadata, timeout=timeout
        )
        return UserId(answer.owner_user_id)

    async def mark_read(
        self, conversation: ConversationId, seq: int | None = None, *, timeout: float | None = None
    ) -> answers.ReadMark:
        """Move the read cursor forward to `seq`, at most to what the person may have read; None: so far."""
        request = session_pb2.MarkReadRequest(conversation_id=conversation, seq=MAX_SEQ if seq is None else seq)
        return convert.read_mark(
            await self._services.session.call(
                lambda stub: stub.MarkRead, request, metadata=self._metadata, timeout=timeout
            )
        )

    async def set_conversation_flags(
        self,
        conversation: ConversationId,
        *,
        hidden: bool | None = None,
        muted: bool | None = None,
        request_id: bytes | None = None,
        timeout: float | None = None,
    ) -> answers.Conversation:
        """Hide or mute a conversation for this person, on all devices; None: as it is. Answers its entry then."""
        request = session_pb2.SetConversationFlagsRequest(
            request_id=request_id or uuid7(), conversation_id=conversation, hidden=hidden, muted=muted
        )
        return convert.conversation(
            await self._services.session.call(
                lambda stub: stub.SetConversationFlags, request, metadata=self._metadata, timeout=timeout
            )
        )

    async def pull_mailbox(
        self, *, ack: Sequence[DeviceCursor] = (), limit: int = 100, timeout: float | None = None
    ) -> answers.MailboxPage:
        """Acknowledge `ack`, then what was delivered and is not acknowledged by this device, 1 to 1000 entries."""
        request = session_pb2.PullMailboxRequest(ack=[convert.cursor_to_wire(cursor) for cursor in ack], limit=limit)
        return convert.mailbox_page(
            await self._services.session.call(
                lambda stub: stub.PullMailbox, request, metadata=self._metadata, timeout=timeout
            )
        )

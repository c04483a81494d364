"""Large messages, asked of the writer for one of the people whom they reached."""

from __future__ import annotations

from qim.common.v1 import types_pb2
from qim_common.ids import ConversationId, TenantId, UserId
from qim_session.storage.conversations import Conversations, Withheld
from qim_session.storage.push import MessageContent


class WriterContents:
    """The `MessageContents` of the writer."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def read(
        self, tenant: TenantId, conversation: ConversationId, seq: int, reader: UserId
    ) -> MessageContent | None:
        """As `MessageContents.read`."""
        page = await self._conversations.delivered(tenant, reader, conversation, after_seq=seq - 1, limit=1)
        if not page.entries or isinstance(page.entries[0], Withheld):
            return None
        message = types_pb2.Message.FromString(page.entries[0])
        if message.seq != seq:
            return None
        return MessageContent(UserId(message.sender_user_id), message.custom_type, message.body)

"""What a chat asks of the services, and the gateway's client as the one that answers.

`Feed` is the border: everything on this side of it runs with any implementation, a fake one included.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import grpc

from qim_client import (
    ActorClient,
    Conversation,
    ConversationPage,
    DeviceCursor,
    Direction,
    GatewayClient,
    HistoryPage,
    LiveEvent,
    Outgoing,
    ReadMark,
    Sent,
    Subscription,
    VisibleRange,
)
from qim_client.attachment import Attachment
from qim_client.live_events import Attached, Detached, Resumed
from qim_common.errors import QimError, Reason, RemoteError
from qim_common.identity import Actor
from qim_common.ids import ConversationId

LIST_PAGE: Final = 500
HISTORY_PAGE: Final = 100

_FIRST_DELAY: Final = 0.2
_LONGEST_DELAY: Final = 5.0
_LOOK_SECONDS: Final = 0.5
"""How often it is looked whether the live stream is cut."""

_ENDED: Final = RemoteError(code=grpc.StatusCode.UNAVAILABLE, message="the attachment has ended")


@dataclass(frozen=True, slots=True)
class Link:
    """Whether the live stream stands: `trouble` is why it does not, None when it does again."""

    trouble: QimError | None


FeedEvent: TypeAlias = LiveEvent | Link


class Feed(Protocol):
    """What a chat asks for one person on one device. Every call raises the QimError of its refusal."""

    def events(self) -> AsyncGenerator[FeedEvent, None]:
        """What happens from now on, for ever; what is delivered and not acknowledged comes first."""
        ...

    async def acknowledge(self, cursors: Sequence[DeviceCursor]) -> None:
        """All this has arrived, of the attachment that `events` iterates."""
        ...

    async def conversations(self, page_token: str) -> ConversationPage:
        """A page of the list, hidden conversations included; an empty token: the first."""
        ...

    async def conversation(self, conversation: ConversationId) -> Conversation:
        """One entry of the list."""
        ...

    async def total_unread(self) -> int:
        """What is unread in all conversations that the person is still in."""
        ...

    async def visible(self, conversation: ConversationId) -> VisibleRange:
        """What the person may read now."""
        ...

    async def history(self, conversation: ConversationId, from_seq: int = 0) -> HistoryPage:
        """A page of history backwards from `from_seq` (inclusive), 0: from the newest message."""
        ...

    async def send(self, item: Outgoing) -> Sent:
        """Commit a message."""
        ...

    async def leave(self, group: ConversationId) -> None:
        """Leave a group."""
        ...

    async def clear(self, conversation: ConversationId) -> int:
        """Clear everything for this person; answers up to which seq."""
        ...

    async def mark_read(self, conversation: ConversationId, seq: int | None) -> ReadMark:
        """Mark read up to a seq, None: everything."""
        ...

    async def set_flags(
        self, conversation: ConversationId, *, hidden: bool | None = None, muted: bool | None = None
    ) -> Conversation:
        """Hide or mute a conversation; None: as it is."""
        ...

    @property
    def actor(self) -> Actor:
        """The person and the device."""
        ...


class GatewayFeed:
    """The feed of a gateway's client; one `events` at a time."""

    def __init__(self, client: GatewayClient, actor: ActorClient) -> None:
        self._client = client
        self._calls = actor
        self._attachment: Attachment | None = None

    @property
    def actor(self) -> Actor:
        """See `Feed`."""
        return self._calls.actor

    async def events(self) -> AsyncGenerator[FeedEvent, None]:
        """See `Feed`. An attachment that ends is attached again, from where it was, after a growing delay."""
        token, delay = "", 0.0
        while True:
            await asyncio.sleep(delay)
            delay = min(max(2 * delay, _FIRST_DELAY), _LONGEST_DELAY)
            try:
                async with self._client.subscribe() as subscription:
                    self._attachment = await subscription.attach(self.actor, resume_token=token)
                    async with contextlib.aclosing(_looked_after(subscription)) as events:
                        async for event in events:
                            if isinstance(event, Detached):
                                token = "" if event.reason == Reason.PAGE_TOKEN_INVALID else event.resume_token
                                yield Link(event.error or _ENDED)
                                break
                            if isinstance(event, Attached | Resumed):
                                token, delay = event.resume_token, 0.0
                            yield event
            except QimError as error:
                yield Link(error)
            finally:
                self._attachment = None

    async def acknowledge(self, cursors: Sequence[DeviceCursor]) -> None:
        """See `Feed`. Without an attachment nothing is acknowledged, and comes again."""
        if self._attachment is not None:
            await self._attachment.acknowledge_many(cursors)

    async def conversations(self, page_token: str) -> ConversationPage:
        """See `Feed`."""
        return await self._calls.list_conversations(page_size=LIST_PAGE, page_token=page_token, include_hidden=True)

    async def conversation(self, conversation: ConversationId) -> Conversation:
        """See `Feed`."""
        return await self._calls.get_conversation(conversation)

    async def total_unread(self) -> int:
        """See `Feed`."""
        return await self._calls.get_total_unread()

    async def visible(self, conversation: ConversationId) -> VisibleRange:
        """See `Feed`."""
        return await self._calls.get_visible_range(conversation)

    async def history(self, conversation: ConversationId, from_seq: int = 0) -> HistoryPage:
        """See `Feed`."""
        return await self._calls.pull_history(
            conversation, from_seq=from_seq, direction=Direction.OLDER, limit=HISTORY_PAGE
        )

    async def send(self, item: Outgoing) -> Sent:
        """See `Feed`."""
        return await self._calls.send(item)

    async def leave(self, group: ConversationId) -> None:
        """See `Feed`."""
        await self._calls.leave_group(group)

    async def clear(self, conversation: ConversationId) -> int:
        """See `Feed`."""
        return await self._calls.clear_history(conversation)

    async def mark_read(self, conversation: ConversationId, seq: int | None) -> ReadMark:
        """See `Feed`."""
        return await self._calls.mark_read(conversation, seq)

    async def set_flags(
        self, conversation: ConversationId, *, hidden: bool | None = None, muted: bool | None = None
    ) -> Conversation:
        """See `Feed`."""
        return await self._calls.set_conversation_flags(conversation, hidden=hidden, muted=muted)


async def _looked_after(subscription: Subscription) -> AsyncGenerator[FeedEvent, None]:
    """Its events, and a Link whenever the stream is cut or stands again."""
    trouble: QimError | None = None
    waiting: asyncio.Task[LiveEvent] | None = None
    try:
        while True:
            waiting = waiting or asyncio.create_task(_next(subscription), name="qim-chat-event")
            await asyncio.wait({waiting}, timeout=_LOOK_SECONDS)
            if (subscription.trouble is None) != (trouble is None):
                trouble = subscription.trouble
                yield Link(trouble)
            if waiting.done():
                event, waiting = waiting.result(), None
                yield event
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.wait({waiting})


async def _next(subscription: Subscription) -> LiveEvent:
    return await anext(subscription)

"""A reader of live streams for tests: it takes every event as it comes, and waits for what a test expects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from qim_client import Attached, Attachment, Delivered, Detached, GatewayClient, LiveEvent, Subscription
from qim_common.identity import Actor
from qim_common.ids import ConversationId

Kind = TypeVar("Kind", bound=LiveEvent)
BOUND_SECONDS = 20.0
Place = tuple[ConversationId, int, int]
"""Conversation, first and last seq of one delivery."""


class LiveReader:
    """One subscription, read all the time. Use it as an async context manager."""

    def __init__(self, gateway: GatewayClient) -> None:
        self.subscription: Subscription = gateway.subscribe()
        self.events: list[LiveEvent] = []
        self._news = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.subscription.close()
        assert self._task is not None
        await asyncio.wait_for(self._task, BOUND_SECONDS)

    async def attach(self, actor: Actor, token: str = "") -> Attachment:
        """Attach, and wait until everything that was delivered before has come."""
        attachment = await self.subscription.attach(actor, token)
        await self.until(lambda: bool(self.of(attachment, Attached)))
        return attachment

    async def detach(self, attachment: Attachment) -> Detached:
        """Detach, and wait for the end."""
        await attachment.detach()
        await self.until(lambda: bool(self.of(attachment, Detached)))
        (detached,) = self.of(attachment, Detached)
        return detached

    def of(self, attachment: Attachment, kind: type[Kind]) -> list[Kind]:
        """The attachment's events of one kind, in their order."""
        return [event for event in self.events if isinstance(event, kind) and event.attachment is attachment]

    def places(self, attachment: Attachment) -> list[Place]:
        """What was delivered to an attachment, in the order in which it came."""
        return [place_of(event) for event in self.of(attachment, Delivered)]

    def seqs(self, attachment: Attachment, conversation: ConversationId) -> list[int]:
        """The seqs of one conversation in the order in which they came, withheld ones included."""
        return [
            seq
            for where, first, last in self.places(attachment)
            if where == conversation
            for seq in range(first, last + 1)
        ]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what has come fulfils a condition."""
        async with asyncio.timeout(BOUND_SECONDS), self._news:
            await self._news.wait_for(condition)

    async def _read(self) -> None:
        async for event in self.subscription:
            async with self._news:
                self.events.append(event)
                self._news.notify_all()


def place_of(event: Delivered) -> Place:
    """Where a delivery stands."""
    first = event.withheld.first if event.withheld is not None else event.cursor.seq
    return event.conversation, first, event.cursor.seq

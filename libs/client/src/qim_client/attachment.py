"""One device on a live stream: what it has acknowledged, and what of the events that come is news to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from qim_client.live_events import Attached, Delivered, Detached, LiveEvent, Resumed
from qim_client.values import DeviceCursor, SeqRange
from qim_common.identity import Actor
from qim_common.ids import ConversationId

if TYPE_CHECKING:
    from qim_client.subscribing import Subscription

_Kept = TypeVar("_Kept")

CONVERSATIONS_REMEMBERED: Final = 10_000
"""Conversations of one attachment of which it is remembered what they brought."""


class Attachment:
    """One device of one person, attached to a `Subscription`. `Subscription.attach` makes it.

    Attributes:
        number: its number on the stream.
        actor: the person and the device.
    """

    def __init__(self, subscription: Subscription, number: int, actor: Actor, resume_token: str) -> None:
        self.number = number
        self.actor = actor
        self._subscription = subscription
        self._token = resume_token
        self._received: dict[ConversationId, tuple[int, int]] = {}
        self._acknowledged: dict[ConversationId, DeviceCursor] = {}
        self._leaving = False
        self._moved = False  # it has been attached to a stream that has ended

    def __repr__(self) -> str:
        return f"<Attachment {self.number}>"

    @property
    def resume_token(self) -> str:
        """The newest one: attaching with it later, also elsewhere, goes on from here."""
        return self._token

    async def acknowledge(self, conversation: ConversationId, generation: int, seq: int) -> None:
        """Everything of the conversation up to `seq` has arrived on the device."""
        await self.acknowledge_many([DeviceCursor(conversation, generation, seq)])

    async def acknowledge_many(self, cursors: Iterable[DeviceCursor]) -> None:
        """The same for several conversations. Returns before the server knows of it; the last of each one counts."""
        for cursor in cursors:
            _remember(self._acknowledged, cursor.conversation, cursor)
            self._subscription._acknowledge(self, cursor)

    async def detach(self) -> None:
        """End the attachment; its `Detached` comes after what was delivered until then, and after the server has heard
        what was acknowledged before. Where the stream ends meanwhile, that takes a new one."""
        self._subscription._detach(self)

    def _take(self, event: LiveEvent) -> LiveEvent | None:
        """Keep track of an event; what of it is news, None for nothing."""
        if isinstance(event, Attached | Resumed | Detached):
            self._token = event.resume_token or self._token
        elif isinstance(event, Delivered):
            return self._take_delivered(event)
        return event

    def _take_delivered(self, event: Delivered) -> Delivered | None:
        cursor, withheld = event.cursor, event.withheld
        first = cursor.seq if withheld is None else withheld.first
        acknowledged = self._acknowledged.get(cursor.conversation)
        if acknowledged is not None and (cursor.generation, first) <= (acknowledged.generation, acknowledged.seq):
            self._subscription._acknowledge(self, acknowledged)  # the stream ended before it was heard
        generation, seq = self._received.get(cursor.conversation, (0, 0))
        if (cursor.generation, cursor.seq) <= (generation, seq):
            return None
        _remember(self._received, cursor.conversation, (cursor.generation, cursor.seq))
        if withheld is None or cursor.generation != generation or first > seq:
            return event
        # What came as messages is withheld now, in one stretch with what has not come.
        entry = dataclasses.replace(event.entry, withheld=SeqRange(seq + 1, cursor.seq))
        return dataclasses.replace(event, entry=entry)


def _remember(kept: dict[ConversationId, _Kept], conversation: ConversationId, value: _Kept) -> None:
    kept.pop(conversation, None)
    kept[conversation] = value
    if len(kept) > CONVERSATIONS_REMEMBERED:
        del kept[next(iter(kept))]

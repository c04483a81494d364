"""Devices that are attached to live streams, and everything that each of them was told.

There is one stream to each session replica, which all persons share, as a gateway would have it. What must not happen
(something delivered again, something of another conversation, an attachment or a stream that ends) is a device's
`fault`; waiting for something ends with it, so that a test fails at its comparison and does not hang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from qim_client import GatewayClient, MailboxEntry, Subscription
from qim_client.attachment import Attachment
from qim_client.live_events import Attached, Delivered, Detached, LiveEvent, ResyncRequired
from qim_common.errors import QimError
from qim_common.identity import Actor
from qim_common.ids import ConversationId

SETTLE_SECONDS: Final = 10.0
"""How long something may take to come; it is milliseconds unless the machine is very busy."""


class Subscriber:
    """One attached device.

    Parameters:
        conversation: the only one that the person is in; None: in any.
        acknowledges: whether it acknowledges everything as it comes.

    Attributes:
        attached: everything delivered before the attach has come.
        entries: what was delivered, in the order in which it came.
        fault: the first thing that must not happen; empty: nothing.
    """

    def __init__(self, conversation: ConversationId | None = None, *, acknowledges: bool) -> None:
        self.attached = False
        self.entries: list[MailboxEntry] = []
        self.fault = ""
        self._conversation = conversation
        self._acknowledges = acknowledges
        self._newest: dict[ConversationId, int] = {}
        self._news = asyncio.Event()

    def ranges(self, conversation: ConversationId) -> list[tuple[int, int]]:
        """The seqs of a conversation that came, withheld ones included, as first and last."""
        return [first_and_last(entry) for entry in self.entries if entry.conversation == conversation]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds, at the first fault, or when the time is up."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while not condition() and not self.fault:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return

    async def take(self, event: LiveEvent) -> None:
        """The next event of this device."""
        match event:
            case Delivered():
                self._receive(event)
                if self._acknowledges:
                    await event.attachment.acknowledge_many([event.cursor])
            case Attached():
                self.attached = True
            case ResyncRequired(newest_seq=newest):
                self.fail(f"RESYNC_REQUIRED up to {newest}")
            case Detached(error=error) if error is not None:
                self.fail(f"detached: {error.reason or error.code.name}")
        self._news.set()

    def fail(self, fault: str) -> None:
        """What came after this counts no more."""
        self.fault = self.fault or fault
        self._news.set()

    def _receive(self, event: Delivered) -> None:
        first, last = first_and_last(event.entry)
        newest = self._newest.get(event.conversation, 0)
        if self._conversation is not None and event.conversation != self._conversation:
            self.fail(f"{first} of another conversation")
        elif first <= newest:
            self.fail(f"{first} again after {newest}")
        self._newest[event.conversation] = last
        self.entries.append(event.entry)


def first_and_last(entry: MailboxEntry) -> tuple[int, int]:
    """The seqs of an entry, both ends included."""
    last = entry.cursor.seq
    return (last if entry.withheld is None else entry.withheld.first, last)


class Subscriptions:
    """The streams, one for each of `gateways`, which use one replica each. Use it as a context manager."""

    def __init__(self, gateways: Sequence[GatewayClient]) -> None:
        self._streams = [gateway.subscribe() for gateway in gateways]
        self._subscribers: dict[Attachment, Subscriber] = {}
        self._readers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Subscriptions:
        self._readers = [asyncio.create_task(self._read(stream)) for stream in self._streams]
        return self

    async def __aexit__(self, *_: object) -> None:
        for stream in self._streams:
            await stream.close()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def attach(
        self, replica: int, actor: Actor, subscriber: Subscriber, *, wait: bool = True
    ) -> Attachment | None:
        """Attach a device at a replica (a number, from 0), and wait until it is. None, and a fault, if it cannot be."""
        try:
            attachment = await self._streams[replica].attach(actor)
        except QimError as error:
            subscriber.fail(_told(error))
            return None
        self._subscribers[attachment] = subscriber
        if not wait:
            return attachment
        await subscriber.until(lambda: subscriber.attached)
        if not subscriber.attached:
            subscriber.fail("was not attached in time")
        return attachment

    async def detach(self, attachment: Attachment) -> None:
        """What still comes for it is nobody's."""
        self._subscribers.pop(attachment, None)
        await attachment.detach()

    async def _read(self, stream: Subscription) -> None:
        try:
            async for event in stream:
                subscriber = self._subscribers.get(event.attachment)
                if subscriber is not None:
                    await subscriber.take(event)
        except QimError as error:
            for subscriber in self._subscribers.values():
                subscriber.fail(_told(error))


def _told(error: QimError) -> str:
    return f"the stream ended: {error.reason or error.code.name}"

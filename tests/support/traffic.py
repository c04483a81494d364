"""Messages that go on in many conversations, and a fold of what was answered: what people must be told afterwards."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from qim_client import GatewayClient, Outgoing, SendStream, actor
from qim_common.ids import ConversationId, TenantId, UserId

FRAME = 32
"""Messages of one frame; the next is sent when it is answered."""


@dataclass
class Room:
    """A conversation of the traffic, and what was committed in it.

    Attributes:
        members: everybody, in a direct conversation both; from which seq on each of them is there (1: from the start).
        peers: of a direct conversation the two, else empty.
        head, time_ms: of the newest message that was answered.
        senders: of every message, by seq.
    """

    conversation: ConversationId
    members: dict[UserId, int]
    peers: tuple[UserId, ...] = ()
    head: int = 0
    time_ms: int = 0
    senders: dict[int, UserId] = field(default_factory=dict)

    def event(self, seq: int, time_ms: int) -> None:
        """A membership event was committed, which reaches everybody."""
        self.head, self.time_ms = max(self.head, seq), max(self.time_ms, time_ms)

    def unread(self, user: UserId) -> int:
        """For somebody who has read nothing: what others sent since the person is there."""
        return sum(seq > self.members[user] - 1 and sender != user for seq, sender in self.senders.items())

    def outgoing(self, sender: UserId, tenant: TenantId) -> Outgoing:
        """The next message."""
        by = actor(tenant, sender)
        if self.peers:
            peer = next((person for person in self.peers if person != sender), sender)
            return Outgoing(by, b"traffic", peer=peer)
        return Outgoing(by, b"traffic", conversation=self.conversation)


class Traffic:
    """Sends in these rooms, at random, until it is stopped. Every seq that is answered twice is a failure."""

    def __init__(self, tenant: TenantId, rooms: Sequence[Room], seed: int = 0) -> None:
        self.rooms = list(rooms)
        self.sent = 0
        self._tenant = tenant
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._news = asyncio.Event()

    async def send(self, stream: SendStream, rooms: Sequence[Room]) -> None:
        """One message in each of these rooms; raises the first refusal."""
        items = []
        for room in rooms:
            sender = self._random.choice(list(room.members))
            items.append((room, sender, room.outgoing(sender, self._tenant)))
        outcomes = await stream.send([item for _, _, item in items])
        for (room, sender, _), outcome in zip(items, outcomes, strict=True):
            sent = outcome.result()
            assert sent.conversation == room.conversation
            assert sent.seq not in room.senders
            room.senders[sent.seq] = sender
            room.event(sent.seq, sent.time_ms)
        self.sent += len(items)
        self._news.set()

    async def more(self, messages: int) -> None:
        """Returns when so many more were answered; while the traffic runs."""
        wanted = self.sent + messages
        while self.sent < wanted:
            self._news.clear()
            await self._news.wait()

    @asynccontextmanager
    async def running(self, gateway: GatewayClient, *, a_second: float = math.inf) -> AsyncIterator[None]:
        """Goes on inside of the context, with so many messages a second at most; raises what ended it before."""
        loop = asyncio.get_running_loop()
        async with gateway.open_stream() as stream:
            stop = asyncio.Event()

            async def go_on() -> None:
                while not stop.is_set():
                    began = loop.time()
                    some = self._random.sample(self.rooms, min(FRAME, len(self.rooms)))
                    await self.send(stream, some)
                    await asyncio.sleep(began + len(some) / a_second - loop.time())

            async with asyncio.TaskGroup() as group:
                group.create_task(go_on())
                try:
                    yield
                finally:
                    stop.set()

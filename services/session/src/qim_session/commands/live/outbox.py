"""What waits to be written to one stream: bounded, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from qim_session.commands.live.events import WireEvent

_EVENT_BYTES: Final = 64
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Queued:
    """An event, and the attachments that get it."""

    event: WireEvent
    attachments: Sequence[int]

    @property
    def size(self) -> int:
        """About what it takes in memory and on the wire, bytes; a message counts for each stream that holds it."""
        return len(self.event) + _EVENT_BYTES + _NUMBER_BYTES * len(self.attachments)


class Outbox:
    """The queue between those who deliver and the one who writes.

    Args:
        events_max, bytes_max: what may wait, beside notices; an event larger than all of it is taken while it is alone.
    """

    def __init__(self, *, events_max: int, bytes_max: int) -> None:
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._queue: deque[Queued] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False

    def put(self, event: WireEvent, attachments: Sequence[int]) -> bool:
        """Queue an event; False, and nothing is queued, where there is no room for it."""
        queued = Queued(event, attachments)
        if self._queue and (len(self._queue) >= self._events_max or self._bytes + queued.size > self._bytes_max):
            return False
        self._add(queued)
        return True

    def put_notice(self, event: WireEvent, attachments: Sequence[int]) -> None:
        """Queue an event of which an attachment has only a few: there is always room for it."""
        self._add(Queued(event, attachments))

    @property
    def has_room(self) -> bool:
        """Less than half of the room is taken: who can wait leaves the rest to who cannot."""
        return len(self._queue) * 2 < self._events_max and self._bytes * 2 < self._bytes_max

    async def room(self) -> None:
        """Wait until `has_room`."""
        while not self.has_room:
            self._room.clear()
            await self._room.wait()

    async def not_full(self) -> None:
        """Wait until another event could wait: who makes notices by what it asks for is held up by this."""
        while len(self._queue) >= self._events_max or self._bytes >= self._bytes_max:
            self._room.clear()
            await self._room.wait()

    async def take(self, *, events_max: int, bytes_max: int) -> list[Queued]:
        """The next events in order, at least one and at most so many; none once the outbox is closed and empty."""
        while not self._queue:
            if self._closed:
                return []
            self._news.clear()
            await self._news.wait()
        taken: list[Queued] = []
        size = 0
        while self._queue and len(taken) < events_max:
            size += self._queue[0].size
            if taken and size > bytes_max:
                break
            taken.append(self._queue.popleft())
            self._bytes -= taken[-1].size
        self._room.set()
        return taken

    def close(self) -> None:
        """Nothing more comes; what waits can still be taken."""
        self._closed = True
        self._news.set()

    def __len__(self) -> int:
        return len(self._queue)

    def _add(self, queued: Queued) -> None:
        if self._closed:
            return
        self._queue.append(queued)
        self._bytes += queued.size
        self._news.set()

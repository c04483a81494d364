"""The live tails of all commit instances together: how far everything has been handed over."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import itertools
from collections.abc import Sequence

from qim_session.commands.live.tail import LiveTail


class LiveTails:
    """All tails. Moments are commit times in ms, of whatever instance: of different clocks the later one is awaited."""

    def __init__(self) -> None:
        self._tails: tuple[LiveTail, ...] = ()
        self._awaited: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def use(self, tails: Sequence[LiveTail]) -> None:
        """The tails, at least one; told once, before anybody is connected."""
        self._tails = tuple(tails)

    @property
    def settled_ms(self) -> int:
        """Everything that was committed before this moment has been handed over."""
        return min(tail.settled_ms for tail in self._tails)

    @property
    def identity(self) -> int:
        """Which dispatch logs these are, a u64; another one once a recovery has begun one anew."""
        digest = hashlib.blake2b("\0".join(tail.log_id for tail in self._tails).encode(), digest_size=8)
        return int.from_bytes(digest.digest(), "big")

    async def positioned(self) -> None:
        """Wait until everything that is committed from now on will be handed over."""
        for tail in self._tails:
            await tail.positioned()

    async def now_ms(self) -> int:
        """The latest time of all instances. Raises BackendUnavailable."""
        return max(await asyncio.gather(*(tail.now_ms() for tail in self._tails)))

    async def reached(self, time_ms: int) -> None:
        """Wait until everything that was committed up to this moment has been handed over."""
        if self.settled_ms > time_ms:
            return
        awaited = asyncio.get_running_loop().create_future()
        heapq.heappush(self._awaited, (time_ms, next(self._order), awaited))
        await awaited

    def progressed(self) -> None:
        """A tail has read."""
        if not self._awaited:
            return
        settled = self.settled_ms
        while self._awaited and self._awaited[0][0] < settled:
            awaited = heapq.heappop(self._awaited)[2]
            if not awaited.done():
                awaited.set_result(None)

"""Ack level `archived`: a commit is answered when the archive holds it and everything before it.

The archiver notes in `grpmeta` how far it is: `aseq`, the archived head, and `arev`, the archived revision. What waits
is looked up together, one pipeline every ten milliseconds, as long as something waits. A connection that was lost ends
every wait with an unknown outcome: an instance that comes back may be another one, or one that went back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from qim_common.errors import BackendUnavailable, QimError
from qim_common.redis import Argument, ConnectionLost, Instance, checked
from qim_writer.backends.redis.place import Place

POLL_SECONDS: Final = 0.01

CHANGE_SECONDS: Final = 10.0
"""How long a change waits. It goes on when its caller's deadline has passed, and later changes of the group queue
behind it; sends wait as long as their sinks."""

_SWEEP_POLLS: Final = 50
"""Every so many polls what nobody waits for any more is dropped, also where the archive does not move."""


class Waiter(Protocol):
    """Who waits for the archive."""

    @property
    def expired(self) -> bool:
        """Nobody waits any more."""
        ...

    def archived(self) -> None:
        """The archive holds what was waited for."""
        ...

    def failed(self, error: QimError) -> None:
        """The outcome is unknown."""
        ...


class _Held(NamedTuple):
    head: int
    revision: int
    waiter: Waiter


class _Line:
    """What waits in one conversation, and how far the archive was when it was last looked up."""

    __slots__ = ("held", "revision", "seq")

    def __init__(self) -> None:
        self.held: list[_Held] = []
        self.seq = -1
        self.revision = -1


class ArchiveWaits:
    """What waits for the archive on one instance. All methods belong to the event loop's thread."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._lines: dict[Place, _Line] = {}
        self._waiting = 0
        self._polls = 0
        self._polling = False
        self._loop = asyncio.get_running_loop()
        instance.on_lost.append(self._lost)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self._waiting

    def add(self, place: Place, head: int, revision: int, waiter: Waiter) -> None:
        """`waiter` hears when everything of the conversation up to `head` and `revision` is archived."""
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = _Line()
        # What is known of the archive was read before this was written: it is looked up anew.
        line.seq = line.revision = -1
        line.held.append(_Held(head, revision, waiter))
        self._waiting += 1
        if not self._polling:
            self._polling = True
            self._loop.call_later(POLL_SECONDS, self._poll)

    async def present(self, place: Place) -> None:
        """Return when everything that the conversation is now is archived. Raises BackendUnavailable, also where that
        takes more than `CHANGE_SECONDS`."""
        read: list[tuple[Argument, ...]] = [("HGET", place.keys.grpmeta, "revision"), ("GET", place.keys.msgcseq)]
        revision, head = checked(await self._instance.pipeline(read))
        done: asyncio.Future[None] = self._loop.create_future()
        self.add(place, int(head or 0), int(revision or 0), _Caller(done))
        try:
            async with asyncio.timeout(CHANGE_SECONDS):
                await done
        except TimeoutError:
            raise BackendUnavailable from None

    def _poll(self) -> None:
        self._polls += 1
        if self._polls % _SWEEP_POLLS == 0:
            self._sweep()
        places = list(self._lines)
        if not places:
            self._polling = False
            return
        read = [("HMGET", place.keys.grpmeta, "aseq", "arev") for place in places]
        self._instance.pipeline(read).add_done_callback(lambda done: self._polled(places, done))

    def _polled(self, places: Sequence[Place], done: asyncio.Future[list[Any]]) -> None:
        error = done.exception()
        if isinstance(error, QimError):
            self._fail(error)
        elif error is None:
            for place, reply in zip(places, done.result(), strict=True):
                line = self._lines.get(place)
                if line is not None and not isinstance(reply, Exception):
                    self._moved(place, line, int(reply[0] or 0), int(reply[1] or 0))
        self._loop.call_later(POLL_SECONDS, self._poll)

    def _moved(self, place: Place, line: _Line, seq: int, revision: int) -> None:
        if (seq, revision) == (line.seq, line.revision):
            return
        line.seq, line.revision = seq, revision
        held, line.held = line.held, []
        for one in held:
            if one.head <= seq and one.revision <= revision:
                self._waiting -= 1
                one.waiter.archived()
            else:
                line.held.append(one)
        if not line.held:
            del self._lines[place]

    def _sweep(self) -> None:
        for place, line in list(self._lines.items()):
            line.held = [one for one in line.held if not one.waiter.expired]
            if not line.held:
                del self._lines[place]
        self._waiting = sum(len(line.held) for line in self._lines.values())

    def _lost(self) -> None:
        if self._lines:
            self._fail(ConnectionLost(f"Redis {self._instance.address}: lost while waiting for the archive"))

    def _fail(self, error: QimError) -> None:
        lines, self._lines = self._lines, {}
        self._waiting = 0
        for line in lines.values():
            for one in line.held:
                one.waiter.failed(error)


class _Caller:
    """Somebody who awaits one future; satisfies `Waiter`."""

    __slots__ = ("_done",)

    def __init__(self, done: asyncio.Future[None]) -> None:
        self._done = done

    @property
    def expired(self) -> bool:
        return self._done.done()

    def archived(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def failed(self, error: QimError) -> None:
        if not self._done.done():
            self._done.set_exception(error)

"""Named failpoints around the session service's storage calls, put there from outside: its stores are wrapped.

Every call of a wrapped store has a name, `project` say, and passes two points, `project.before` and `project.after`.
What is armed there happens once: the replica dies, the call is held, or it fails as if the store did not answer.

A call travels on its own: whoever waits for it may be cancelled, and it goes out all the same, late perhaps, as bytes
do that were on their way. Only when its replica dies does nothing of it go out any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar, cast

from qim_common.errors import BackendUnavailable

T = TypeVar("T")
Observer = Callable[[str, int, tuple[Any, ...], Any], None]
"""Told of each call that the store has executed: its name, the instance's position, its arguments and the result."""


class Action(Enum):
    """What happens at a point."""

    KILL = "kill"
    PAUSE = "pause"
    FAIL = "fail"


@dataclass
class _Armed:
    action: Action
    skip: int


class Failpoints:
    """The points of one replica.

    Args:
        on_kill: stops the replica without a farewell.
        observe: see `Observer`.
    """

    def __init__(self, on_kill: Callable[[], None], observe: Observer) -> None:
        self._on_kill = on_kill
        self._observe = observe
        self._armed: dict[str, _Armed] = {}
        self._flows = asyncio.Event()
        self._flows.set()
        self._held = asyncio.Event()
        self.dead = False
        self.calls: set[asyncio.Task[Any]] = set()

    def arm(self, point: str, action: Action, skip: int = 0) -> None:
        """Let `action` happen when the point is passed, not counting the first `skip` times."""
        self._armed[point] = _Armed(action, skip)

    def stall(self) -> None:
        """Hold every call at its next point, as if the process were stopped."""
        if not self.dead:
            self._flows.clear()

    def resume(self) -> None:
        """Let go what is held, and the rest of the calls as well."""
        self._flows.set()
        self._held.set()
        self._held = asyncio.Event()

    def disarm(self) -> None:
        """Nothing happens any more; what is held goes on."""
        self._armed.clear()
        self.resume()

    def die(self) -> None:
        """Nothing goes out any more; what the stores have got already, they execute."""
        self.dead = True
        self.disarm()

    async def through(self, name: str, place: int, call: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """Make a call that passes both of its points."""
        task = asyncio.create_task(self._travel(name, place, call, args, options))
        self.calls.add(task)
        task.add_done_callback(self._arrived)
        return await asyncio.shield(task)

    async def _travel(
        self, name: str, place: int, call: Callable[..., Awaitable[T]], args: tuple[Any, ...], options: dict[str, Any]
    ) -> T:
        await self._pass(f"{name}.before")
        result = await call(*args, **options)
        self._observe(name, place, args, result)
        await self._pass(f"{name}.after")
        return result

    async def _pass(self, point: str) -> None:
        armed = self._armed.get(point)
        if armed is not None and armed.skip > 0:
            armed.skip -= 1
            armed = None
        if armed is not None:
            del self._armed[point]
            if armed.action is Action.KILL:
                self.die()
                self._on_kill()
            elif armed.action is Action.PAUSE:
                await self._held.wait()
        await self._flows.wait()
        if self.dead:
            raise asyncio.CancelledError
        if armed is not None and armed.action is Action.FAIL:
            raise BackendUnavailable

    def _arrived(self, task: asyncio.Task[Any]) -> None:
        self.calls.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be waiting for it any more


class _Wrapped:
    """Any object, some of whose methods pass points."""

    def __init__(self, inner: object, points: Failpoints, place: int, names: Mapping[str, str]) -> None:
        self._inner = inner
        self._points = points
        self._place = place
        self._names = names

    def __getattr__(self, method: str) -> Any:
        target = getattr(self._inner, method)
        name = self._names.get(method)
        if name is None:
            return target
        return lambda *args, **options: self._points.through(name, self._place, target, *args, **options)


def wrapped(inner: T, points: Failpoints, place: int = 0, **names: str) -> T:
    """`inner`, whose methods named here pass the points of these names; the others are left as they are."""
    return cast(T, _Wrapped(inner, points, place, names))

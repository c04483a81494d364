"""What a handler knows about the call that it serves: the one context variable of the interceptor."""

import asyncio
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from qim.common.v1 import identity_pb2
from qim_common.bindings import Bindings
from qim_common.errors import RoleNotAllowed
from qim_common.identity import Actor, Peer, Principal, Role, actor_from_message


class StreamLife:
    """When a bidirectional stream stops reading: at its maximum age, or when the server drains.

    The handler then answers everything that it read and ends the stream with OK (contracts.md, "Services").
    """

    def __init__(self, *, ends_at: float, draining: asyncio.Event) -> None:
        self._ends_at = ends_at
        self._draining = draining

    @property
    def over(self) -> bool:
        """Whether the stream should stop reading now."""
        return self._draining.is_set() or time.monotonic() >= self._ends_at

    async def wait(self) -> None:
        """Returns when the stream should stop reading."""
        try:
            async with asyncio.timeout(self._ends_at - time.monotonic()):
                await self._draining.wait()
        except TimeoutError:
            return


@dataclass(frozen=True, slots=True)
class CallContext:
    """One call. `actor` and `principal` are checked (ids, tenant binding) and set exactly where the role table says so.

    `request_id` is 32 hex digits, the same that the log and an INTERNAL answer carry; `deadline` is in seconds of
    `time.monotonic()`, None for a stream whose client set none; `stream` is set on streams of requests only.
    """

    method: str
    peer: Peer
    actor: Actor | None
    principal: Principal | None
    request_id: str
    deadline: float | None
    stream: StreamLife | None = None

    def remaining(self) -> float | None:
        """Seconds until the client's deadline, at least 0; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


CURRENT: Final[ContextVar[CallContext]] = ContextVar("qim_call")
"""Set by the interceptor before the handler runs; tasks that the handler starts inherit it."""


def current_call() -> CallContext:
    """The call being served; raises RuntimeError outside of one."""
    call = CURRENT.get(None)
    if call is None:
        raise RuntimeError("no call is being served here; current_call() is for handlers and what they start")
    return call


def require_actor() -> Actor:
    """The end user of the call being served; raises RuntimeError where the role table does not require one."""
    actor = current_call().actor
    if actor is None:
        raise RuntimeError(f"{current_call().method} carries no actor; see the role table")
    return actor


def require_principal() -> Principal:
    """The principal of the call being served; raises RuntimeError where the role table does not require one."""
    principal = current_call().principal
    if principal is None:
        raise RuntimeError(f"{current_call().method} carries no principal; see the role table")
    return principal


def check_frame_actor(
    bindings: Bindings, peer: Peer, message: identity_pb2.AuthenticatedActor, field: str = "actor"
) -> Actor:
    """The actor of a frame of a stream, checked as the interceptor checks `qim-actor-bin`.

    Raises:
        RoleNotAllowed: the peer is no gateway.
        InvalidArgument: an id is not 16 bytes or all zero; names the part of `field`.
        TenantNotAllowed: the gateway is not bound to the actor's tenant.
    """
    if peer.role is not Role.GATEWAY:
        raise RoleNotAllowed(message="an actor is taken from a gateway certificate only")
    actor = actor_from_message(message, field)
    bindings.require_tenant(peer, actor.tenant)
    return actor

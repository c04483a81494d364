"""What live streams need beside `storage`, as Protocols. Everything here can raise BackendUnavailable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.positions import Position
from qim_session.domain.signals import Signal


class InstanceClock(Protocol):
    """The clock of one commit instance, asked on a connection that nothing blocks."""

    async def time_ms(self) -> int:
        """The instance's time."""
        ...


class RecentConversations(Protocol):
    """A person's conversations as the projection has them."""

    async def since(self, tenant: TenantId, user: UserId, time_ms: int | None) -> dict[ConversationId, int]:
        """Those whose last activity (the value, ms) is at `time_ms` or later, oldest first, and all big ones.

        `time_ms` None: all.
        """
        ...


@dataclass(frozen=True, slots=True)
class SignalRead:
    """Signals, and up to where they were read; `lost`: some before them had left the stream."""

    signals: Sequence[Signal]
    upto: Position
    lost: bool = False


class SignalLog(Protocol):
    """The stream `usig` of one session instance."""

    async def end(self) -> Position:
        """The newest entry's id."""
        ...

    async def read(self, after: Position, *, count: int, block_ms: int) -> SignalRead:
        """Up to `count` signals after a position; waits up to `block_ms` while there is none."""
        ...

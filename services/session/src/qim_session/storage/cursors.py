"""Cursors and what else people have set on conversations, as Protocols.

Everything here can raise `BackendUnavailable`, as in `qim_session.storage`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from qim_common.identity import Actor
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId
from qim_session.domain.cursors import Cursor
from qim_session.domain.flags import Flags


class Marks(NamedTuple):
    """What a person has set on one conversation, by reading it (`NOTHING`: not yet) and by its flags."""

    read: Cursor
    flags: Flags


class Cursors(Protocol):
    """How far people have read and their devices have received."""

    async def marks(
        self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, Marks]:
        """Read cursors and flags of all `conversations`, in their order."""
        ...

    async def read(
        self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, Cursor]:
        """The read cursors of all `conversations`, in their order; `NOTHING` where nothing was read."""
        ...

    async def advance_read(self, actor: Actor, conversation: ConversationId, cursor: Cursor) -> bool:
        """Move a read cursor, forward only, and tell the person's other devices where it moved; whether it did."""
        ...

    async def device(
        self, tenant: TenantId, user: UserId, device: DeviceId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, Cursor]:
        """The device's cursors; conversations without one are left out."""
        ...

    async def advance_device(
        self, tenant: TenantId, user: UserId, device: DeviceId, cursors: Mapping[ConversationId, Cursor]
    ) -> int:
        """Move up to 1,000 cursors, forward only; returns how many moved."""
        ...

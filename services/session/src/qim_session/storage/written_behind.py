"""Where cursors and flags are written behind, and come back from, as Protocols.

Everything here can raise `BackendUnavailable`, as in `qim_session.storage`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from qim_common.ids import ConversationId, DeviceId, TenantId, UserId
from qim_session.domain.cursors import Cursor
from qim_session.domain.flags import Flags
from qim_session.domain.written_behind import Mark

MARKS_PER_CALL = 1000
"""The most marks of one call to the session store."""


class UnflushedMarks(Protocol):
    """Those of one session instance that are still to be written."""

    async def count(self) -> int:
        """How many there are."""
        ...

    def batches(self) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        """All that are there from now until the end, as stored, each at least once; up to about 1,000 together."""
        ...

    async def pop(self, written: Sequence[tuple[bytes, bytes]]) -> int:
        """Take those off that still have these values; returns how many."""
        ...


class MarkArchive(Protocol):
    """The marks that were written."""

    async def write(self, marks: Sequence[Mark]) -> None:
        """Write them; what is newer stays as it is. Raises when some may not have been written."""
        ...

    def read_cursors(self, tenant: TenantId, user: UserId) -> AsyncIterator[Mapping[ConversationId, Cursor]]:
        """A person's read cursors, up to 1,000 together."""
        ...

    def device_cursors(
        self, tenant: TenantId, user: UserId
    ) -> AsyncIterator[Mapping[DeviceId, Mapping[ConversationId, Cursor]]]:
        """The cursors of a person's devices, up to 1,000 together."""
        ...

    def flags(self, tenant: TenantId, user: UserId) -> AsyncIterator[Mapping[ConversationId, Flags]]:
        """What a person has set, up to 1,000 together."""
        ...


class MarkRestore(Protocol):
    """The session store as marks come back to it: forward only, nobody is told, nothing is written behind again."""

    async def read_cursors(self, tenant: TenantId, user: UserId, cursors: Mapping[ConversationId, Cursor]) -> None:
        """Bring up to 1,000 read cursors at least to these."""
        ...

    async def device_cursors(
        self, tenant: TenantId, user: UserId, device: DeviceId, cursors: Mapping[ConversationId, Cursor]
    ) -> None:
        """Bring up to 1,000 cursors of a device at least to these."""
        ...

    async def flags(self, tenant: TenantId, user: UserId, flags: Mapping[ConversationId, Flags]) -> None:
        """Bring up to 1,000 conversations' flags back that were set less often."""
        ...

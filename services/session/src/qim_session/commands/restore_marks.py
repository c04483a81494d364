"""Brings a person's cursors and flags back into a session store that has lost them (storage.md, "Session").

It is a part of the person's rebuild, and forward only: what the store still has, or has got meanwhile, stays.
"""

from __future__ import annotations

from qim_common.ids import TenantId, UserId
from qim_session.storage.written_behind import MarkArchive, MarkRestore


class RestoreMarks:
    """Everything that was written behind of one person."""

    def __init__(self, archive: MarkArchive, store: MarkRestore) -> None:
        self._archive = archive
        self._store = store

    async def __call__(self, tenant: TenantId, user: UserId) -> None:
        """Bring it back; repeating it changes nothing. Raises BackendUnavailable: some of it may be back."""
        async for cursors in self._archive.read_cursors(tenant, user):
            if cursors:
                await self._store.read_cursors(tenant, user, cursors)
        async for devices in self._archive.device_cursors(tenant, user):
            for device, found in devices.items():
                await self._store.device_cursors(tenant, user, device, found)
        async for flags in self._archive.flags(tenant, user):
            if flags:
                await self._store.flags(tenant, user, flags)

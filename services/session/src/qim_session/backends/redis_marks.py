"""The session store's side of what is written behind (storage.md, "Session")."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from qim_common.ids import ConversationId, DeviceId, TenantId, UserId
from qim_common.keys import unflushed, usig
from qim_common.redis import Argument, Instance, load_script, run
from qim_common.topology import Topology
from qim_session.backends.person_places import PersonPlaces
from qim_session.backends.redis_people import ADVANCE_CURSORS
from qim_session.domain.cursors import Cursor
from qim_session.domain.flags import Flags
from qim_session.storage.written_behind import MARKS_PER_CALL

POP_UNFLUSHED: Final = load_script("qim_session", "pop_unflushed")
RESTORE_FLAGS: Final = load_script("qim_session", "restore_flags")


class RedisUnflushedMarks:
    """The `UnflushedMarks` of one session instance."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._key = unflushed(instance.position)

    async def count(self) -> int:
        """As `UnflushedMarks.count`."""
        waiting: int = await self._instance.call("HLEN", self._key)
        return waiting

    async def batches(self) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        """As `UnflushedMarks.batches`."""
        cursor: Argument = 0
        while True:
            cursor, flat = await self._instance.call("HSCAN", self._key, cursor, "COUNT", MARKS_PER_CALL // 2)
            found = list(zip(flat[::2], flat[1::2], strict=True))
            # A scan may return more than it was asked for.
            for start in range(0, len(found), MARKS_PER_CALL):
                yield found[start : start + MARKS_PER_CALL]
            if cursor == b"0":
                return

    async def pop(self, written: Sequence[tuple[bytes, bytes]]) -> int:
        """As `UnflushedMarks.pop`."""
        args: list[Argument] = [part for pair in written for part in pair]
        popped: int = await run(self._instance, POP_UNFLUSHED, [self._key], args)
        return popped


class RedisMarkRestore:
    """The `MarkRestore` of the session instances."""

    def __init__(self, instances: Sequence[Instance], topology: Topology) -> None:
        self._places = PersonPlaces(instances, topology)

    async def read_cursors(self, tenant: TenantId, user: UserId, cursors: Mapping[ConversationId, Cursor]) -> None:
        """As `MarkRestore.read_cursors`."""
        instance, keys = self._places.locate(tenant, user)
        await _advance(instance, keys.read_cursors, cursors)

    async def device_cursors(
        self, tenant: TenantId, user: UserId, device: DeviceId, cursors: Mapping[ConversationId, Cursor]
    ) -> None:
        """As `MarkRestore.device_cursors`."""
        instance, keys = self._places.locate(tenant, user)
        await _advance(instance, keys.device_cursors(device), cursors)

    async def flags(self, tenant: TenantId, user: UserId, flags: Mapping[ConversationId, Flags]) -> None:
        """As `MarkRestore.flags`."""
        instance, keys = self._places.locate(tenant, user)
        args: list[Argument] = [part for pair in flags.items() for part in (pair[0], pair[1].pack())]
        await run(instance, RESTORE_FLAGS, [keys.flags], args)


async def _advance(instance: Instance, key: str, cursors: Mapping[ConversationId, Cursor]) -> None:
    args: list[Argument] = [b"", b""]
    for conversation, cursor in cursors.items():
        args += [conversation, cursor.pack()]
    names = [key, usig(instance.position), unflushed(instance.position)]
    await run(instance, ADVANCE_CURSORS, names, args)

"""What the session instances hold of each person: list, cursors, and (development only) the conversation set."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, kind_of
from qim_common.keys import PersonKeys
from qim_common.redis import Argument, Instance, checked, load_script, run
from qim_common.topology import Topology
from qim_session.domain.cursors import Cursor
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.list_pages import ListPosition

ADVANCE_CURSORS: Final = load_script("qim_session", "advance_cursors")
_TIED: Final = 16
"""Entries of the cursor's own moment that a first read of a page allows for."""
_SET_ROW: Final = struct.Struct(">BQ")


class RedisPeople:
    """The `ConversationLists`, `Cursors` and `ConversationSets` of the redis backend, over all session instances."""

    def __init__(self, instances: Sequence[Instance], topology: Topology) -> None:
        self._instances = tuple(instances)
        self._topology = topology

    async def page(
        self,
        tenant: TenantId,
        user: UserId,
        *,
        below: ListPosition | None,
        above: ListPosition | None,
        limit: int,
        upward: bool = False,
    ) -> list[ListPosition]:
        """As `ConversationLists.page`."""
        instance, keys = self._locate(tenant, user)
        highest: Argument = "+inf" if below is None else below.time_ms
        lowest: Argument = "-inf" if above is None else above.time_ms
        span: list[Argument] = [lowest, highest, "BYSCORE"] if upward else [highest, lowest, "BYSCORE", "REV"]
        count = limit + _TIED
        while True:
            # One read gives one moment's order; a page that needs more is read again as a whole.
            flat = await instance.call("ZRANGE", keys.convs, *span, "LIMIT", 0, count, "WITHSCORES")
            found = [
                ListPosition(int(float(score)), ConversationId(member))
                for member, score in zip(flat[::2], flat[1::2], strict=True)
            ]
            between = [
                position
                for position in found
                if (below is None or position < below) and (above is None or position > above)
            ]
            if len(between) >= limit or len(found) < count:
                return between[:limit]
            count *= 4

    async def oldest_first(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        """As `ConversationLists.oldest_first`."""
        instance, keys = self._locate(tenant, user)
        return list(map(ConversationId, await instance.call("ZRANGE", keys.convs, 0, -1)))

    async def read_seqs(
        self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, int]:
        """As `Cursors.read_seqs`."""
        instance, keys = self._locate(tenant, user)
        found = await _cursors(instance, keys.read_cursors, conversations)
        return {conversation: cursor.seq if cursor else 0 for conversation, cursor in found.items()}

    async def advance_read(self, tenant: TenantId, user: UserId, conversation: ConversationId, cursor: Cursor) -> bool:
        """As `Cursors.advance_read`."""
        instance, keys = self._locate(tenant, user)
        return bool(await run(instance, ADVANCE_CURSORS, [keys.read_cursors], [conversation, cursor.pack()]))

    async def device(
        self, tenant: TenantId, user: UserId, device: DeviceId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, Cursor]:
        """As `Cursors.device`."""
        instance, keys = self._locate(tenant, user)
        found = await _cursors(instance, keys.device_cursors(device), conversations)
        return {conversation: cursor for conversation, cursor in found.items() if cursor is not None}

    async def advance_device(
        self, tenant: TenantId, user: UserId, device: DeviceId, cursors: Mapping[ConversationId, Cursor]
    ) -> int:
        """As `Cursors.advance_device`."""
        instance, keys = self._locate(tenant, user)
        args: list[Argument] = []
        for conversation, cursor in cursors.items():
            args += [conversation, cursor.pack()]
        moved: int = await run(instance, ADVANCE_CURSORS, [keys.device_cursors(device)], args)
        return moved

    async def register(self, entries: Sequence[ProjectionEntry]) -> None:
        """As `ConversationSets.register`; a row is kind u8, first_seen_at u64 (ms), big-endian."""
        by_instance: dict[Instance, list[Sequence[Argument]]] = {}
        for entry in entries:
            instance, keys = self._locate(entry.tenant, entry.user)
            row = _SET_ROW.pack(kind_of(entry.conversation), entry.time_ms)
            command = ("HSETNX", keys.authority, entry.conversation, row)
            by_instance.setdefault(instance, []).append(command)
        for instance, commands in by_instance.items():
            checked(await instance.pipeline(commands))

    async def of(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        """As `ConversationSets.of`."""
        instance, keys = self._locate(tenant, user)
        return list(map(ConversationId, await instance.call("HKEYS", keys.authority)))

    def _locate(self, tenant: TenantId, user: UserId) -> tuple[Instance, PersonKeys]:
        bucket = self._topology.person_bucket(tenant, user)
        return self._instances[self._topology.instance_of(bucket)], PersonKeys(tenant, user, bucket)


async def _cursors(
    instance: Instance, key: str, conversations: Sequence[ConversationId]
) -> dict[ConversationId, Cursor | None]:
    if not conversations:
        return {}
    stored = await instance.call("HMGET", key, *conversations)
    unpacked = [None if value is None else Cursor.unpack(value) for value in stored]
    return dict(zip(conversations, unpacked, strict=True))

"""Cursors and flags in Cassandra, written behind (storage.md, "Session"; the tables are in schema/0001_people.cql).

Every row has the write timestamp of what it says, so that whoever writes, and however late, the furthest stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from qim_common.cassandra import (
    BATCH_MAX_ROWS,
    CassandraRequests,
    Statement,
    Value,
    cursor_timestamp,
    signed_tenant,
)
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId
from qim_session.domain.cursors import Cursor
from qim_session.domain.flags import Flags
from qim_session.domain.written_behind import Mark, MarkKind

_WRITES: Final = {
    MarkKind.READ: Statement(
        "write_read_cursors",
        "INSERT INTO read_cursors (tenant_id, user_id, conversation_id, generation, seq) "
        "VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?",
    ),
    MarkKind.DEVICE: Statement(
        "write_device_cursors",
        "INSERT INTO device_cursors (tenant_id, user_id, device_id, conversation_id, generation, seq) "
        "VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
    ),
    MarkKind.FLAGS: Statement(
        "write_flags",
        "INSERT INTO conversation_flags "
        "(tenant_id, user_id, conversation_id, flags, generation, hidden_seq, change_count) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
    ),
}
_READ_CURSORS: Final = Statement(
    "read_cursors_of",
    "SELECT conversation_id, generation, seq FROM read_cursors WHERE tenant_id = ? AND user_id = ?",
)
_DEVICE_CURSORS: Final = Statement(
    "device_cursors_of",
    "SELECT device_id, conversation_id, generation, seq FROM device_cursors WHERE tenant_id = ? AND user_id = ?",
)
_FLAGS: Final = Statement(
    "flags_of",
    "SELECT conversation_id, flags, generation, hidden_seq, change_count FROM conversation_flags "
    "WHERE tenant_id = ? AND user_id = ?",
)
STATEMENTS: Final = (*_WRITES.values(), _READ_CURSORS, _DEVICE_CURSORS, _FLAGS)


class CassandraMarks:
    """The `MarkArchive` of the backend tiered."""

    def __init__(self, requests: CassandraRequests) -> None:
        self._requests = requests

    async def write(self, marks: Sequence[Mark]) -> None:
        """As `MarkArchive.write`: one batch for each person and kind."""
        partitions: dict[tuple[MarkKind, int, bytes], list[Sequence[Value]]] = {}
        for mark in marks:
            key = (mark.kind, signed_tenant(mark.tenant), mark.user)
            partitions.setdefault(key, []).append(_row(mark))
        # All run to their end, so that one failure leaves no write behind that nobody waits for.
        outcomes = await asyncio.gather(
            *(
                self._requests.batch(_WRITES[kind], rows[at : at + BATCH_MAX_ROWS])
                for (kind, _, _), rows in partitions.items()
                for at in range(0, len(rows), BATCH_MAX_ROWS)
            ),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def read_cursors(self, tenant: TenantId, user: UserId) -> AsyncIterator[Mapping[ConversationId, Cursor]]:
        """As `MarkArchive.read_cursors`."""
        async for rows in self._requests.pages(_READ_CURSORS, (signed_tenant(tenant), user)):
            yield {ConversationId(conversation): Cursor(generation, seq) for conversation, generation, seq in rows}

    async def device_cursors(
        self, tenant: TenantId, user: UserId
    ) -> AsyncIterator[Mapping[DeviceId, Mapping[ConversationId, Cursor]]]:
        """As `MarkArchive.device_cursors`."""
        async for rows in self._requests.pages(_DEVICE_CURSORS, (signed_tenant(tenant), user)):
            devices: dict[DeviceId, dict[ConversationId, Cursor]] = {}
            for device, conversation, generation, seq in rows:
                devices.setdefault(DeviceId(device), {})[ConversationId(conversation)] = Cursor(generation, seq)
            yield devices

    async def flags(self, tenant: TenantId, user: UserId) -> AsyncIterator[Mapping[ConversationId, Flags]]:
        """As `MarkArchive.flags`."""
        async for rows in self._requests.pages(_FLAGS, (signed_tenant(tenant), user)):
            yield {ConversationId(conversation): Flags.of(*values) for conversation, *values in rows}


def _row(mark: Mark) -> Sequence[Value]:
    person = (signed_tenant(mark.tenant), mark.user)
    value = mark.value
    if isinstance(value, Flags):
        place = (value.bits, value.generation, value.hidden_seq, value.changes)
        return (*person, mark.conversation, *place, value.changes)
    device = () if mark.kind is MarkKind.READ else (mark.device,)
    return (*person, *device, mark.conversation, *value, cursor_timestamp(*value))

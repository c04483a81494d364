"""The messages of a conversation in the archive's table, and what is derived from them. There are no control messages.

Without a sender column unread reads records: at most `UNREAD_EXACT` of a conversation, the newest. Of what is older in
the span every message counts as another's, so the number is exact up to that many and never too small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from qim_common.ids import ConversationId, TenantId
from qim_common.records import Record
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.domain.delivery import ControlEvent
from qim_writer.domain.explain import Event
from qim_writer.domain.members import Change
from qim_writer.domain.visible import UnreadSpan
from qim_writer.storage import Conversation

UNREAD_EXACT: Final = 1_000
"""Seqs of one conversation whose senders are looked at: a read of at most two partitions."""

_AT_ONCE: Final = 20
"""Conversations that are read at once; each may bring `UNREAD_EXACT` records."""


class ScyllaMessageStore:
    """See `qim_writer.storage.MessageStore`."""

    def __init__(self, archive: CassandraArchive) -> None:
        self._archive = archive

    async def records(self, conversation: Conversation, seqs: Sequence[int]) -> list[Record]:
        """See the Protocol."""
        return await self._archive.records(conversation, seqs)

    async def records_of_many(
        self, tenant: TenantId, wanted: Sequence[tuple[ConversationId, Sequence[int]]]
    ) -> list[list[Record]]:
        """See the Protocol."""
        found: list[list[Record]] = []
        for start in range(0, len(wanted), _AT_ONCE):
            part = wanted[start : start + _AT_ONCE]
            found += await asyncio.gather(*(self.records(Conversation(tenant, one), seqs) for one, seqs in part))
        return found

    async def control_events(self, conversation: Conversation, first: int, last: int, limit: int) -> list[ControlEvent]:
        """None."""
        return []

    async def controls(self, tenant: TenantId, spans: Sequence[tuple[ConversationId, int, int]]) -> list[int]:
        """0 for each span."""
        return [0] * len(spans)

    async def event(self, conversation: Conversation, seq: int) -> Event | None:
        """None."""
        return None

    async def events(self, conversation: Conversation, after: int, limit: int) -> list[Change]:
        """None."""
        return []

    async def unread(
        self, tenant: TenantId, spans: Sequence[tuple[ConversationId, UnreadSpan, bytes]]
    ) -> list[int | None]:
        """See the Protocol; the bytes are the person's id. Never None: there is no floor."""
        found: list[int | None] = []
        for start in range(0, len(spans), _AT_ONCE):
            part = spans[start : start + _AT_ONCE]
            found += await asyncio.gather(
                *(self._unread(Conversation(tenant, conversation), span, user) for conversation, span, user in part)
            )
        return found

    async def _unread(self, conversation: Conversation, span: UnreadSpan, user: bytes) -> int:
        if span.upper <= span.lower:
            return 0
        first = max(span.lower + 1, span.upper - UNREAD_EXACT + 1)
        records = await self._archive.page(conversation, first, span.upper, span.upper - first + 1)
        return first - 1 - span.lower + sum(record.tail.sender != user for record in records)

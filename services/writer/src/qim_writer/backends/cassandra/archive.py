"""The archive of messages in Cassandra: batches of one partition, rows that are never changed."""

from __future__ import annotations

import struct
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from qim_common.cassandra import (
    BATCH_MAX_BYTES,
    BATCH_MAX_ROWS,
    CassandraRequests,
    Statement,
    Value,
    cursor_timestamp,
    signed_tenant,
    unsigned_tenant,
)
from qim_common.ids import ConversationId, commit_bucket
from qim_common.records import RECORD_HEADER_BYTES, RECORD_VERSION, Record, unpack_record
from qim_writer.backends.cassandra.requests import ROW_OVERHEAD_BYTES, all_of, write_in_order
from qim_writer.domain.seq_buckets import SEQS_PER_BUCKET, last_seq, seq_bucket, spans, windows
from qim_writer.storage import Conversation
from qim_writer.storage_archive import ARCHIVE_PAGE_MAX, REMOVED_AT_ONCE, ArchiveHead, ArchiveRow

_LEAST_WINDOW: Final = 100
_UNSIGNED: Final = struct.Struct(">Q")
_BIGINT: Final = struct.Struct(">q")
_TIME: Final = slice(8, 14)
"""Of a record: its commit time."""

_READ_ROWS: Final = 250
"""Rows of one page between node and driver: with the largest usual bodies (64 KiB) 16 MiB."""

_INSERT: Final = Statement(
    "archive_message",
    "INSERT INTO messages (tenant_id, conversation_id, seq_bucket, seq, record) VALUES (?, ?, ?, ?, ?) "
    "USING TIMESTAMP ?",
)
_SPAN: Final = Statement(
    "archive_page",
    "SELECT seq, record FROM messages "
    "WHERE tenant_id = ? AND conversation_id = ? AND seq_bucket = ? AND seq >= ? AND seq <= ?",
    fetch_size=_READ_ROWS,
)
_NAMED: Final = Statement(
    "archive_records",
    "SELECT seq, record FROM messages WHERE tenant_id = ? AND conversation_id = ? AND seq_bucket = ? AND seq IN ?",
    fetch_size=_READ_ROWS,
)
_SET_HEAD: Final = Statement(
    "archive_set_head",
    "INSERT INTO conversation_heads "
    "(installation_id, commit_bucket, tenant_id, conversation_id, generation, head_seq) "
    "VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
)
_HEAD: Final = Statement(
    "archive_head",
    "SELECT generation, head_seq FROM conversation_heads "
    "WHERE installation_id = ? AND commit_bucket = ? AND tenant_id = ? AND conversation_id = ?",
)
_HEADS: Final = Statement(
    "archive_heads",
    "SELECT tenant_id, conversation_id, generation, head_seq FROM conversation_heads "
    "WHERE installation_id = ? AND commit_bucket = ?",
)
_REMOVE: Final = Statement(
    "archive_remove",
    "DELETE FROM messages USING TIMESTAMP ? WHERE tenant_id = ? AND conversation_id = ? AND seq_bucket = ?",
)
_REMOVE_AFTER: Final = Statement(
    "archive_remove_after",
    "DELETE FROM messages USING TIMESTAMP ? WHERE tenant_id = ? AND conversation_id = ? AND seq_bucket = ? AND seq > ?",
)
_MICROS: Final = 1000
_AHEAD_US: Final = 3_600_000_000
"""How far the clocks of Redis, which the rows' commit times are of, may be ahead of this one."""


class CassandraArchive:
    """The `MessageArchive` of the backend tiered.

    Args:
        session: on a keyspace with the tables of `qim_writer.schema`.
        installation_id: whose heads these are; several installations may share a keyspace.
        buckets: the installation's number of commit buckets.
    """

    def __init__(self, session: CassandraRequests, *, installation_id: str, buckets: int) -> None:
        self._session = session
        self._installation = installation_id
        self._buckets = buckets

    async def append(self, conversation: Conversation, rows: Sequence[ArchiveRow]) -> None:
        """As `MessageArchive.append`: one batch for each piece of a partition, in order.

        The write timestamp is the commit time: a repeated write is the same write, and where a recovered conversation
        uses a seq again, which is later, the later record holds."""
        for batch in _packed_batches(conversation, rows):
            await self._session.batch_packed(_INSERT, batch)

    async def advance_heads(self, heads: Sequence[tuple[Conversation, ArchiveHead]]) -> None:
        """As `MessageArchive.advance_heads`; the write timestamp orders them, whoever writes them and when."""
        partitions: dict[int, list[Sequence[Value]]] = {}
        for conversation, head in heads:
            place = self._place(conversation)
            values = (*place, head.generation, head.seq, cursor_timestamp(head.generation, head.seq))
            partitions.setdefault(place[1], []).append(values)
        await all_of(write_in_order(self._session, _SET_HEAD, of_bucket) for of_bucket in partitions.values())

    async def head(self, conversation: Conversation) -> ArchiveHead | None:
        """As `MessageArchive.head`."""
        rows = await self._session.execute(_HEAD, self._place(conversation))
        return ArchiveHead(*rows[0]) if rows else None

    async def heads(self, bucket: int) -> AsyncIterator[list[tuple[Conversation, ArchiveHead]]]:
        """As `MessageArchive.heads`."""
        async for rows in self._session.pages(_HEADS, (self._installation, bucket)):
            yield [
                (Conversation(unsigned_tenant(tenant), ConversationId(conversation)), ArchiveHead(generation, seq))
                for tenant, conversation, generation, seq in rows
            ]

    async def page(
        self, conversation: Conversation, first: int, last: int, limit: int, *, newest_first: bool = False
    ) -> list[Record]:
        """As `MessageArchive.page`. The line has no gaps, so a window of `limit` seqs, of at most two partitions that
        are read at once, is nearly always the page."""
        if not 1 <= limit <= ARCHIVE_PAGE_MAX:
            raise ValueError(f"a page has 1 to {ARCHIVE_PAGE_MAX} records, not {limit}")
        found: list[Record] = []
        size = max(limit, _LEAST_WINDOW)
        for lowest, highest in windows(max(first, 1), last, size=size, newest_first=newest_first):
            piece = await self._span(conversation, lowest, highest)
            found += reversed(piece) if newest_first else piece
            if len(found) >= limit:
                break
        return found[:limit]

    async def records(self, conversation: Conversation, seqs: Sequence[int]) -> list[Record]:
        """As `MessageArchive.records`."""
        by_bucket: dict[int, list[int]] = {}
        for seq in dict.fromkeys(seqs):
            by_bucket.setdefault(seq_bucket(seq), []).append(seq)
        tenant = signed_tenant(conversation.tenant)
        answers = await all_of(
            self._session.execute(_NAMED, (tenant, conversation.id, bucket, named[at : at + _READ_ROWS]))
            for bucket, named in by_bucket.items()
            for at in range(0, len(named), _READ_ROWS)
        )
        stored = {seq: record for rows in answers for seq, record in rows}
        return [unpack_record(seq, stored[seq]) for seq in seqs if seq in stored]

    async def remove_buckets(self, conversation: Conversation, buckets: Sequence[int]) -> None:
        """As `MessageArchive.remove_buckets`: each a deletion of a whole partition, later than every commit time in it.
        No seq of it is ever given out again, in a higher generation either: the floor has passed it."""
        tenant = signed_tenant(conversation.tenant)
        timestamp = time.time_ns() // 1000 + _AHEAD_US
        for at in range(0, len(buckets), REMOVED_AT_ONCE):
            piece = buckets[at : at + REMOVED_AT_ONCE]
            values = [(timestamp, tenant, conversation.id, bucket) for bucket in piece]
            await all_of(self._session.execute(_REMOVE, each) for each in values)

    async def remove_after(self, conversation: Conversation, seq: int, last: int, before_ms: int) -> None:
        """As `MessageArchive.remove_after`: one deletion of a range in each partition."""
        tenant, timestamp = signed_tenant(conversation.tenant), before_ms * _MICROS - 1
        for bucket in range(seq_bucket(seq + 1), seq_bucket(max(last, seq + 1)) + 1):
            after = max(seq, last_seq(bucket - 1))
            await self._session.execute(_REMOVE_AFTER, (timestamp, tenant, conversation.id, bucket, after))

    async def _span(self, conversation: Conversation, first: int, last: int) -> list[Record]:
        """The records of a range, ascending."""
        tenant = signed_tenant(conversation.tenant)
        answers = await all_of(
            self._session.execute(_SPAN, (tenant, conversation.id, span.bucket, span.first, span.last))
            for span in spans(first, last)
        )
        return [unpack_record(seq, record) for rows in answers for seq, record in rows]

    def _place(self, conversation: Conversation) -> tuple[str, int, int, bytes]:
        bucket = commit_bucket(conversation.tenant, conversation.id, self._buckets)
        return self._installation, bucket, signed_tenant(conversation.tenant), conversation.id


def _packed_batches(conversation: Conversation, rows: Sequence[ArchiveRow]) -> list[list[tuple[bytes, ...]]]:
    """The rows as `_INSERT` takes them, in batches of one partition within the bounds, in their order.

    This is the archiver's hot loop. Raises ValueError for what is no record, or a seq that is none."""
    tenant, conversation_id = _UNSIGNED.pack(conversation.tenant), bytes(conversation.id)
    batches: list[list[tuple[bytes, ...]]] = []
    batch: list[tuple[bytes, ...]] = []
    bucket, bucket_bytes, size = -1, b"", 0
    bigint, from_bytes = _BIGINT.pack, int.from_bytes
    for seq, record in rows:
        if seq < 1 or len(record) <= RECORD_HEADER_BYTES or record[0] != RECORD_VERSION:
            raise ValueError(f"seq {seq}: no record of version {RECORD_VERSION}")
        size += len(record) + ROW_OVERHEAD_BYTES
        if (seq - 1) // SEQS_PER_BUCKET != bucket or len(batch) == BATCH_MAX_ROWS or size > BATCH_MAX_BYTES:
            batch = []
            batches.append(batch)
            size = len(record) + ROW_OVERHEAD_BYTES
            bucket = seq_bucket(seq)
            bucket_bytes = bigint(bucket)
        time_us = from_bytes(record[_TIME], "big") * _MICROS
        batch.append((tenant, conversation_id, bucket_bytes, bigint(seq), record, bigint(time_us)))
    return batches

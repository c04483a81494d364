"""The archive of messages in Cassandra: batches of one partition, rows that are only ever inserted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from qim_common.cassandra import (
    BATCH_MAX_BYTES,
    BATCH_MAX_ROWS,
    CassandraSession,
    Statement,
    Value,
    cursor_timestamp,
    signed_tenant,
    unsigned_tenant,
)
from qim_common.ids import ConversationId, commit_bucket
from qim_common.records import RECORD_HEADER_BYTES, RECORD_VERSION, Record, unpack_record
from qim_writer.domain.seq_buckets import chunks, seq_bucket, spans, windows
from qim_writer.storage import Conversation
from qim_writer.storage_archive import ARCHIVE_PAGE_MAX, ArchiveHead, ArchiveRow

_ROW_OVERHEAD_BYTES: Final = 80
_LEAST_WINDOW: Final = 100
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
    "INSERT INTO conversation_heads (commit_bucket, tenant_id, conversation_id, generation, head_seq) "
    "VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?",
)
_HEAD: Final = Statement(
    "archive_head",
    "SELECT generation, head_seq FROM conversation_heads "
    "WHERE commit_bucket = ? AND tenant_id = ? AND conversation_id = ?",
)
_HEADS: Final = Statement(
    "archive_heads",
    "SELECT tenant_id, conversation_id, generation, head_seq FROM conversation_heads WHERE commit_bucket = ?",
)

Outcome = TypeVar("Outcome")


class CassandraArchive:
    """The `MessageArchive` of the backend tiered.

    Args:
        session: on a keyspace with the tables of `qim_writer.schema`.
        buckets: the installation's number of commit buckets.
    """

    def __init__(self, session: CassandraSession, *, buckets: int) -> None:
        self._session = session
        self._buckets = buckets

    async def append(self, conversation: Conversation, rows: Sequence[ArchiveRow]) -> None:
        """As `MessageArchive.append`: one batch for each piece of a partition, several at once.

        The write timestamp is the commit time: a repeated write is the same write, and where a recovered conversation
        uses a seq again, in a higher generation and later, the later record holds."""
        tenant = signed_tenant(conversation.tenant)
        partitions: dict[int, list[Sequence[Value]]] = {}
        for row in rows:
            bucket = seq_bucket(row.seq)
            values = (tenant, conversation.id, bucket, row.seq, row.record, _commit_time_us(row))
            partitions.setdefault(bucket, []).append(values)
        await _all(
            self._session.batch(_INSERT, chunk)
            for values_of_bucket in partitions.values()
            for chunk in chunks(
                values_of_bucket,
                [len(values[4]) + _ROW_OVERHEAD_BYTES for values in values_of_bucket if isinstance(values[4], bytes)],
                max_items=BATCH_MAX_ROWS,
                max_bytes=BATCH_MAX_BYTES,
            )
        )

    async def advance_head(self, conversation: Conversation, head: ArchiveHead) -> None:
        """As `MessageArchive.advance_head`; the write timestamp orders the heads, whoever writes them and when."""
        timestamp = cursor_timestamp(head.generation, head.seq)
        await self._session.execute(_SET_HEAD, (*self._place(conversation), head.generation, head.seq, timestamp))

    async def head(self, conversation: Conversation) -> ArchiveHead | None:
        """As `MessageArchive.head`."""
        rows = await self._session.execute(_HEAD, self._place(conversation))
        return ArchiveHead(*rows[0]) if rows else None

    async def heads(self, bucket: int) -> AsyncIterator[list[tuple[Conversation, ArchiveHead]]]:
        """As `MessageArchive.heads`."""
        async for rows in self._session.pages(_HEADS, (bucket,)):
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
        answers = await _all(
            self._session.execute(_NAMED, (tenant, conversation.id, bucket, named[at : at + _READ_ROWS]))
            for bucket, named in by_bucket.items()
            for at in range(0, len(named), _READ_ROWS)
        )
        stored = {seq: record for rows in answers for seq, record in rows}
        return [unpack_record(seq, stored[seq]) for seq in seqs if seq in stored]

    async def _span(self, conversation: Conversation, first: int, last: int) -> list[Record]:
        """The records of a range, ascending."""
        tenant = signed_tenant(conversation.tenant)
        answers = await _all(
            self._session.execute(_SPAN, (tenant, conversation.id, span.bucket, span.first, span.last))
            for span in spans(first, last)
        )
        return [unpack_record(seq, record) for rows in answers for seq, record in rows]

    def _place(self, conversation: Conversation) -> tuple[int, int, bytes]:
        bucket = commit_bucket(conversation.tenant, conversation.id, self._buckets)
        return bucket, signed_tenant(conversation.tenant), conversation.id


def _commit_time_us(row: ArchiveRow) -> int:
    """The record's commit time in microseconds. Raises ValueError for what is no record, or a seq that is none."""
    if row.seq < 1 or len(row.record) <= RECORD_HEADER_BYTES or row.record[0] != RECORD_VERSION:
        raise ValueError(f"seq {row.seq}: no record of version {RECORD_VERSION}")
    return int.from_bytes(row.record[8:14], "big") * 1000


async def _all(work: Iterable[Coroutine[Any, Any, Outcome]]) -> list[Outcome]:
    """The outcomes, once everything has ended: a failure leaves no request behind that nobody waits for."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]

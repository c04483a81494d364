"""The log of what changed in each conversation, in Cassandra: rows that are inserted; only a recovery deletes what is
left of a line that was lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from qim_common.cassandra import CassandraRequests, Row, Statement, Value, signed_tenant
from qim_common.ids import MembershipOp, UserId
from qim_common.records import Audience, StateChange
from qim_writer.backends.cassandra.requests import all_of, write_in_order
from qim_writer.domain.group_rows import GroupRow, RowFlags, RowKind
from qim_writer.domain.seq_buckets import last_seq, seq_bucket
from qim_writer.storage import Conversation

_COLUMNS: Final = (
    "revision, kind, operation, time_ms, generation, head_seq, membership_version, member_count, audience, flags, "
    "history_from, floor_seq, clear_seq, actor, policy, people, maker, request_field, request_digest, answer"
)
_READ_ROWS: Final = 250
"""Rows of one page between node and driver: 4 MiB where each names 1,000 people."""

_ID_BYTES: Final = 16
_MICROS: Final = 1000

_INSERT: Final = Statement(
    "group_log_append",
    f"INSERT INTO group_log (tenant_id, conversation_id, revision_bucket, {_COLUMNS}) "  # noqa: S608  as below
    f"VALUES ({', '.join('?' * (4 + _COLUMNS.count(',')))}) USING TIMESTAMP ?",
)
_ROWS: Final = Statement(
    "group_log_rows",
    f"SELECT {_COLUMNS} FROM group_log "  # noqa: S608  the names are constants of this module
    "WHERE tenant_id = ? AND conversation_id = ? AND revision_bucket = ? AND revision > ?",
    fetch_size=_READ_ROWS,
)
_REMOVE: Final = Statement(
    "group_log_remove",
    "DELETE FROM group_log USING TIMESTAMP ? "
    "WHERE tenant_id = ? AND conversation_id = ? AND revision_bucket = ? AND revision > ?",
)


class CassandraGroupLog:
    """The `GroupLog` of the backend tiered, on a keyspace with the tables of `qim_writer.schema`."""

    def __init__(self, session: CassandraRequests) -> None:
        self._session = session

    async def append(self, rows: Sequence[GroupRow]) -> None:
        """As `GroupLog.append`: batches of one partition, those of one conversation in order.

        The write timestamp is the commit time: a repeated write is the same write, and a row of a lost line never comes
        back over its successor, because a recovered line goes on later than whatever was written before."""
        conversations: dict[Conversation, dict[int, list[Sequence[Value]]]] = {}
        for row in rows:
            partitions = conversations.setdefault(Conversation(row.tenant, row.conversation), {})
            bucket = seq_bucket(row.revision)
            partitions.setdefault(bucket, []).append(_values(row, bucket))
        await all_of(self._write(partitions) for partitions in conversations.values())

    async def rows(self, conversation: Conversation, after_revision: int = 0) -> AsyncIterator[list[GroupRow]]:
        """As `GroupLog.rows`."""
        tenant = signed_tenant(conversation.tenant)
        wanted = after_revision + 1
        while True:
            bucket, before = seq_bucket(wanted), wanted
            read = self._session.pages(_ROWS, (tenant, conversation.id, bucket, wanted - 1))
            async for page in read:
                found = []
                for stored in page:
                    if stored[0] != wanted:
                        break
                    found.append(_row(conversation, stored))
                    wanted += 1
                if found:
                    yield found
                if len(found) < len(page):
                    return
            if wanted == before or seq_bucket(wanted) == bucket:
                return

    async def remove_after(self, conversation: Conversation, revision: int, last: int, before_ms: int) -> None:
        """As `GroupLog.remove_after`: one deletion of a range in each partition."""
        tenant, timestamp = signed_tenant(conversation.tenant), before_ms * _MICROS - 1
        for bucket in range(seq_bucket(revision + 1), seq_bucket(max(last, revision + 1)) + 1):
            after = max(revision, last_seq(bucket - 1))
            await self._session.execute(_REMOVE, (timestamp, tenant, conversation.id, bucket, after))

    async def _write(self, partitions: dict[int, list[Sequence[Value]]]) -> None:
        for rows in partitions.values():
            await write_in_order(self._session, _INSERT, rows)


def _values(row: GroupRow, bucket: int) -> tuple[Value, ...]:
    return (
        signed_tenant(row.tenant),
        row.conversation,
        bucket,
        row.revision,
        int(row.kind),
        int(row.operation),
        row.time_ms,
        row.generation,
        row.head,
        row.version,
        row.count,
        int(row.audience or 0),
        int(row.flags),
        row.history_from,
        row.floor,
        row.clear,
        row.actor,
        row.policy,
        b"".join(row.people),
        row.maker,
        row.request_field,
        row.request_digest,
        row.answer,
        row.time_ms * _MICROS,
    )


def _row(conversation: Conversation, stored: Row) -> GroupRow:
    """A row as it was appended; raises ValueError for a kind, operation or audience that is not known."""
    revision, kind, operation, time_ms, generation, head, version, count, audience, flags, *rest = stored
    history_from, floor, clear, actor, policy, people, maker, field, digest, answer = rest
    row_kind = RowKind(kind)
    return GroupRow(
        kind=row_kind,
        operation=MembershipOp(operation) if row_kind is RowKind.MEMBERSHIP else StateChange(operation),
        tenant=conversation.tenant,
        conversation=conversation.id,
        generation=generation,
        revision=revision,
        version=version,
        head=head,
        count=count,
        audience=Audience(audience) if audience else None,
        flags=RowFlags(flags),
        history_from=history_from,
        floor=floor,
        clear=clear,
        actor=actor,
        policy=policy,
        request_field=field,
        request_digest=digest,
        maker=maker,
        people=tuple(UserId(people[at : at + _ID_BYTES]) for at in range(0, len(people), _ID_BYTES)),
        answer=answer,
        time_ms=time_ms,
    )

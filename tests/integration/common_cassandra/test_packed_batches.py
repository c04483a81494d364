"""Rows whose values are packed by the caller go where rows that the driver binds go."""

from __future__ import annotations

import os
import struct

import pytest

from qim_common.cassandra import BATCH_MAX_ROWS, CassandraSession, Statement, signed_tenant
from qim_common.cassandra.session import _routing_key
from qim_common.ids import TenantId

INSERT = Statement(
    "test_packed",
    "INSERT INTO messages (tenant_id, conversation_id, seq_bucket, seq, record) VALUES (?, ?, ?, ?, ?) "
    "USING TIMESTAMP ?",
)
READ = Statement(
    "test_read",
    "SELECT seq, record, WRITETIME(record) FROM messages "
    "WHERE tenant_id = ? AND conversation_id = ? AND seq_bucket = ?",
)


def packed(tenant: TenantId, conversation: bytes, seq: int, record: bytes) -> tuple[bytes, ...]:
    bigint = struct.Struct(">q").pack
    return struct.pack(">Q", tenant), conversation, bigint(0), bigint(seq), record, bigint(1_000_000 + seq)


@pytest.mark.parametrize("tenant", [TenantId(2**63 + 5), TenantId(7)])
async def test_packed_rows_are_read_back(cassandra_session: CassandraSession, tenant: TenantId) -> None:
    conversation = os.urandom(16)
    rows = [packed(tenant, conversation, seq, b"" if seq == 2 else os.urandom(seq)) for seq in range(1, 101)]

    await cassandra_session.batch_packed(INSERT, rows)
    await cassandra_session.batch_packed(INSERT, rows[:1])

    found = await cassandra_session.execute(READ, (signed_tenant(tenant), conversation, 0))
    assert found == [(seq, rows[seq - 1][4], 1_000_000 + seq) for seq in range(1, 101)]


@pytest.mark.parametrize("count", [0, BATCH_MAX_ROWS + 1])
async def test_no_rows_and_too_many_are_refused(cassandra_session: CassandraSession, count: int) -> None:
    row = packed(TenantId(1), bytes(16), 1, b"record")
    with pytest.raises(ValueError, match="a batch has 1 to 200 rows"):
        await cassandra_session.batch_packed(INSERT, [row] * count)


async def test_batches_are_routed_as_bound_rows_are(cassandra_session: CassandraSession) -> None:
    tenant, conversation = TenantId(2**64 - 3), os.urandom(16)
    prepared = await cassandra_session._prepare(INSERT)
    bound = prepared.bind((signed_tenant(tenant), conversation, 0, 9, b"record", 1))

    assert _routing_key(packed(tenant, conversation, 9, b"record")[:3]) == bound.routing_key

"""How the tables of the archive are written and read: batches of one partition, in order where order counts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from qim_common.cassandra import BATCH_MAX_BYTES, BATCH_MAX_ROWS, CassandraRequests, Statement, Value
from qim_writer.domain.seq_buckets import chunks

ROW_OVERHEAD_BYTES: Final = 80

Outcome = TypeVar("Outcome")


async def write_in_order(session: CassandraRequests, statement: Statement, rows: Sequence[Sequence[Value]]) -> None:
    """Rows of one partition, in batches within the bounds, one after another: what is there is always a beginning."""
    sizes = [ROW_OVERHEAD_BYTES + sum(len(value) for value in row if isinstance(value, (bytes, str))) for row in rows]
    for piece in chunks(rows, sizes, max_items=BATCH_MAX_ROWS, max_bytes=BATCH_MAX_BYTES):
        await session.batch(statement, piece)


async def all_of(work: Iterable[Coroutine[Any, Any, Outcome]]) -> list[Outcome]:
    """The outcomes, once everything has ended: a failure leaves no request behind that nobody waits for."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]

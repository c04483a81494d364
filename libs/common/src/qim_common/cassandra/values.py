"""Values of columns, and the write timestamps by which rows without conditional writes never go back. Pure.

Cassandra keeps of two writes of a column the one with the larger timestamp, so a timestamp that is made of the value
itself gives an order that no clock, retry or second writer can upset.
"""

from __future__ import annotations

from typing import Final

from qim_common.ids import TenantId

SEQ_BITS: Final = 44
_GENERATIONS: Final = 2**18
_EARLIEST_BASE: Final = 2**43


def signed_tenant(tenant: TenantId) -> int:
    """A tenant as a `bigint`, which is signed: the same 64 bits."""
    return tenant - 2**64 if tenant >= 2**63 else tenant


def unsigned_tenant(stored: int) -> TenantId:
    """The tenant that `signed_tenant` stored."""
    return TenantId(stored % 2**64)


def cursor_timestamp(generation: int, seq: int) -> int:
    """The write timestamp of a cursor (storage.md, "Session"): a higher generation wins, then a higher seq.

    `generation` below 2^18, `seq` below 2^44. Raises ValueError beyond.
    """
    if not 0 <= generation < _GENERATIONS or not 0 <= seq < 1 << SEQ_BITS:
        raise ValueError(f"generation {generation}, seq {seq}: no write timestamp can hold them")
    return (generation << SEQ_BITS) + seq


def earliest_wins(time_ms: int) -> int:
    """A write timestamp that is the larger the earlier `time_ms` is: the first of several moments stays.

    Below every clock's microseconds, so that an ordinary deletion still wins. Raises ValueError beyond the year 2248.
    """
    if not 0 <= time_ms < _EARLIEST_BASE:
        raise ValueError(f"{time_ms} ms is no time that a row may have")
    return _EARLIEST_BASE - time_ms

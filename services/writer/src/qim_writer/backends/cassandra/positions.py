"""What the archive may have seen of each dispatch log, in Cassandra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from qim_common.cassandra import CassandraRequests, Statement, Value
from qim_common.positions import Position
from qim_writer.backends.cassandra.requests import write_in_order
from qim_writer.storage_archive import ArchivePosition

_SEQ_BITS: Final = 20

_ANNOUNCE: Final = Statement(
    "archive_announce",
    "INSERT INTO archive_positions (installation_id, instance, commit_bucket, log_id, position_ms, position_seq) "
    "VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
)
_ANNOUNCE_ANEW: Final = Statement(
    "archive_announce_anew",
    "INSERT INTO archive_positions "
    "(installation_id, instance, commit_bucket, log_id, position_ms, position_seq, former) "
    "VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
)
_OF: Final = Statement(
    "archive_positions",
    "SELECT commit_bucket, log_id, position_ms, position_seq, former FROM archive_positions "
    "WHERE installation_id = ? AND instance = ?",
)


class CassandraArchivePositions:
    """The `ArchivePositions` of the backend tiered.

    Args:
        session: on a keyspace with the tables of `qim_writer.schema`.
        installation_id: whose positions these are.
    """

    def __init__(self, session: CassandraRequests, *, installation_id: str) -> None:
        self._session = session
        self._installation = installation_id

    async def announce(self, instance: int, positions: Mapping[int, ArchivePosition]) -> None:
        """As `ArchivePositions.announce`; one partition, so one batch or two."""
        rows: list[Sequence[Value]] = []
        anew: list[Sequence[Value]] = []
        for bucket, announced in positions.items():
            at = announced.position
            values = (self._installation, instance, bucket, announced.log_id, at.ms, at.seq)
            if announced.former:
                anew.append((*values, ",".join(announced.former), position_timestamp(at)))
            else:
                rows.append((*values, position_timestamp(at)))
        await write_in_order(self._session, _ANNOUNCE, rows)
        await write_in_order(self._session, _ANNOUNCE_ANEW, anew)

    async def of(self, instance: int) -> dict[int, ArchivePosition]:
        """As `ArchivePositions.of`."""
        rows = await self._session.execute(_OF, (self._installation, instance))
        return {
            bucket: ArchivePosition(log_id, Position(ms, seq), tuple(former.split(",")) if former else ())
            for bucket, log_id, ms, seq, former in rows
        }


def position_timestamp(position: Position) -> int:
    """The write timestamp by which the later position stays: `ms * 2^20 + seq`.

    A seq of 2^20 or more, which only a clock that stands still for long makes, counts as the largest below: of equal
    timestamps the larger value stays, and that is the later seq."""
    return (position.ms << _SEQ_BITS) + min(position.seq, (1 << _SEQ_BITS) - 1)

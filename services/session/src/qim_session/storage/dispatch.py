"""The dispatch logs, as Protocols.

Everything here can raise `BackendUnavailable`, as in `qim_session.storage`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from qim_common.positions import Position
from qim_session.domain.folding import DispatchEntry
from qim_session.domain.position import LogBounds


@dataclass(frozen=True, slots=True)
class DispatchRead:
    """What a read found.

    Attributes:
        entries: by partition; partitions without any are left out.
        time_ms: the instance's time before the read: what was not there is not older.
        log_id: the identity of the logs that were read; empty: the instance has lost it.
        behind: partitions that hold more, which is not delivered before the archive has it: `time_ms` says nothing
            about them.
    """

    entries: dict[int, list[DispatchEntry]]
    time_ms: int
    log_id: str
    behind: frozenset[int] = frozenset()


class DispatchLog(Protocol):
    """The dispatch logs of one commit instance, one for each of its partitions (commit buckets)."""

    @property
    def partitions(self) -> Sequence[int]:
        """The commit buckets of the instance, ascending."""
        ...

    async def bounds(self, partitions: Sequence[int]) -> list[LogBounds]:
        """What the logs hold now, in the order asked for."""
        ...

    async def read(self, after: Mapping[int, Position], *, count: int, block_ms: int) -> DispatchRead:
        """The entries after a position, up to `count` a partition; waits up to `block_ms` while there are none.

        With QIM_ACK_LEVEL=archived only those that the archive holds (storage.md, "Backends").
        """
        ...

"""What sharing partitions and registering from the membership log need of the stores, as Protocols.

Everything here can raise `BackendUnavailable`, as in `qim_session.storage`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from qim_common.positions import Position


class LeaseStore(Protocol):
    """Who holds which partition; in one place for all replicas."""

    async def renew(self, holder: bytes, life_ms: int) -> frozenset[int]:
        """A heartbeat: give away what is above the fair share, take up to it what nobody alive holds.

        Returns what `holder` holds now, for `life_ms` from the moment at which the store executed this.
        """
        ...

    async def release(self, holder: bytes) -> int:
        """Leave: everything that `holder` held is free. Returns how much it was."""
        ...


@dataclass(frozen=True, slots=True)
class MemlogEntry:
    """One entry of a membership log; the milliseconds of its position are the commit time."""

    position: Position
    data: bytes


class MemberLog(Protocol):
    """The membership logs of one commit instance, one for each of its partitions: who was put into what."""

    @property
    def partitions(self) -> Sequence[int]:
        """The commit buckets of the instance, ascending."""
        ...

    async def oldest(self, partitions: Sequence[int], *, count: int) -> dict[int, list[MemlogEntry]]:
        """The oldest entries, up to `count` a partition, of those partitions that have any."""
        ...

    async def trim(self, through: Mapping[int, Position]) -> None:
        """Drop each partition's entries up to and with a position."""
        ...

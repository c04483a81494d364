"""What reads the dispatch logs in turn with others, and what it does with them: a lane.

A lane has checkpoints of its own in one place or several, and moves them with its effects or after them. The consumer
does the rest: reading, starting and pausing partitions (`qim_session.commands.consume`). The projection is one lane; a
notifier that calls something outside is another, whose checkpoints move after its effects and which may repeat the
last of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from qim_session.domain.folding import DispatchEntry
from qim_session.domain.position import Checkpoint, Gap


class PartitionMovedError(Exception):
    """A checkpoint is not what this process remembers: another consumer moved it, or a store was wiped.

    That is nothing bad: the start-up rule tells where the partition stands.
    """

    def __init__(self, partition: int) -> None:
        super().__init__(f"another consumer moved the checkpoint of partition {partition}")
        self.partition = partition


@dataclass(frozen=True, slots=True)
class LogGap:
    """Entries of a partition are gone that the checkpoint number `place` of a lane had not passed."""

    partition: int
    place: int
    gap: Gap
    log_id: str


class Lane(Protocol):
    """One consumer's effects and checkpoints. Everything here can raise BackendUnavailable."""

    async def load(self, partitions: Sequence[int]) -> dict[int, list[Checkpoint | None]]:
        """Read the partitions' checkpoints and remember them; as many each as the lane has places for them.

        Raises ValueError when a stored one cannot be read.
        """
        ...

    async def apply(self, partition: int, entries: Sequence[DispatchEntry], to: Checkpoint, progress_ms: int) -> None:
        """Bring about what `entries` mean and move the checkpoints to `to`; the same may come again after a failure.

        Args:
            partition: loaded before.
            entries: at least one, in commit order, right behind the smallest checkpoint.
            to: at the last of them.
            progress_ms: everything committed before it is among what has been applied with them.

        Raises PartitionMovedError: nothing behind the checkpoint was done, or it was and did no harm.
        """
        ...

    async def settle(self, progress: Mapping[int, int]) -> set[int]:
        """Partition to progress (ms), of partitions without news.

        Returns those whose checkpoint is not what `load` or `apply` has left there.
        """
        ...

    def renewed(self) -> None:
        """The logs were begun anew by a recovery: what is remembered of them and of memberships holds no more."""
        ...

    async def bridge(self, gaps: Sequence[LogGap]) -> None:
        """Make up for entries that are gone, and move the checkpoints behind them."""
        ...

"""The projection: lists, checkpoints, and the authority that it registers in; as Protocols.

Everything here can raise `BackendUnavailable`, as in `qim_session.storage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from qim_common.ids import ConversationId, TenantId, UserId
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.position import Checkpoint

ENTRIES_PER_CALL = 250
"""The most entries of one `ProjectionStore.project` (datastructures.md, Q5): 2 ms of the instance's time."""


@dataclass(frozen=True, slots=True)
class CheckpointStep:
    """A compare-and-set of a partition's checkpoint; `to` is None to compare only.

    `progress_ms` is stored with it: the commit time below which everything of the partition is in the lists.
    """

    partition: int
    expected: Checkpoint | None
    to: Checkpoint | None
    progress_ms: int = 0


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far a partition is that had nothing new, valid as long as its checkpoint is `expected`."""

    partition: int
    expected: Checkpoint | None
    progress_ms: int


@dataclass(frozen=True, slots=True)
class Projected:
    """The call was applied; `new` conversations were registered."""

    new: int


@dataclass(frozen=True, slots=True)
class CheckpointMoved:
    """Nothing was applied: another consumer has moved the checkpoint."""


class ProjectionStore(Protocol):
    """One session instance: its people's lists, its checkpoints, its conversations to be registered."""

    async def checkpoints(self, partitions: Sequence[int]) -> list[Checkpoint | None]:
        """The stored checkpoints, in the order asked for. Raises ValueError when one cannot be read."""
        ...

    async def project(
        self, entries: Sequence[ProjectionEntry], step: CheckpointStep | None
    ) -> Projected | CheckpointMoved:
        """Apply up to 250 entries and the step at once; `step` is None for a lane without checkpoints."""
        ...

    async def settle(self, steps: Sequence[PartitionProgress]) -> set[int]:
        """Store progress where the checkpoint is as expected; returns the partitions where it is not."""
        ...

    async def progress(self) -> dict[int, int]:
        """Partition to progress (ms), of all that have one."""
        ...

    async def raise_epoch(self) -> int:
        """Begin a new projection epoch: each person is rebuilt on their next call. Returns the new epoch."""
        ...

    async def pending(self, limit: int) -> tuple[list[ProjectionEntry], int]:
        """The oldest conversations that are not registered yet, at most `limit`, and how many there are in all."""
        ...

    async def pop_pending(self, entries: Sequence[ProjectionEntry]) -> int:
        """Drop the heads that equal `entries`, in order; returns how many."""
        ...


class ConversationSets(Protocol):
    """The authority for which conversations a person has (`user_conversation_state`)."""

    async def register(self, entries: Sequence[ProjectionEntry]) -> None:
        """Write kind and first_seen_at of each; one that is there already stays as it is."""
        ...

    async def of(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        """All conversations that are registered for a person, in no order."""
        ...

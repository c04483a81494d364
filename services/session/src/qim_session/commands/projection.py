"""Into the lists of all session instances: effects and checkpoints together (design.md invariant 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from qim_common.topology import Topology
from qim_session.commands.lane import PartitionMovedError
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.position import Checkpoint
from qim_session.storage.projection import (
    ENTRIES_PER_CALL,
    CheckpointMoved,
    CheckpointStep,
    PartitionProgress,
    ProjectionStore,
)


class Projector:
    """Writes batches of partitions into all session instances and remembers their checkpoints.

    Args:
        stores: the session instances in their configured order.
        topology: theirs; it says which instance holds a person.
        on_registered: called without arguments when conversations wait to be registered.
    """

    def __init__(
        self,
        stores: Sequence[ProjectionStore],
        topology: Topology,
        *,
        on_registered: Callable[[], None] = lambda: None,
    ) -> None:
        self._stores = tuple(stores)
        self._topology = topology
        self._on_registered = on_registered
        self._known: dict[int, list[Checkpoint | None]] = {}

    async def load(self, partitions: Sequence[int]) -> dict[int, list[Checkpoint | None]]:
        """Read the partitions' checkpoints, one for each session instance, and remember them.

        Raises BackendUnavailable; ValueError when a stored one cannot be read.
        """
        by_store = await asyncio.gather(*(store.checkpoints(partitions) for store in self._stores))
        loaded = {partition: list(row) for partition, row in zip(partitions, zip(*by_store, strict=True), strict=True)}
        self._known.update(loaded)
        return {partition: list(row) for partition, row in loaded.items()}

    async def apply(self, partition: int, entries: Sequence[ProjectionEntry], to: Checkpoint, progress_ms: int) -> None:
        """Bring a batch's effects into every session instance, and with the last call each one's checkpoint to `to`.

        An instance that has passed `to` already is left alone. An instance without entries only moves its checkpoint.
        Every call compares the checkpoint first, so that a consumer that lost the partition does nothing.

        Raises:
            PartitionMovedError: a checkpoint was not what this process remembers; load it again.
            BackendUnavailable: some effects may have been applied; the same batch may be applied again.
        """
        outcomes = await asyncio.gather(
            *(
                self._apply_to(number, partition, share, to, progress_ms)
                for number, share in enumerate(self._shares(entries))
            ),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def hint(self, entries: Sequence[ProjectionEntry]) -> None:
        """Bring the low-latency lane's entries in: the same effects, no checkpoint. Raises BackendUnavailable."""
        await asyncio.gather(
            *(self._hint_to(store, share) for store, share in zip(self._stores, self._shares(entries), strict=True))
        )

    async def settle(self, progress: Mapping[int, int]) -> set[int]:
        """Store the progress of partitions without news; returns those with a checkpoint that is not as remembered.

        Raises BackendUnavailable.
        """
        outcomes = await asyncio.gather(
            *(
                store.settle([PartitionProgress(part, self._known[part][number], ms) for part, ms in progress.items()])
                for number, store in enumerate(self._stores)
            )
        )
        return set().union(*outcomes)

    async def raise_epoch(self, places: Collection[int]) -> None:
        """Begin a new projection epoch on these session instances. Raises BackendUnavailable."""
        await asyncio.gather(*(self._stores[place].raise_epoch() for place in places))

    async def pass_over(self, place: int, partition: int, to: Checkpoint, progress_ms: int) -> None:
        """Move the checkpoint of one session instance without effects; raises as `apply`."""
        await self._apply_to(place, partition, (), to, progress_ms)

    def _shares(self, entries: Sequence[ProjectionEntry]) -> list[list[ProjectionEntry]]:
        shares: list[list[ProjectionEntry]] = [[] for _ in self._stores]
        for entry in entries:
            bucket = self._topology.person_bucket(entry.tenant, entry.user)
            shares[self._topology.instance_of(bucket)].append(entry)
        return shares

    async def _apply_to(
        self, number: int, partition: int, entries: Sequence[ProjectionEntry], to: Checkpoint, progress_ms: int
    ) -> None:
        store, known = self._stores[number], self._known[partition]
        expected = known[number]
        if expected is not None and expected.log_id == to.log_id and expected.position >= to.position:
            return
        starts = range(0, max(len(entries), 1), ENTRIES_PER_CALL)
        for start in starts:
            step = CheckpointStep(partition, expected, to if start == starts[-1] else None, progress_ms)
            outcome = await store.project(entries[start : start + ENTRIES_PER_CALL], step)
            if isinstance(outcome, CheckpointMoved):
                raise PartitionMovedError(partition)
            if outcome.new:
                self._on_registered()
        known[number] = to

    async def _hint_to(self, store: ProjectionStore, entries: Sequence[ProjectionEntry]) -> None:
        for start in range(0, len(entries), ENTRIES_PER_CALL):
            outcome = await store.project(entries[start : start + ENTRIES_PER_CALL], None)
            if not isinstance(outcome, CheckpointMoved) and outcome.new:
                self._on_registered()

"""The lane from the dispatch log into the lists: effects and checkpoint together (design.md invariant 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from qim_common.topology import Topology
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.position import Checkpoint
from qim_session.storage import ENTRIES_PER_CALL, CheckpointMoved, CheckpointStep, ProjectionStore


class PartitionMovedError(Exception):
    """Another consumer moved a checkpoint, which is nothing bad: the start-up rule tells where the partition stands."""

    def __init__(self, partition: int) -> None:
        super().__init__(f"another consumer moved the checkpoint of partition {partition}")
        self.partition = partition


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

    async def apply(self, partition: int, entries: Sequence[ProjectionEntry], to: Checkpoint) -> None:
        """Bring a batch's effects into every session instance, and with the last call each one's checkpoint to `to`.

        An instance that has passed `to` already is left alone. An instance without entries only moves its checkpoint.

        Raises:
            PartitionMovedError: a checkpoint was not what this process remembers; load it again.
            BackendUnavailable: some effects may have been applied; the same batch may be applied again.
        """
        shares: list[list[ProjectionEntry]] = [[] for _ in self._stores]
        for entry in entries:
            bucket = self._topology.person_bucket(entry.tenant, entry.user)
            shares[self._topology.instance_of(bucket)].append(entry)
        outcomes = await asyncio.gather(
            *(self._apply_to(number, partition, share, to) for number, share in enumerate(shares)),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def raise_epoch(self) -> None:
        """Begin a new projection epoch on every session instance."""
        await asyncio.gather(*(store.raise_epoch() for store in self._stores))

    async def _apply_to(self, number: int, partition: int, entries: Sequence[ProjectionEntry], to: Checkpoint) -> None:
        store, known = self._stores[number], self._known[partition]
        expected = known[number]
        if expected is not None and expected.log_id == to.log_id and expected.position >= to.position:
            return
        starts = range(0, max(len(entries), 1), ENTRIES_PER_CALL)
        for start in starts:
            step = CheckpointStep(partition, expected, to if start == starts[-1] else None)
            outcome = await store.project(entries[start : start + ENTRIES_PER_CALL], step)
            if isinstance(outcome, CheckpointMoved):
                raise PartitionMovedError(partition)
            if outcome.new:
                self._on_registered()
        known[number] = to

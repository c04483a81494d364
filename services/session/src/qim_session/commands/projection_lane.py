"""The durable lane of the projection: the dispatch log of one commit instance into the lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from qim_common.telemetry.metrics import SessionMetrics
from qim_session.commands.audience import Audiences, Reached
from qim_session.commands.lane import LogGap
from qim_session.commands.memlog import MemlogRegistrar
from qim_session.commands.projection import Projector
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.folding import ConversationRun, DispatchEntry, fold
from qim_session.domain.position import Checkpoint


class ProjectionLane:
    """The `Lane` whose checkpoints move in the same script calls as its effects (design.md invariant 10).

    Args:
        projector: of all session instances; the lanes of several commit instances share it.
        audiences: as `projector`.
        on_renewed: called without arguments when a log was begun anew.
        memlog: of the lane's commit instance.
    """

    def __init__(
        self,
        projector: Projector,
        audiences: Audiences,
        memlog: MemlogRegistrar,
        metrics: SessionMetrics,
        *,
        on_renewed: Callable[[], None] = lambda: None,
    ) -> None:
        self._projector = projector
        self._audiences = audiences
        self._memlog = memlog
        self._metrics = metrics
        self._on_renewed = on_renewed

    async def load(self, partitions: Sequence[int]) -> dict[int, list[Checkpoint | None]]:
        """As `Lane.load`; one for each session instance."""
        return await self._projector.load(partitions)

    async def apply(self, partition: int, entries: Sequence[DispatchEntry], to: Checkpoint, progress_ms: int) -> None:
        """As `Lane.apply`."""
        projected: list[ProjectionEntry] = []
        for run in fold(entries):
            projected += projection_entries(run, await self._audiences.reached(run))
        await self._projector.apply(partition, projected, to, progress_ms)
        self._metrics.projected_entries.inc(len(projected))

    def renewed(self) -> None:
        """As `Lane.renewed`."""
        self._audiences.forget()
        self._on_renewed()

    async def settle(self, progress: Mapping[int, int]) -> set[int]:
        """As `Lane.settle`."""
        return await self._projector.settle(progress)

    async def bridge(self, gaps: Sequence[LogGap]) -> None:
        """As `Lane.bridge`: every person of the instance is rebuilt on their next call.

        They are rebuilt from the authority, so that it must hold what the membership log has before the epoch rises.
        """
        await self._memlog.drain({gap.partition for gap in gaps})
        await self._projector.raise_epoch({gap.place for gap in gaps})
        for gap in gaps:
            to = Checkpoint(gap.gap.position, gap.log_id)
            await self._projector.pass_over(gap.place, gap.partition, to, gap.gap.position.ms)


def projection_entries(run: ConversationRun, reached: Reached) -> list[ProjectionEntry]:
    """What a run is to each person's list."""
    return [
        ProjectionEntry(run.tenant, user, run.conversation, time_ms, user in reached.big)
        for user, time_ms in reached.times.items()
    ]

"""Where partitions go on, by the start-up rule (storage.md, "Session", checkpoints)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qim_common.positions import Position
from qim_session.commands.lane import Lane, LogGap
from qim_session.domain.position import Checkpoint, Continue, Gap, Refuse, decide_start
from qim_session.storage.dispatch import DispatchLog


@dataclass(frozen=True, slots=True)
class Start:
    """A partition goes on behind `position`; with several checkpoints behind the smallest."""

    position: Position
    log_id: str


@dataclass(slots=True)
class Survey:
    """What the rule says about partitions: each is in `starts`, or in `refused` with the reasons."""

    starts: dict[int, Start] = field(default_factory=dict)
    refused: dict[int, list[str]] = field(default_factory=dict)
    gaps: list[LogGap] = field(default_factory=list)


async def survey(lane: Lane, log: DispatchLog, partitions: Sequence[int]) -> Survey:
    """Compare checkpoints with their logs; changes nothing.

    Raises:
        BackendUnavailable: an instance does not answer.
        TopologyMismatch: the log's instance has lost its identity.
    """
    found = Survey()
    await _survey(lane, log, partitions, found)
    return found


async def overtaken(log: DispatchLog, starts: Mapping[int, Start]) -> list[int]:
    """Those partitions that can no longer go on where they are: what comes next has left the log.

    Asked after a read it tells whether that read has passed over something. Raises as `survey`.
    """
    if not starts:
        return []
    found = zip(starts.items(), await log.bounds(list(starts)), strict=True)
    return [
        partition
        for (partition, start), bounds in found
        if not isinstance(decide_start(Checkpoint(start.position, start.log_id), bounds), Continue)
    ]


async def _survey(lane: Lane, log: DispatchLog, partitions: Sequence[int], found: Survey) -> None:
    try:
        stored = await lane.load(partitions)
    except ValueError as error:
        if len(partitions) == 1:
            found.refused[partitions[0]] = [f"a stored checkpoint cannot be read: {error}"]
            return
        middle = len(partitions) // 2
        await _survey(lane, log, partitions[:middle], found)
        await _survey(lane, log, partitions[middle:], found)
        return
    # Only then the logs: a checkpoint that another consumer moves meanwhile must not seem to be beyond its log.
    for partition, bounds in zip(partitions, await log.bounds(partitions), strict=True):
        positions: list[Position] = []
        for place, checkpoint in enumerate(stored[partition]):
            match decide_start(checkpoint, bounds):
                case Refuse(why):
                    found.refused.setdefault(partition, []).append(f"session instance {place}: {why}")
                case Gap() as gap:
                    found.gaps.append(LogGap(partition, place, gap, bounds.log_id))
                    positions.append(gap.position)
                case going_on:
                    positions.append(going_on.position)
        if partition not in found.refused:
            found.starts[partition] = Start(min(positions), bounds.log_id)
    found.gaps = [gap for gap in found.gaps if gap.partition not in found.refused]

"""One session instance as the projection sees it: lists, checkpoints, and conversations to be registered."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from qim_common.keys import PersonKeys, checkpoints, projection_epoch, ucs_pending
from qim_common.keys import progress as progress_key
from qim_common.redis import Argument, Instance, checked, load_script, run
from qim_common.topology import Topology
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.position import Checkpoint
from qim_session.storage.projection import CheckpointMoved, CheckpointStep, PartitionProgress, Projected

PROJECT_ENTRIES: Final = load_script("qim_session", "project_entries")
SETTLE_PROGRESS: Final = load_script("qim_session", "settle_progress")
POP_PENDING: Final = load_script("qim_session", "pop_pending")


class ProjectStatus(IntEnum):
    """The status codes of project_entries.lua."""

    APPLIED = 0
    MOVED = 1


class RedisProjectionStore:
    """The `ProjectionStore` of one session instance.

    Its checkpoints, progress and pending list carry the tag of its lowest bucket, one of each for the whole instance.
    In cluster mode, where a call may touch one tag only, there would be one store for each bucket instead, with the
    same script.
    """

    def __init__(self, instance: Instance, topology: Topology) -> None:
        home = instance.position
        self._instance = instance
        self._topology = topology
        self._checkpoints = checkpoints(home)
        self._progress = progress_key(home)
        self._pending = ucs_pending(home)
        self._epoch = projection_epoch(home)

    async def checkpoints(self, partitions: Sequence[int]) -> list[Checkpoint | None]:
        """As `ProjectionStore.checkpoints`."""
        if not partitions:
            return []
        stored = await self._instance.call("HMGET", self._checkpoints, *map(str, partitions))
        return [None if value is None else Checkpoint.parse(value) for value in stored]

    async def project(
        self, entries: Sequence[ProjectionEntry], step: CheckpointStep | None
    ) -> Projected | CheckpointMoved:
        """As `ProjectionStore.project`."""
        big = [entry for entry in entries if entry.big]
        if big:
            entries = big + [entry for entry in entries if not entry.big]
        keys: list[Argument] = [self._checkpoints, self._progress, self._pending]
        args: list[Argument] = ["", "", "", 0, len(big)]
        if step is not None:
            args = [str(step.partition), _encoded(step.expected), _encoded(step.to), step.progress_ms, len(big)]
        for entry in entries:
            keys.append(self._person(entry).convs)
            args.append(entry.time_ms)
            args.append(entry.pack())
        keys += [self._person(entry).bigconvs for entry in big]
        status, value = await run(self._instance, PROJECT_ENTRIES, keys, args)
        if status == ProjectStatus.MOVED:
            return CheckpointMoved()
        return Projected(new=value)

    async def settle(self, steps: Sequence[PartitionProgress]) -> set[int]:
        """As `ProjectionStore.settle`."""
        args: list[Argument] = [str(step.partition) for step in steps]
        args += [_encoded(step.expected) for step in steps]
        args += [step.progress_ms for step in steps]
        moved = await run(self._instance, SETTLE_PROGRESS, [self._checkpoints, self._progress], args)
        return set(map(int, moved))

    async def progress(self) -> dict[int, int]:
        """As `ProjectionStore.progress`."""
        flat = await self._instance.call("HGETALL", self._progress)
        return dict(zip(map(int, flat[::2]), map(int, flat[1::2]), strict=True))

    async def raise_epoch(self) -> int:
        """As `ProjectionStore.raise_epoch`."""
        epoch: int = await self._instance.call("INCR", self._epoch)
        return epoch

    async def pending(self, limit: int) -> tuple[list[ProjectionEntry], int]:
        """As `ProjectionStore.pending`."""
        commands: list[Sequence[Argument]] = [("LRANGE", self._pending, 0, limit - 1), ("LLEN", self._pending)]
        heads, waiting = checked(await self._instance.pipeline(commands))
        return [ProjectionEntry.unpack(head) for head in heads], waiting

    async def pop_pending(self, entries: Sequence[ProjectionEntry]) -> int:
        """As `ProjectionStore.pop_pending`."""
        popped: int = await run(self._instance, POP_PENDING, [self._pending], [entry.pack() for entry in entries])
        return popped

    def _person(self, entry: ProjectionEntry) -> PersonKeys:
        return PersonKeys(entry.tenant, entry.user, self._topology.person_bucket(entry.tenant, entry.user))


def _encoded(checkpoint: Checkpoint | None) -> bytes:
    return b"" if checkpoint is None else checkpoint.encode()

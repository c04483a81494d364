"""One session instance as the projection sees it: lists, checkpoints, and conversations to be registered."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from qim_common.keys import PersonKeys, checkpoints, projection_epoch, ucs_pending
from qim_common.redis import Argument, Instance, checked, load_script, run
from qim_common.topology import Topology
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.position import Checkpoint
from qim_session.storage import CheckpointMoved, CheckpointStep, Projected

PROJECT_ENTRIES: Final = load_script("qim_session", "project_entries")
POP_PENDING: Final = load_script("qim_session", "pop_pending")


class ProjectStatus(IntEnum):
    """The status codes of project_entries.lua."""

    APPLIED = 0
    MOVED = 1


class RedisProjectionStore:
    """The `ProjectionStore` of one session instance.

    Its checkpoints and pending list carry the tag of its lowest bucket, one list for the whole instance. In cluster
    mode, where a call may touch one tag only, there would be one store for each bucket instead, with the same script.
    """

    def __init__(self, instance: Instance, topology: Topology) -> None:
        home = instance.position
        self._instance = instance
        self._topology = topology
        self._checkpoints = checkpoints(home)
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
        keys: list[Argument] = [self._checkpoints, self._pending]
        args: list[Argument] = ["", "", ""]
        if step is not None:
            expected = b"" if step.expected is None else step.expected.encode()
            args = [str(step.partition), expected, b"" if step.to is None else step.to.encode()]
        for entry in entries:
            bucket = self._topology.person_bucket(entry.tenant, entry.user)
            keys.append(PersonKeys(entry.tenant, entry.user, bucket).convs)
            args.append(entry.time_ms)
            args.append(entry.pack())
        status, value = await run(self._instance, PROJECT_ENTRIES, keys, args)
        if status == ProjectStatus.MOVED:
            return CheckpointMoved()
        return Projected(new=value)

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

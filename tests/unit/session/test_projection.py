"""How a batch is spread over session instances and calls, and when checkpoints move."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.dispatch import TENANT, group, user

from qim_common.errors import BackendUnavailable
from qim_common.positions import Position
from qim_common.topology import Topology
from qim_session.commands.lane import PartitionMovedError
from qim_session.commands.projection import Projector
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.position import Checkpoint
from qim_session.storage.projection import CheckpointMoved, CheckpointStep, PartitionProgress, Projected

PARTITION = 3


def at(ms: int) -> Checkpoint:
    return Checkpoint(Position(ms, 0), "a" * 32)


class Recorder:
    """A session instance that notes its calls and compares and sets its checkpoint."""

    def __init__(self, stored: Checkpoint | None = None) -> None:
        self.stored = stored
        self.calls: list[tuple[int, Checkpoint | None]] = []
        self.down = False

    async def checkpoints(self, partitions: Sequence[int]) -> list[Checkpoint | None]:
        return [self.stored for _ in partitions]

    async def project(
        self, entries: Sequence[ProjectionEntry], step: CheckpointStep | None
    ) -> Projected | CheckpointMoved:
        assert step is not None
        if self.down:
            raise BackendUnavailable
        if step.expected != self.stored:
            return CheckpointMoved()
        self.calls.append((len(entries), step.to))
        if step.to is not None:
            self.stored = step.to
        return Projected(new=len(entries))

    async def settle(self, steps: Sequence[PartitionProgress]) -> set[int]:
        return {step.partition for step in steps if step.expected != self.stored}

    async def progress(self) -> dict[int, int]:
        return {}

    async def raise_epoch(self) -> int:
        return 1

    async def pending(self, limit: int) -> tuple[list[ProjectionEntry], int]:
        return [], 0

    async def pop_pending(self, entries: Sequence[ProjectionEntry]) -> int:
        return 0


def entries(count: int) -> list[ProjectionEntry]:
    return [ProjectionEntry(TENANT, user(number), group(1), 10) for number in range(1, count + 1)]


async def projector(*stores: Recorder) -> Projector:
    made = Projector(stores, Topology(tuple(f"10.0.0.{n}:6379" for n in range(len(stores))), 8, "test"))
    await made.load([PARTITION])
    return made


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, [0]), (1, [1]), (250, [250]), (251, [250, 1]), (600, [250, 250, 100])]
)
async def test_the_checkpoint_moves_with_the_last_call_only(count: int, sizes: list[int]) -> None:
    store = Recorder()
    await (await projector(store)).apply(PARTITION, entries(count), at(10), 10)
    assert [size for size, _ in store.calls] == sizes
    assert [to for _, to in store.calls] == [None] * (len(sizes) - 1) + [at(10)]


async def test_every_instance_gets_its_people_and_moves_its_checkpoint() -> None:
    one, two = Recorder(), Recorder()
    await (await projector(one, two)).apply(PARTITION, entries(40), at(10), 10)
    sizes = [store.calls[0][0] for store in (one, two)]
    assert sum(sizes) == 40
    assert min(sizes) > 0
    assert (one.stored, two.stored) == (at(10), at(10))


async def test_an_instance_that_is_ahead_is_left_alone() -> None:
    ahead, behind = Recorder(at(20)), Recorder(at(5))
    await (await projector(ahead, behind)).apply(PARTITION, entries(40), at(10), 10)
    assert ahead.calls == []
    assert (ahead.stored, behind.stored) == (at(20), at(10))


async def test_a_checkpoint_that_another_consumer_moved_is_told() -> None:
    store = Recorder(at(5))
    made = await projector(store)
    store.stored = at(7)
    with pytest.raises(PartitionMovedError):
        await made.apply(PARTITION, entries(1), at(10), 10)
    assert store.calls == []


async def test_an_instance_that_is_down_keeps_its_checkpoint_and_may_be_tried_again() -> None:
    up, down = Recorder(), Recorder()
    made = await projector(up, down)
    down.down = True
    with pytest.raises(BackendUnavailable):
        await made.apply(PARTITION, entries(40), at(10), 10)
    assert (up.stored, down.stored) == (at(10), None)
    down.down = False
    await made.apply(PARTITION, entries(40), at(10), 10)
    assert len(up.calls) == len(down.calls) == 1
    assert down.stored == at(10)

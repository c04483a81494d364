"""Another lane on the same logs: checkpoints of its own that move after its effects, and nothing else to be written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from tests.integration.session.conftest import Running, Store, until
from tests.support.dispatch import group, messages, ordinary, user

from qim_common.keys import BucketKeys
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.commands.consume import DispatchConsumer
from qim_session.commands.lane import LogGap
from qim_session.domain.folding import DispatchEntry
from qim_session.domain.position import Checkpoint

HIKERS = group(1)
pytestmark = pytest.mark.server


class Notifier:
    """Calls somebody for each entry, and only then notes how far it is."""

    def __init__(self) -> None:
        self.called: list[int] = []
        self.noted: dict[int, Checkpoint] = {}
        self.gaps: list[LogGap] = []
        self.renewals = 0
        self.dies_before_noting = False
        self.dead = asyncio.Event()

    async def load(self, partitions: Sequence[int]) -> dict[int, list[Checkpoint | None]]:
        return {partition: [self.noted.get(partition)] for partition in partitions}

    async def apply(self, partition: int, entries: Sequence[DispatchEntry], to: Checkpoint, progress_ms: int) -> None:
        self.called += [entry.position.ms for entry in entries]
        if self.dies_before_noting:
            self.dead.set()
            await asyncio.Event().wait()
        self.noted[partition] = to

    async def settle(self, progress: Mapping[int, int]) -> set[int]:
        return set()

    def renewed(self) -> None:
        self.renewals += 1

    async def bridge(self, gaps: Sequence[LogGap]) -> None:
        self.gaps += gaps
        for gap in gaps:
            self.noted[gap.partition] = Checkpoint(gap.gap.position, gap.log_id)


def consumer_of(store: Store, notifier: Notifier) -> DispatchConsumer:
    log = RedisDispatchLog(store.dispatch, store.topology.buckets_of(0))
    return DispatchConsumer(log, notifier, store.metrics)


async def called(notifier: Notifier, times: list[int]) -> bool:
    return notifier.called == times


async def test_another_lane_goes_on_behind_its_own_checkpoints(store: Store) -> None:
    notifier = Notifier()
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(user(1))]), at="10-0")
    async with Running(consumer_of(store, notifier)):
        await until(lambda: called(notifier, [10]))
    await store.append(HIKERS, messages(HIKERS, 1, 2, [ordinary(user(1))]), at="20-0")
    async with Running(consumer_of(store, notifier)):
        await until(lambda: called(notifier, [10, 20]))
    assert await store.listed(user(1)) == {}


async def test_a_lane_that_dies_before_its_checkpoint_repeats_the_last_batch(store: Store) -> None:
    notifier = Notifier()
    notifier.dies_before_noting = True
    await store.append(HIKERS, messages(HIKERS, 1, 1, [ordinary(user(1))]), at="10-0")
    async with Running(consumer_of(store, notifier)), asyncio.timeout(10):
        await notifier.dead.wait()
    notifier.dies_before_noting = False
    async with Running(consumer_of(store, notifier)):
        await until(lambda: called(notifier, [10, 10]))


async def test_a_lane_is_told_of_a_gap(store: Store) -> None:
    notifier = Notifier()
    for ms in (10, 20, 30):
        await store.append(HIKERS, messages(HIKERS, 1, ms // 10, [ordinary(user(1))]), at=f"{ms}-0")
    await store.instance.call("XTRIM", BucketKeys(store.partition(HIKERS)).dispatch, "MINID", "30")
    async with Running(consumer_of(store, notifier)):
        await until(lambda: called(notifier, [30]))
    assert [(gap.partition, gap.place) for gap in notifier.gaps] == [(store.partition(HIKERS), 0)]

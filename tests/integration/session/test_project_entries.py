"""project_entries: lists, registration and checkpoint in one step, on a real Valkey."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.session.conftest import Store
from tests.support.dispatch import TENANT, group, user

from qim_common.positions import Position
from qim_common.redis import ReplyError, run
from qim_session.backends.redis_projection import PROJECT_ENTRIES
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.position import Checkpoint
from qim_session.storage.projection import ENTRIES_PER_CALL, CheckpointMoved, CheckpointStep, Projected

ANA, BEN = user(1), user(2)
LOG = "c" * 32
pytestmark = pytest.mark.server


def checkpoint(ms: int) -> Checkpoint:
    return Checkpoint(Position(ms, 0), LOG)


def entry(time_ms: int, person: int = 1, conversation: int = 1) -> ProjectionEntry:
    return ProjectionEntry(TENANT, user(person), group(conversation), time_ms)


async def test_a_list_only_moves_up(store: Store) -> None:
    for time_ms in (20, 10, 30, 25):
        await store.projection.project([entry(time_ms)], None)
    assert await store.listed(ANA) == {group(1): 30}


async def test_a_new_conversation_is_registered_once_whichever_lane_comes_first(store: Store) -> None:
    assert await store.projection.project([entry(20)], None) == Projected(new=1)
    step = CheckpointStep(3, None, checkpoint(30))
    assert await store.projection.project([entry(30)], step) == Projected(new=0)
    assert await store.projection.pending(10) == ([entry(20)], 1)


async def test_effects_and_checkpoint_come_together_or_not_at_all(store: Store) -> None:
    first = CheckpointStep(3, None, checkpoint(10))
    assert await store.projection.project([entry(10)], first) == Projected(new=1)
    stale = CheckpointStep(3, None, checkpoint(99))
    assert await store.projection.project([entry(99, person=2)], stale) == CheckpointMoved()
    assert await store.listed(BEN) == {}
    assert await store.projection.checkpoints([3, 4]) == [checkpoint(10), None]


async def test_of_two_consumers_with_the_same_checkpoint_one_moves_it(store: Store) -> None:
    await store.projection.project([], CheckpointStep(3, None, checkpoint(10)))
    outcomes = await asyncio.gather(
        *(store.projection.project([], CheckpointStep(3, checkpoint(10), checkpoint(20))) for _ in range(2))
    )
    assert sorted(map(type, outcomes), key=str) == sorted([Projected, CheckpointMoved], key=str)


async def test_a_comparing_call_leaves_the_checkpoint_where_it_is(store: Store) -> None:
    assert await store.projection.project([entry(10)], CheckpointStep(3, None, None)) == Projected(new=1)
    assert await store.projection.checkpoints([3]) == [None]


async def test_partitions_have_checkpoints_of_their_own(store: Store) -> None:
    await store.projection.project([], CheckpointStep(3, None, checkpoint(10)))
    await store.projection.project([], CheckpointStep(4, None, checkpoint(11)))
    assert await store.projection.checkpoints([4, 3, 5]) == [checkpoint(11), checkpoint(10), None]


async def test_a_full_call_projects_all_its_entries(store: Store) -> None:
    entries = [entry(10, person=number) for number in range(1, ENTRIES_PER_CALL + 1)]
    assert await store.projection.project(entries, None) == Projected(new=ENTRIES_PER_CALL)
    assert await store.listed(user(ENTRIES_PER_CALL)) == {group(1): 10}


async def test_only_heads_that_equal_what_was_written_are_popped(store: Store) -> None:
    entries = [entry(10, person=number) for number in (1, 2, 3)]
    await store.projection.project(entries, None)
    assert await store.projection.pop_pending([entries[1]]) == 0
    assert await store.projection.pop_pending([entries[0], entries[1], entry(99)]) == 2
    assert await store.projection.pop_pending([entries[0], entries[1]]) == 0
    assert await store.projection.pending(10) == ([entries[2]], 1)


async def test_a_call_whose_arguments_do_not_fit_changes_nothing(store: Store) -> None:
    keys = ["{u000}:checkpoints", "{u000}:progress", "{u000}:ucs_pending", "{u000}:convs"]
    with pytest.raises(ReplyError):
        await run(store.instance, PROJECT_ENTRIES, keys, ["3", "", "7-0@x", 7, 0])
    assert await store.instance.call("EXISTS", *keys) == 0


async def test_a_stored_checkpoint_that_cannot_be_read_is_an_error(store: Store) -> None:
    await store.instance.call("HSET", "{u000}:checkpoints", "3", "nonsense")
    with pytest.raises(ValueError, match="no checkpoint"):
        await store.projection.checkpoints([3])

"""Where retention by age puts the floor (design.md, "Decisions between the sources", own clear and group floor)."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest
from tests.integration.writer_retention.conftest import DAYS, NOW_MS, Keeper, ago
from tests.support.chat import ANA, BEN, CARA, Chat

from qim_common.errors import PermissionDenied
from qim_common.ids import group_conversation_id, uuid7
from qim_common.records import StateChange
from qim_writer.commands.trimming import JUMP_SECONDS, MS_PER_DAY, RETENTION

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    ("times", "floor"),
    [
        ([ago(1)], 0),
        ([ago(DAYS)], 1),
        ([ago(DAYS, -1)], 0),
        ([ago(DAYS, 1), ago(DAYS), ago(DAYS, -1), ago(0)], 2),
        ([ago(30), ago(20), ago(DAYS), ago(DAYS), ago(DAYS)], 5),
        ([ago(30)] * 3 + [ago(DAYS, -1)] * 3, 3),
    ],
)
async def test_the_floor_is_the_newest_seq_that_is_old_enough(keeper: Keeper, times: list[int], floor: int) -> None:
    group = await keeper.create()
    await keeper.write(group, times)
    assert await keeper.retention.round() == (1 if floor else 0)
    assert await keeper.floor(group) == floor


@pytest.mark.parametrize("seed", range(12))
async def test_the_search_agrees_with_looking_at_every_message(keeper: Keeper, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  no secret
    gaps = [chance.choice((0, 0, 1, 50, 60_000, 3_599_999, 3_600_000, 40 * 3_600_000)) for _ in range(120)]
    times = [ago(30) + offset for offset in accumulate(gaps)]
    group = await keeper.create()
    await keeper.write(group, times)
    floor = chance.choice((0, 0, 17))
    if floor:
        await keeper.groups.clear_group(keeper.chat.operator, uuid7(), group, floor)
        await keeper.trim(group)
    edges = {edge + chance.choice((-1, 0, 1)) for edge in times}
    for cutoff in sorted({0, ago(31), NOW_MS * 2} | edges):
        cut = await keeper.states.age_cut(keeper.chat.of(group), cutoff)
        assert cut is not None
        old = sum(time <= cutoff for time in times)
        assert (cut.seq, cut.floor) == (max(old, floor), floor), f"seed {seed}, cutoff {cutoff}"


async def test_samples_bound_the_search_over_thousands_of_messages(keeper: Keeper) -> None:
    times = [ago(10) + seq // 3 * 1_000 for seq in range(2_600)]
    group = await keeper.create()
    await keeper.write(group, times)
    for seq in (1, 999, 1_000, 1_001, 1_999, 2_000, 2_599):
        cut = await keeper.states.age_cut(keeper.chat.of(group), times[seq - 1])
        assert cut is not None
        assert cut.seq == sum(time <= times[seq - 1] for time in times)


async def test_readers_see_the_floor_before_any_record_is_removed(keeper: Keeper, chat: Chat) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(9), ago(8), ago(1), ago(0)])
    await keeper.retention.round()
    assert await chat.read(BEN, group) == [3, 4]
    assert await keeper.stored(group) == [1, 2, 3, 4]
    await keeper.trim(group)
    assert await chat.read(BEN, group) == [3, 4]
    assert await keeper.stored(group) == [3, 4]


async def test_a_round_that_finds_nothing_new_changes_nothing(keeper: Keeper) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(8), ago(0)])
    assert [await keeper.retention.round() for _ in range(3)] == [1, 0, 0]
    records = await keeper.states.state_records(keeper.chat.of(group), 0, 10)
    (floor,) = (record for record in records if record.change is StateChange.FLOOR)
    assert (floor.maker, int.from_bytes(floor.payload, "big")) == (RETENTION, 1)


async def test_the_floor_follows_as_time_goes_by(keeper: Keeper) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(days) for days in (6, 5, 4, 3)])
    floors = []
    for _ in range(6):
        await keeper.retention.round()
        floors.append(await keeper.floor(group))
        keeper.clock.wait(MS_PER_DAY)
    assert floors == [0, 1, 2, 3, 4, 4]


async def test_the_floor_does_not_go_back_where_a_clear_was_higher(keeper: Keeper) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(9), ago(8), ago(1), ago(0)])
    await keeper.groups.clear_group(keeper.chat.operator, uuid7(), group, 3)
    assert await keeper.retention.round() == 0
    assert await keeper.floor(group) == 3


async def test_groups_without_a_retention_are_left_alone(keeper: Keeper) -> None:
    group = await keeper.create(days=0)
    await keeper.write(group, [ago(3_000), ago(0)])
    assert await keeper.retention.round() == 0
    assert await keeper.floor(group) == 0
    assert await keeper.stored(group) == [1, 2]


async def test_a_retention_that_is_switched_on_later_counts_from_the_messages(keeper: Keeper) -> None:
    group = await keeper.create(days=0)
    await keeper.write(group, [ago(9), ago(0)])
    await keeper.keep_for(group, DAYS)
    await keeper.retention.round()
    assert await keeper.floor(group) == 1


async def test_a_retention_that_is_switched_off_leaves_the_floor_where_it_is(keeper: Keeper, chat: Chat) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(9), ago(6), ago(0)])
    await keeper.retention.round()
    await keeper.keep_for(group, 0)
    keeper.clock.wait(30 * MS_PER_DAY)
    assert await keeper.retention.round() == 0
    assert await keeper.floor(group) == 1
    assert await chat.read(BEN, group) == [2, 3]
    bucket = keeper.stores.store.place(chat.tenant, group).bucket
    assert await keeper.states.retained_groups(bucket) == []


async def test_settings_that_change_during_a_round_are_obeyed(keeper: Keeper) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(9), ago(0)])
    cut = await keeper.states.age_cut(keeper.chat.of(group), ago(DAYS))
    assert cut is not None
    await keeper.keep_for(group, 0)
    assert await keeper.states.raise_floor(keeper.chat.of(group), cut.seq, cut.policy, RETENTION, None) is None
    assert await keeper.floor(group) == 0


async def test_an_empty_group_and_an_unknown_one(keeper: Keeper, chat: Chat) -> None:
    group = await keeper.create()
    assert await keeper.retention.round() == 0
    assert await keeper.floor(group) == 0
    unknown = group_conversation_id(b"\7" * 16)
    assert await keeper.states.age_cut(chat.of(unknown), NOW_MS) is None
    with pytest.raises(PermissionDenied):
        await keeper.groups.clear_group(chat.operator, uuid7(), unknown, 0)


async def test_a_frozen_group_is_kept_by_age_too(keeper: Keeper, chat: Chat) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(9), ago(0)])
    await keeper.groups.freeze(chat.operator, uuid7(), group, frozen=True)
    await keeper.retention.round()
    assert await keeper.floor(group) == 1


async def test_a_clock_that_was_set_forward_moves_no_floor_until_it_is_back(keeper: Keeper) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(8), ago(6), ago(0)])
    keeper.clock.ms += 30 * MS_PER_DAY
    assert await keeper.retention.round() == 0
    assert await keeper.floor(group) == 0
    keeper.clock.ms -= 30 * MS_PER_DAY
    assert await keeper.retention.round() == 1
    assert await keeper.floor(group) == 1
    keeper.clock.ms -= 30 * MS_PER_DAY
    assert await keeper.retention.round() == 0, "behind, everything is young"
    keeper.clock.ms += 30 * MS_PER_DAY + int(JUMP_SECONDS * 1000)
    assert await keeper.retention.round() == 0, "small corrections are none, and 6 days are not 7"


async def test_a_later_member_reads_from_the_floor_on(keeper: Keeper, chat: Chat) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(9), ago(8), ago(1)])
    await keeper.retention.round()
    await keeper.trim(group)
    await keeper.chat.add(group, CARA)
    assert await chat.read(CARA, group) == [4]
    assert await chat.read(ANA, group) == [3, 4]

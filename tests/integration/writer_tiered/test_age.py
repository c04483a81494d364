"""Retention by age where records have left for the archive: never too much, and as exact as the samples."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest
from tests.integration.writer_retention.conftest import DAYS, NOW_MS, ago
from tests.integration.writer_tiered.conftest import TieredKeeper
from tests.support.chat import BEN, Chat

from qim_writer.commands.trimming import MS_PER_DAY

pytestmark = pytest.mark.server

HOUR_MS = 3_600_000


@pytest.mark.parametrize("seed", range(10))
async def test_the_floor_is_never_above_what_is_old_enough_and_at_most_a_sample_below(
    keeper: TieredKeeper, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311  no secret
    gaps = [chance.choice((0, 1, 50, 60_000, HOUR_MS - 1, HOUR_MS, 40 * HOUR_MS)) for _ in range(150)]
    times = [ago(40) + offset for offset in accumulate(gaps)]
    group = await keeper.create()
    await keeper.write(group, times)
    await keeper.archive_all(group)
    steps = sorted(chance.sample(range(1, 150), 4))
    now_ms = await keeper.stores.now_ms()
    for step in steps:
        await keeper.evict(group, older_than_ms=now_ms - times[step])
        for edge in sorted(set(times)):
            for cutoff in (edge - 1, edge, edge + HOUR_MS):
                cut = await keeper.states.age_cut(keeper.chat.of(group), cutoff)
                assert cut is not None
                old = sum(time <= cutoff for time in times)
                assert cut.seq <= old, f"seed {seed}, evicted to {step}, cutoff {cutoff}: young records would go"
                missed = times[cut.seq : old]
                assert not missed or missed[-1] - times[cut.seq] < HOUR_MS, f"seed {seed}, {step}, {cutoff}: too little"


async def test_what_went_before_a_long_silence_does_not_wait_for_its_end(keeper: TieredKeeper, chat: Chat) -> None:
    # Thirty messages within a minute have one sample; then nothing for weeks.
    times = [ago(40) + seq * 1_000 for seq in range(30)] + [ago(1)]
    group = await keeper.create()
    await keeper.write(group, times[:30])
    await keeper.cool(group)
    await chat.send(BEN, group)
    record = await keeper.stores.call("HGET", keeper.stores.keys(group).msgrec, 31)
    dated = record[:8] + times[30].to_bytes(6, "big") + record[14:]
    await keeper.stores.call("HSET", keeper.stores.keys(group).msgrec, 31, dated)
    await keeper.stores.call("ZADD", keeper.stores.keys(group).msgts, times[30], 31)
    await keeper.cool(group)
    assert await keeper.stored(group) == [31]
    await keeper.retention.round()
    assert await keeper.floor(group) == 30


async def test_eviction_leaves_no_more_samples_than_sending_does(keeper: TieredKeeper) -> None:
    times = [ago(20) + seq * 60_000 for seq in range(600)]
    group = await keeper.create()
    await keeper.write(group, times)
    before = await keeper.stores.call("ZCARD", keeper.stores.keys(group).msgts)
    await keeper.archive_all(group)
    now_ms = await keeper.stores.now_ms()
    for time in times:
        await keeper.evict(group, older_than_ms=now_ms - time)
    assert await keeper.stores.call("ZCARD", keeper.stores.keys(group).msgts) <= 2 * before


async def test_a_round_clears_both_sides_by_age(keeper: TieredKeeper, chat: Chat) -> None:
    # So old that the clock of the machine that deletes is behind all of them.
    oldest = NOW_MS - 300 * MS_PER_DAY
    times = [oldest + seq * 60_000 for seq in range(2_400)] + [ago(1)]
    group = await keeper.create(days=DAYS)
    for start in range(0, 2_400, 200):
        await chat.send_many(len(times[start : start + 200]), BEN, group)
    await chat.send(BEN, group)
    await keeper.date(group, times)
    await keeper.archive_all(group)
    await keeper.evict(group)

    assert await keeper.retention.round() == 1
    assert await keeper.floor(group) == 2_400
    await keeper.note_archived(group)
    await keeper.trimmer.remove(chat.of(group))
    assert await keeper.archived(group, 2_401) == list(range(2_001, 2_402))
    assert await chat.read(BEN, group) == [2_401]
    assert not await keeper.open_removal(group)
    assert await keeper.retention.round() == 0

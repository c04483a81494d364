"""ack_level log: Cassandra, the archiver and Redis are killed or stand still under load. Sends and lists go on.

After each: nothing that was acknowledged is lost, no seq is used twice, everybody is told the fold of what was
acknowledged, and the archive holds all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.faults.tiered.stage import Stage, stage
from tests.model.reader import compare_list
from tests.model.sights import expected_sight
from tests.support.cassandra import alone_with

from qim_devkit.cassandra import CassandraCluster

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]

OUTBOX = 2_000


@pytest.fixture(scope="module")
def own_cluster(cassandra_run: tuple[CassandraCluster, Path]) -> Iterator[CassandraCluster]:
    """The cluster for these tests alone."""
    with alone_with(cassandra_run) as cluster:
        yield cluster


@pytest.fixture(scope="module")
async def running(own_cluster: CassandraCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A suite with two archivers and a small outbox."""
    directory = tmp_path_factory.mktemp("at_log") / "suite"
    async with stage(directory, own_cluster, ack_level="log", QIM_OUTBOX_MAX_MESSAGES=str(OUTBOX)) as begun:
        yield begun


@pytest.fixture
async def broken(running: Stage) -> AsyncIterator[Stage]:
    """The same suite, mended after each test, also one that failed."""
    yield running
    await running.mended()


@pytest.mark.parametrize("how", ["killed", "standing still"])
async def test_one_node_of_three_is_down_and_nobody_notices(broken: Stage, how: str) -> None:
    ledger, chorus = broken.ledger(), broken.chorus()
    async with ledger.working(), chorus.singing():
        await ledger.more(100)
        if how == "killed":
            await broken.killed_nodes(1)
        else:
            broken.paused_nodes(1)
        await asyncio.gather(ledger.more(200), chorus.more(400))
        # Nothing stays behind while it is down.
        before = chorus.count
        await broken.archived_up_to_now()
        assert chorus.count > before
    # It comes back when the load has ended: a node that starts takes both cores for itself.
    await broken.healed()
    async with ledger.working(), chorus.singing():
        await asyncio.gather(ledger.more(50), chorus.more(100))
    assert ledger.troubles + chorus.troubles == {}
    await broken.check(ledger, chorus)


async def test_cassandra_is_away_until_the_outbox_is_full_and_comes_back(broken: Stage) -> None:
    ledger, chorus = broken.ledger(), broken.chorus()
    known = broken.ledger(2, directs=0)
    async with known.working():
        await known.more(60)
    await known.check()
    async with ledger.working(), chorus.singing():
        await ledger.more(100)
        await ledger.meet_everybody()
        await broken.killed_nodes(1, 2)
        await chorus.until_trouble("ARCHIVE_BACKLOG_FULL")
        assert chorus.retry_after["ARCHIVE_BACKLOG_FULL"] is not None
        assert await broken.backlog() >= OUTBOX
        # What does not add to the outbox without bound goes on: lists, reading, leaving.
        account = known.accounts[0]
        for who in account.lane.people:
            sights = {one.lane.group: expected_sight(one.model, who) for one in known.accounts}
            await compare_list(broken.world, who, sights)
        await known.carry_on(lambda account: account.lane.read(account.lane.people[0], account.model.head))
        await known.carry_on(lambda account: account.leaving())
        assert known.troubles == {}
        await broken.healed()
        await broken.drained_below(OUTBOX // 2)
        await asyncio.gather(ledger.more(100), chorus.more(300))
    assert set(chorus.troubles) == {"ARCHIVE_BACKLOG_FULL"}
    assert set(ledger.troubles) <= {"ARCHIVE_BACKLOG_FULL"}
    await known.check()
    await broken.check(ledger, chorus)


async def test_cassandra_stands_still_and_goes_on(broken: Stage) -> None:
    ledger, chorus = broken.ledger(), broken.chorus(singers=2, pace=2.0)
    async with ledger.working(), chorus.singing():
        await ledger.more(100)
        await ledger.meet_everybody()
        broken.paused_nodes(0, 1)
        await asyncio.gather(ledger.more(150), chorus.more(50))
        await broken.healed()
        await ledger.more(100)
    assert ledger.troubles + chorus.troubles == {}
    await broken.check(ledger, chorus)


async def test_archivers_are_killed_and_stand_still_at_any_point(broken: Stage) -> None:
    ledger, chorus = broken.ledger(), broken.chorus(pace=0.3)
    async with ledger.working(), chorus.singing():
        for name in ("archiver", "archiver-1", "archiver", "archiver-1"):
            await ledger.more(40)
            await broken.suite.kill(name)
            await ledger.more(20)
            await broken.suite.restart(name)
        # One goes on while the other stands still with its batches under way, and wakes up when it lags.
        for name in ("archiver", "archiver-1"):
            with broken.standing_still(name):
                await broken.archived_up_to_now()
                await ledger.more(60)
            await ledger.more(40)
        with broken.standing_still("archiver", "archiver-1"):
            await asyncio.gather(ledger.more(100), chorus.more(100))
    assert ledger.troubles + chorus.troubles == {}
    await broken.check(ledger, chorus)


async def test_redis_and_the_services_are_killed_and_stand_still(broken: Stage) -> None:
    ledger, chorus = broken.ledger(), broken.chorus(pace=0.3)
    async with ledger.working(), chorus.singing():
        for name in ("valkey-0", "writer", "valkey-1", "session", "admin"):
            await ledger.more(60)
            await broken.crash(name)
        for name in ("valkey-0", "valkey-1", "writer", "session"):
            await ledger.more(40)
            with broken.standing_still(name):
                await asyncio.sleep(1.0)  # how long the machine hangs
        await asyncio.gather(ledger.more(100), chorus.more(100))
    await broken.check(ledger, chorus)


async def test_a_lost_instance_is_recovered_and_what_the_archive_lacked_is_given_up(broken: Stage) -> None:
    ledger, chorus = broken.ledger(), broken.chorus()
    async with ledger.working(), chorus.singing():
        await asyncio.gather(ledger.more(200), chorus.more(300))
        ledger.marking = False
    await broken.marks_are_written()
    await broken.drained()
    gone = broken.on("valkey-0", chorus.acknowledged)
    # The archivers stand still until long after the recovery: what they have read is of a log that is gone then.
    with broken.standing_still("archiver", "archiver-1"):
        async with ledger.working(), chorus.singing():
            await asyncio.gather(ledger.more(100), chorus.more(300))
        archived = await broken.archived_heads([account.lane.group for account in ledger.accounts] + gone)
        await broken.wipe("valkey-0")
        assert await chorus.refusal_in(gone[0]) in {"INSTANCE_FENCED", "BACKEND_UNAVAILABLE"}
        report = await broken.recover("valkey-0", "--accept-loss")
        assert report["generation_raised"]
        await broken.serves(gone[0], chorus.people[0])
        lost = chorus.forget_after({group: archived[group] for group in gone})
        assert lost
        for group in gone:
            assert await broken.line(group, chorus.people[0]) == (1, archived[group])
        lines = broken.accounts_on("valkey-0", ledger)
        for account in lines:
            await broken.given_up(account, archived[account.lane.group])
        older = {(who, account.lane.group) for account in lines for who, seq in account.acknowledged.items() if seq}
        # Seqs go on behind what is left, in the new generation; who repeats what was lost sends it anew.
        async with ledger.working(), chorus.singing():
            await asyncio.gather(ledger.more(100), chorus.more(200))
    async with ledger.working(), chorus.singing():
        await asyncio.gather(ledger.more(100), chorus.more(200))
    new = [sung.sent for group in gone for sung in chorus.acknowledged[group].values() if sung.sent.generation == 1]
    old = {(sung.sent.conversation, sung.sent.seq) for sung in lost}
    assert {(sent.conversation, sent.seq) for sent in new} & old, "the seqs that were lost are there again"
    await broken.check(ledger, chorus)
    assert older
    assert ledger.resynchronised == older

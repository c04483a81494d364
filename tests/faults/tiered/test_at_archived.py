"""ack_level archived: what is acknowledged survives the loss of a whole Redis instance with its disk.

Old records leave Redis at once here, so that histories are read from both stores while everything breaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.faults.tiered.append_only import Commit
from tests.faults.tiered.stage import Stage, stage
from tests.support.cassandra import alone_with

from qim_devkit.cassandra import CassandraCluster

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def own_cluster(cassandra_run: tuple[CassandraCluster, Path]) -> Iterator[CassandraCluster]:
    """The cluster for these tests alone."""
    with alone_with(cassandra_run) as cluster:
        yield cluster


@pytest.fixture(scope="module")
async def running(own_cluster: CassandraCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A suite with two archivers."""
    directory = tmp_path_factory.mktemp("at_archived") / "suite"
    async with stage(
        directory, own_cluster, ack_level="archived", QIM_HOT_RECORD_HOURS="0", QIM_ARCHIVE_LINGER_MS="10"
    ) as begun:
        yield begun


@pytest.fixture
async def broken(running: Stage) -> AsyncIterator[Stage]:
    """The same suite, mended after each test, also one that failed."""
    yield running
    await running.mended()


async def test_one_node_of_three_stands_still_and_nobody_notices(broken: Stage) -> None:
    ledger, chorus = broken.ledger(), broken.chorus()
    async with ledger.working(), chorus.singing():
        await ledger.more(60)
        broken.paused_nodes(2)
        await asyncio.gather(ledger.more(150), chorus.more(200))
        await broken.healed()
        await ledger.more(50)
    assert ledger.troubles + chorus.troubles == {}
    await broken.check(ledger, chorus)


async def test_while_two_nodes_stand_still_nothing_is_acknowledged_and_nothing_is_lost(broken: Stage) -> None:
    ledger, chorus = broken.ledger(), broken.chorus()
    async with ledger.working(), chorus.singing():
        await asyncio.gather(ledger.more(60), chorus.more(100))
        broken.paused_nodes(0, 1)
        # The outcome of what is under way becomes unknown to its callers.
        await chorus.until_trouble()
        before = chorus.count
        await asyncio.sleep(1.0)  # how long they go on to try in vain
        assert chorus.count == before
        await broken.healed()
        await asyncio.gather(ledger.more(60), chorus.more(100))
    assert set(chorus.troubles) <= {"DEADLINE_EXCEEDED", "BACKEND_UNAVAILABLE"}
    await broken.check(ledger, chorus)


async def test_archivers_are_killed_and_stand_still_and_another_goes_on(broken: Stage) -> None:
    ledger, chorus = broken.ledger(), broken.chorus()
    async with ledger.working(), chorus.singing():
        for name in ("archiver", "archiver-1"):
            await ledger.more(40)
            await broken.suite.kill(name)
            await asyncio.gather(ledger.more(40), chorus.more(50))
            await broken.suite.restart(name)
            with broken.standing_still(name):
                await asyncio.gather(ledger.more(40), chorus.more(50))
    await broken.check(ledger, chorus)


async def test_a_lost_instance_is_recovered_under_load_and_every_answer_is_what_it_was(broken: Stage) -> None:
    ledger, chorus = broken.ledger(), broken.chorus()
    gone, others = (broken.on(name, chorus.groups) for name in broken.suite.valkey_names)
    async with ledger.working(), chorus.singing():
        await asyncio.gather(ledger.more(150), chorus.more(200))
        await broken.crash("valkey-1")
        await asyncio.gather(ledger.more(50), chorus.more(100))
        ledger.marking = False
        await broken.marks_are_written()
        # What is younger than the last look of whoever registers conversations.
        newborn = broken.ledger(4, directs=1)
        newborn.marking = False
        async with newborn.working():
            await newborn.more(30)
        await broken.wipe("valkey-0")
        assert await chorus.refusal_in(gone[0]) in {"INSTANCE_FENCED", "BACKEND_UNAVAILABLE"}
        await chorus.more_in(others, 50)
        report = await broken.recover("valkey-0")
        assert not report["generation_raised"]
        await chorus.more_in(gone, 100)
        ledger.marking = True
        await ledger.more(100)
    await broken.check(ledger, chorus)
    await broken.check(newborn)
    assert {sung.sent.generation for group in gone for sung in chorus.acknowledged[group].values()} == {0}
    # And once more, from what the recovered instance archived.
    ledger.marking = False
    await broken.marks_are_written()
    await broken.wipe("valkey-0")
    await broken.recover("valkey-0")
    await broken.serves(gone[0], chorus.people[0])
    await broken.check(ledger, chorus)


@pytest.mark.parametrize("where", [0.0, 0.5, 0.99])
async def test_an_append_only_file_cut_inside_the_last_commit_fences_its_instance(broken: Stage, where: float) -> None:
    ledger, chorus = broken.ledger(2, directs=0), broken.chorus(2, singers=1)
    async with ledger.working(), chorus.singing():
        await asyncio.gather(ledger.more(20), chorus.more(20))
    await broken.marks_are_written()
    gone, other = (broken.on(name, chorus.groups)[0] for name in broken.suite.valkey_names)
    ana = broken.world.person(chorus.people[0])
    body = b"the last commit %d" % int(where * 100)
    last = await ana.send_to(gone, body)
    await broken.suite.kill("valkey-0")
    commit = Commit.of(broken.suite.paths.valkey("valkey-0"), body)
    commit.cut(commit.first + int(where * (commit.end - commit.first)))
    for _ in range(2):
        await broken.suite.restart("valkey-0")
        await broken.refuses(gone, chorus, "INSTANCE_FENCED")
        assert (await ana.send_to(other, b"the other instance serves")).seq
    await broken.recover("valkey-0")
    await broken.serves(gone, chorus.people[0])
    page = await ana.pull_history(gone, limit=1)
    assert [(message.seq, message.body) for message in page.messages] == [(last.seq, body)]
    assert (await ana.send_to(gone, b"and on")).seq == last.seq + 1
    await broken.check(ledger)

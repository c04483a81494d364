"""What a lost line left in the archive behind the end of the recovered one: rows of the group log, and messages.

An archiver writes a round's rows first, then the messages of each conversation; it may have died between, or go on
writing while the instance is recovered already. Nothing of it may ever become part of a line that went on otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.recovery.conftest import Recovering
from tests.integration.recovery.test_rebuilt_keys import differing
from tests.support.chat import ANA, BEN, CARA, DAN, EVE
from tests.support.past import World, keys_of, sights

from qim_common.ids import ConversationId
from qim_common.keys import BucketKeys
from qim_common.positions import Position
from qim_common.recovery import Loss
from qim_devkit.valkey import ValkeyServer
from qim_writer.domain.archive_rounds import ArchiveRow
from qim_writer.domain.group_rows import GroupRow
from qim_writer.storage_archive import ArchivePosition

LOSSES = [Loss.UNDECIDED, Loss.ACCEPTED]


class Died(Exception):  # noqa: N818  it says what happened
    """A run ends here."""


@pytest.fixture
def recovering(recovering: Recovering) -> Recovering:
    """At the level at which nothing acknowledged is lost, so nothing need be said."""
    recovering.ack_level = "archived"
    return recovering


async def archived_group(recovering: Recovering, world: World) -> ConversationId:
    """A group of Ana and Ben with one message, all of it archived."""
    group = await world.chat.create(ANA, BEN)
    await world.chat.send(ANA, group)
    await recovering.archive_all(world.stores)
    return group


async def rows_of(recovering: Recovering, world: World, group: ConversationId) -> list[GroupRow]:
    """What a recovery reads."""
    return [row async for page in recovering.archive.group_log.rows(world.chat.of(group)) for row in page]


async def leave_rows(recovering: Recovering, world: World, group: ConversationId) -> list[GroupRow]:
    """The rows of everything that happened reach the archive, and nothing else does."""
    rows = await world.stores.group_rows(group, recovering.tenant)
    await recovering.archive.group_log.append(rows)
    return rows


async def records_of(world: World, group: ConversationId, first: int) -> list[ArchiveRow]:
    """The records from a seq on."""
    stored = await world.stores.hash(world.stores.keys(group, world.chat.tenant).msgrec)
    return sorted(ArchiveRow(int(seq), record) for seq, record in stored.items() if int(seq) >= first)


async def people(world: World, group: ConversationId) -> list[bytes]:
    """Who is in it."""
    return sorted(await world.chat.at(group, await world.chat.version(group)))


async def all_of(world: World, group: ConversationId) -> dict[str, Any]:
    """Keys and answers."""
    return await keys_of(world, group) | await sights(world, {group})


async def survives(
    recovering: Recovering, world: World, group: ConversationId, server: ValkeyServer, loss: Loss = Loss.UNDECIDED
) -> None:
    """Everything of the world is archived, and a further recovery brings back the same."""
    await recovering.archive_all(world.stores)
    lived, seen = await people(world, group), await all_of(world, group)
    await recovering.recover(server, loss)
    async with recovering.world(server) as again:
        assert await people(again, group) == lived
        if loss is Loss.UNDECIDED:
            assert differing(seen, await all_of(again, group)) == []


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_change_at_a_revision_that_was_lost_is_archived_whole(
    recovering: Recovering, world: World, empty: ValkeyServer, tmp_path: Path, loss: Loss
) -> None:
    group = await archived_group(recovering, world)
    await world.chat.add(group, DAN, EVE)
    await leave_rows(recovering, world, group)
    await recovering.recover(empty, loss)

    async with recovering.world(empty) as recovered:
        assert await people(recovered, group) == [ANA, BEN]
        await recovered.chat.remove(group, BEN)
        await recovered.chat.send(ANA, group)
        with ValkeyServer(tmp_path / "third") as third:
            await survives(recovering, recovered, group, third)
            with ValkeyServer(tmp_path / "fourth") as fourth:
                async with recovering.world(third) as again:
                    await again.chat.add(group, CARA)
                    await survives(recovering, again, group, fourth, loss)


async def test_nobody_comes_in_by_a_change_that_was_lost(
    recovering: Recovering, world: World, empty: ValkeyServer, tmp_path: Path
) -> None:
    group = await archived_group(recovering, world)
    await world.chat.add(group, EVE)
    await leave_rows(recovering, world, group)
    await recovering.recover(empty, Loss.UNDECIDED)

    async with recovering.world(empty) as recovered:
        await recovered.chat.add(group, CARA)
        assert await people(recovered, group) == [ANA, BEN, CARA]
        with ValkeyServer(tmp_path / "third") as third:
            await survives(recovering, recovered, group, third)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("changes", [0, 1])
async def test_lost_changes_at_revisions_that_the_line_has_not_reached_are_never_read(
    recovering: Recovering, world: World, empty: ValkeyServer, tmp_path: Path, changes: int, loss: Loss
) -> None:
    group = await archived_group(recovering, world)
    for person in (CARA, DAN, EVE):
        await world.chat.add(group, person)
    await leave_rows(recovering, world, group)
    await recovering.recover(empty, loss)

    async with recovering.world(empty) as recovered:
        assert len(await rows_of(recovering, recovered, group)) == (2 if loss is Loss.ACCEPTED else 1)
        # The line passes the heads of the lost changes, but not their revisions.
        await recovered.chat.send_many(20, ANA, group)
        if changes:
            await recovered.chat.remove(group, BEN)
        with ValkeyServer(tmp_path / "third") as third:
            await survives(recovering, recovered, group, third)


@pytest.mark.parametrize("loss", LOSSES)
async def test_rows_and_messages_that_arrive_after_the_recovery_stay_deleted(
    recovering: Recovering, world: World, empty: ValkeyServer, tmp_path: Path, loss: Loss
) -> None:
    """An archiver that hung between two batches, or a node that did not answer and had the write nevertheless."""
    group = await archived_group(recovering, world)
    await world.chat.add(group, CARA)
    await world.chat.send_many(30, CARA, group)
    lost = await world.stores.group_rows(group, recovering.tenant)
    records = await records_of(world, group, 2)
    # It had announced where it would go.
    keys = world.stores.bucket(group, recovering.tenant)
    (noted,) = {one.log_id for one in (await recovering.archive.positions.of(0)).values()}
    await announce(recovering, keys.bucket, noted, await newest(world, keys))
    await recovering.recover(empty, loss)

    await recovering.archive.group_log.append(lost)
    await recovering.archive.messages.append(world.chat.of(group), records)
    async with recovering.world(empty) as recovered:
        assert len(await rows_of(recovering, recovered, group)) == (2 if loss is Loss.ACCEPTED else 1)
        await recovered.chat.send_many(3, BEN, group)
        with ValkeyServer(tmp_path / "third") as third:
            await survives(recovering, recovered, group, third)


async def test_messages_behind_a_gap_are_never_taken_for_the_end_of_the_line(
    recovering: Recovering, world: World, empty: ValkeyServer, tmp_path: Path
) -> None:
    group = await archived_group(recovering, world)
    await world.chat.send_many(40, BEN, group)
    # Up to 4 is in the archive, and something behind a gap, also far behind it.
    far = 200
    left = [row for row in await records_of(world, group, 2) if row.seq not in (5, 6)]
    await recovering.archive.messages.append(world.chat.of(group), [*left, left[-1]._replace(seq=far)])
    await recovering.recover(empty, Loss.UNDECIDED)

    async with recovering.world(empty) as recovered:
        assert await recovered.chat.head(group) == 4
        place, archive = recovered.chat.of(group), recovering.archive.messages
        assert [record.seq for record in await archive.page(place, 1, far, 1_000)][-1] <= 4
        await recovered.chat.send_many(2, ANA, group)
        with ValkeyServer(tmp_path / "third") as third:
            await survives(recovering, recovered, group, third)


async def test_messages_far_behind_that_were_deleted_by_nobody_are_told_by_their_time(
    recovering: Recovering, world: World, empty: ValkeyServer, tmp_path: Path
) -> None:
    group = await archived_group(recovering, world)
    await world.chat.send_many(1_100, BEN, group)
    lost = [row for row in await records_of(world, group, 2) if row.seq > 1_000]
    await recovering.recover(empty, Loss.UNDECIDED)

    async with recovering.world(empty) as recovered:
        for _ in range(3):
            await recovered.chat.send_many(333, ANA, group)
        assert await recovered.chat.head(group) == 1_000
        # An archiver that hung since then goes on writing, in a seq bucket that nothing was deleted from.
        await recovering.archive.messages.append(recovered.chat.of(group), lost)
        with ValkeyServer(tmp_path / "third") as third:
            await survives(recovering, recovered, group, third)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("point", ["announced", "messages", "rows", "rebuilt"])
async def test_a_run_that_ended_around_the_deletions_is_run_again(
    recovering: Recovering,
    world: World,
    empty: ValkeyServer,
    tmp_path: Path,
    loss: Loss,
    point: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = await archived_group(recovering, world)
    await world.chat.add(group, CARA, DAN)
    await world.chat.send_many(20, DAN, group)
    await leave_rows(recovering, world, group)
    left = [row for row in await records_of(world, group, 2) if row.seq != 2]
    await recovering.archive.messages.append(world.chat.of(group), left)

    with monkeypatch.context() as patch, pytest.raises(Died):
        await recovering.recover(empty, loss, progress=dying(patch, recovering, point))
    # The next one has another server, with nothing but the archive.
    with ValkeyServer(tmp_path / "second") as second:
        report = await recovering.recover(second, loss)
        assert report.generation_raised is (loss is Loss.ACCEPTED)
        async with recovering.world(second) as recovered:
            assert await people(recovered, group) == [ANA, BEN]
            assert await recovered.chat.head(group) == 1
            await recovered.chat.add(group, EVE)
            await recovered.chat.send_many(5, EVE, group)
            with ValkeyServer(tmp_path / "third") as third:
                await survives(recovering, recovered, group, third)


def dying(patch: pytest.MonkeyPatch, recovering: Recovering, point: str) -> Callable[[str], None]:
    """Let a run die after it has done that."""
    archive = recovering.archive
    places = {
        "announced": (type(archive.positions), "announce"),
        "messages": (type(archive.messages), "remove_after"),
        "rows": (type(archive.group_log), "remove_after"),
    }
    if point in places:
        owner, name = places[point]
        whole = getattr(owner, name)

        async def dies(*args: Any) -> None:
            await whole(*args)
            raise Died

        patch.setattr(owner, name, dies)
    else:
        patch.setattr("qim_writer.commands.recover.recovery._PROGRESS_BUCKETS", 1)

    def told(words: str) -> None:
        if point == "rebuilt" and "4 of 4" in words:
            raise Died

    return told


async def test_a_clock_that_is_far_behind_loses_nothing_to_the_deletions(
    recovering: Recovering, world: World, empty: ValkeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier run has deleted up to binds the later ones, whatever their clocks say."""
    group = await archived_group(recovering, world)
    rows = await rows_of(recovering, world, group)
    hour = 3_600_000
    ahead = replace(rows[0], revision=2, head=9, time_ms=rows[0].time_ms + hour)
    await recovering.archive.group_log.append([ahead])
    with monkeypatch.context() as patch, pytest.raises(Died):
        await recovering.recover(empty, Loss.UNDECIDED, progress=dying(patch, recovering, "rows"))
    with ValkeyServer(tmp_path / "second") as second:
        await recovering.recover(second, Loss.UNDECIDED)
        async with recovering.world(second) as recovered:
            assert (await recovered.chat.send(ANA, group)).time_ms > ahead.time_ms
            await recovered.chat.add(group, CARA)
            with ValkeyServer(tmp_path / "third") as third:
                await survives(recovering, recovered, group, third)


async def announce(recovering: Recovering, bucket: int, log_id: str, position: Position) -> None:
    """As an archiver does."""
    await recovering.archive.positions.announce(0, {bucket: ArchivePosition(log_id, position)})


async def newest(world: World, keys: BucketKeys) -> Position:
    """The end of a bucket's dispatch log."""
    ((entry, _),) = await world.stores.call("XREVRANGE", keys.dispatch, "+", "-", "COUNT", 1)
    return Position.parse(entry)

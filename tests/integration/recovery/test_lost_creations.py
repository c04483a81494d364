"""A conversation whose creation was in a round that did not come to its end.

The round has put it in the index before anything else. Where its first row came as well it is a conversation; where it
did not it was never created, and whatever is there must not be met by the one that is created with the same id, as a
direct conversation of the same two is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.recovery.conftest import Recovering
from tests.integration.recovery.test_left_behind import LOSSES, records_of, survives
from tests.support.chat import ANA, BEN, acting
from tests.support.past import World

from qim_common.errors import BackendUnavailable
from qim_common.ids import ConversationId, direct_conversation_id, uuid7
from qim_common.recovery import Loss
from qim_devkit.valkey import ValkeyServer
from qim_writer.storage_archive import ArchiveHead


@pytest.fixture
def recovering(recovering: Recovering) -> Recovering:
    """At the level at which nothing acknowledged is lost, so nothing need be said."""
    recovering.ack_level = "archived"
    return recovering


async def direct_of_five(recovering: Recovering, world: World) -> ConversationId:
    """A direct conversation with five messages, beside a group that is archived."""
    await world.chat.create(ANA, BEN)
    await recovering.archive_all(world.stores)
    await world.chat.send(ANA, peer=BEN)
    await world.chat.send_many(4, ANA, direct_conversation_id(world.chat.tenant, ANA, BEN))
    return direct_conversation_id(world.chat.tenant, ANA, BEN)


async def index_of(recovering: Recovering, world: World, direct: ConversationId) -> ArchiveHead | None:
    """What the index says."""
    return await recovering.archive.messages.head(world.chat.of(direct))


@pytest.mark.parametrize("dies_at", ["group_log", "messages"])
async def test_a_round_that_broke_off_is_in_the_index(
    recovering: Recovering, world: World, empty: ValkeyServer, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = await direct_of_five(recovering, world)

    async def fails(*args: Any) -> None:
        raise BackendUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(type(getattr(recovering.archive, dies_at)), "append", fails)
        with pytest.raises(BackendUnavailable):
            await recovering.archive_all(world.stores)
    assert await index_of(recovering, world, direct) == ArchiveHead(0, 0)

    report = await recovering.recover(empty, Loss.UNDECIDED)
    assert report.conversations == (1 if dies_at == "group_log" else 2)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("left", ["rows and messages", "messages", "nothing"])
async def test_what_is_created_again_meets_nothing_of_the_lost_one(
    recovering: Recovering, world: World, empty: ValkeyServer, tmp_path: Path, loss: Loss, left: str
) -> None:
    direct = await direct_of_five(recovering, world)
    place, archive = world.chat.of(direct), recovering.archive
    await archive.messages.advance_heads([(place, ArchiveHead(0, 0))])
    records = [] if left == "nothing" else await records_of(world, direct, 1)
    rows = await world.stores.group_rows(direct, recovering.tenant)
    if left == "rows and messages":
        await archive.group_log.append(rows)
    await archive.messages.append(place, records)
    await recovering.recover(empty, loss)

    # Late ones, of an archiver that hung.
    await archive.group_log.append(rows)
    await archive.messages.append(place, records)
    async with recovering.world(empty) as recovered:
        known = 5 if left == "rows and messages" else 0
        sent = await recovered.chat.send(BEN, peer=ANA, message_id=uuid7())
        assert sent.seq == known + 1
        assert sent.generation == (1 if known and loss is Loss.ACCEPTED else 0)
        with ValkeyServer(tmp_path / "third") as third:
            await survives(recovering, recovered, direct, third)
            async with recovering.world(third) as again:
                assert await again.chat.read(ANA, direct) == list(range(1, known + 2))


async def test_later_rows_without_the_first_one_are_deleted(
    recovering: Recovering, world: World, empty: ValkeyServer, tmp_path: Path
) -> None:
    """The batch with the first row was written to too few nodes."""
    await world.chat.create(ANA, BEN)
    await recovering.archive_all(world.stores)
    await world.chat.send(ANA, peer=BEN)
    direct = direct_conversation_id(world.chat.tenant, ANA, BEN)
    await world.clear(acting(ANA, recovering.tenant), uuid7(), direct, 1)
    (_, cleared) = await world.stores.group_rows(direct, recovering.tenant)
    await recovering.archive.messages.advance_heads([(world.chat.of(direct), ArchiveHead(0, 0))])
    await recovering.archive.group_log.append([cleared])
    await recovering.recover(empty, Loss.UNDECIDED)

    async with recovering.world(empty) as recovered:
        await recovered.chat.send(ANA, peer=BEN, message_id=uuid7())
        with ValkeyServer(tmp_path / "third") as third:
            await survives(recovering, recovered, direct, third)

"""A recovery where the archive was cleared below floors, and a removal that never takes what a recovery needs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from tests.integration.recovery.conftest import Recovering
from tests.integration.recovery.test_rebuilt_keys import conversations_of, differing, live
from tests.support.chat import ANA, BEN, acting
from tests.support.past import Past, World, keys_of, sights
from tests.support.redis_stores import RedisStores

from qim_common.ids import ConversationId, UserId, uuid7
from qim_common.recovery import Loss
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.archive_removals import RedisArchiveRemovals
from qim_writer.commands.archive_removal import ArchiveRemoval
from qim_writer.storage_archive import ArchiveHead

DAY_SECONDS = 86_400
LINE = 2_600


def two_days_later() -> float:
    """A clock by which no request of now has an answer any more."""
    return time.time() + 2 * DAY_SECONDS


async def send(batch: Sequence[tuple[UserId, bytes, dict[str, Any]]], world: World) -> Any:
    """What the messages are answered."""
    return await world.chat.outcomes(*batch)


async def long_line(past: Past, world: World) -> ConversationId:
    """A group of Ana and Ben whose messages are remembered with their answers."""
    request = uuid7()
    group: ConversationId
    group, _ = await past.do(world, lambda w: w.chat.create_with_answer(ANA, BEN, request_id=request))
    past.conversations.add(group)
    for start in range(0, LINE, 200):
        batch = [(ANA, bytes(group), {"message_id": uuid7(), "body": b"%d" % (start + n)}) for n in range(200)]
        await past.do(world, partial(send, batch))
    return group


async def clear(past: Past, world: World, group: ConversationId, floor: int) -> None:
    """An operator raises the floor."""
    request = uuid7()
    await past.do(world, lambda w: w.groups.clear_group(w.chat.operator, request, group, floor))


async def remove(
    recovering: Recovering, world: World, group: ConversationId, clock: Callable[[], float] = time.time
) -> None:
    """As much of the removal as may be done at that time, in Redis and in the archive."""
    await world.trimmer.remove(world.chat.of(group))
    removals = RedisArchiveRemovals(world.stores.store)
    await ArchiveRemoval(recovering.archive.messages, removals, clock=clock).remove(world.chat.of(group))


async def gone(stores: RedisStores, world: World, group: ConversationId) -> int:
    """How many buckets are noted as deleted."""
    return int(await stores.call("HGET", stores.keys(group, world.chat.tenant).grpmeta, "agone") or 0)


async def shown(world: World, group: ConversationId) -> dict[str, Any]:
    """What lists show of it."""
    found: dict[str, Any] = {}
    for name, seen in (await sights(world, {group})).items():
        if name.startswith("state"):
            ((_, state),) = seen
            found[name] = (state.head, state.unread, state.newest_delivered, state.last_activity_ms, state.preview)
    return found


async def held(recovering: Recovering, world: World, group: ConversationId, upto: int = LINE) -> list[int]:
    """The seqs that the archive has."""
    place, archive = world.chat.of(group), recovering.archive.messages
    pages = [await archive.page(place, first, min(first + 999, upto), 1_000) for first in range(1, upto + 1, 1_000)]
    return [record.seq for page in pages for record in page]


async def test_a_line_whose_beginning_was_deleted_comes_back_as_it_was(
    recovering: Recovering, world: World, empty: ValkeyServer
) -> None:
    past = Past(random.Random(3))  # noqa: S311  no secret
    group = await long_line(past, world)
    await live(past, world, 20)
    forgotten = 2 * 1_000 // 200
    for person in (ANA, BEN):
        await world.clear(acting(person, world.chat.tenant), uuid7(), bytes(group), 100)
    await clear(past, world, group, 2_300)
    await recovering.archive_all(world.stores)
    await past.trim(world)
    await remove(recovering, world, group, two_days_later)
    assert await gone(world.stores, world, group) == 2
    assert await held(recovering, world, group) == list(range(2_001, LINE + 1))
    conversations = await conversations_of(world)

    await recovering.recover(empty, Loss.EXCLUDED)

    async with recovering.world(empty) as recovered:
        for conversation in conversations:
            assert differing(await keys_of(world, conversation), await keys_of(recovered, conversation)) == []
        assert differing(await sights(world, conversations), await sights(recovered, conversations)) == []
        assert await gone(recovered.stores, recovered, group) == 2
        # Sends in the deleted buckets are older than any answer; what comes after them is answered as ever.
        del past.deeds[1 : 1 + forgotten], past.answers[1 : 1 + forgotten]
        assert await past.repeated(recovered) == past.answers
        assert await recovered.chat.read(BEN, group) == list(range(2_301, LINE + 1))
        # The removal goes on where it was.
        await remove(recovering, recovered, group, two_days_later)
        assert await gone(recovered.stores, recovered, group) == 2
        place = recovered.stores.store.place(recovering.tenant, group)
        assert recovered.chat.of(group) not in await recovered.states.untrimmed_groups(place.bucket)


async def test_what_was_cleared_within_the_window_keeps_its_answers(
    recovering: Recovering, world: World, past: Past, empty: ValkeyServer
) -> None:
    group = await long_line(past, world)
    await clear(past, world, group, 2_300)
    await recovering.archive_all(world.stores)
    await remove(recovering, world, group)
    assert await gone(world.stores, world, group) == 0
    assert await held(recovering, world, group) == list(range(1, LINE + 1))

    await recovering.recover(empty, Loss.EXCLUDED)

    async with recovering.world(empty) as recovered:
        assert await past.repeated(recovered) == past.answers
        assert await recovered.chat.head(group) == LINE


async def test_large_messages_below_a_floor_keep_their_answers_whenever_they_are_archived(
    recovering: Recovering, world: World, past: Past, empty: ValkeyServer
) -> None:
    """Their bodies are not in the dispatch log: a record that went before it is archived would be nowhere."""
    request = uuid7()
    group, _ = await past.do(world, lambda w: w.chat.create_with_answer(ANA, BEN, request_id=request))
    batch = [(ANA, bytes(group), {"message_id": uuid7(), "body": bytes(9_000)}) for _ in range(5)]
    await past.do(world, lambda w: w.chat.outcomes(*batch))
    await clear(past, world, group, 5)
    before = await shown(world, group)
    await remove(recovering, world, group)
    await recovering.archive_all(world.stores)
    await remove(recovering, world, group)
    assert await world.stores.call("HLEN", world.stores.keys(group, recovering.tenant).msgrec) == 0

    await recovering.recover(empty, Loss.EXCLUDED)

    async with recovering.world(empty) as recovered:
        assert differing(before, await shown(recovered, group)) == []
        assert await past.repeated(recovered) == past.answers


@pytest.mark.parametrize(("bucket", "noted"), [(0, 1), (1, 0)])
async def test_a_removal_that_broke_off_between_deletion_and_note_is_done_again(
    recovering: Recovering, world: World, past: Past, empty: ValkeyServer, bucket: int, noted: int
) -> None:
    group = await long_line(past, world)
    await clear(past, world, group, 2_300)
    await recovering.archive_all(world.stores)
    await recovering.archive.messages.remove_buckets(world.chat.of(group), [bucket])

    await recovering.recover(empty, Loss.EXCLUDED)

    async with recovering.world(empty) as recovered:
        assert await recovered.chat.head(group) == LINE
        assert await gone(recovered.stores, recovered, group) == noted
        await remove(recovering, recovered, group, two_days_later)
        assert await held(recovering, recovered, group) == list(range(2_001, LINE + 1))


async def test_no_seq_of_a_deleted_bucket_is_given_out_again_after_an_accepted_loss(
    recovering: Recovering, world: World, past: Past, empty: ValkeyServer
) -> None:
    """A deletion is later than what may be written for an hour: a seq that is used again would be gone at once."""
    group = await long_line(past, world)
    await recovering.archive_all(world.stores)
    await clear(past, world, group, 2_300)
    await recovering.archive_all(world.stores)
    # Another installation's index of the same conversations: the archiver died before it noted any later head.
    late = Recovering(recovering.session, recovering.tenant, recovering.installation + "-late")
    await late.archive.messages.advance_heads([(world.chat.of(group), ArchiveHead(0, 0))])
    await remove(late, world, group, two_days_later)
    assert await late.archive.messages.head(world.chat.of(group)) == ArchiveHead(0, LINE)
    # And what came afterwards is lost.
    await world.chat.send_many(50, BEN, group)

    await late.recover(empty, Loss.ACCEPTED)

    async with late.world(empty) as recovered:
        assert await recovered.chat.head(group) == LINE
        for seq in range(LINE + 1, LINE + 4):
            assert (await recovered.chat.send(BEN, group)).seq == seq
        await late.archive_all(recovered.stores)
        assert await held(late, recovered, group, LINE + 3) == list(range(2_001, LINE + 4))

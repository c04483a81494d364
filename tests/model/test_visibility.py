"""Each read path by itself, on one conversation in which every rule cuts: what it shows is exactly what is visible.

`tests/unit/test_read_paths.py` names for each RPC that answers with message data the test here that watches it.
"""

from __future__ import annotations

import pytest
from tests.model.lanes import Lane, new_people
from tests.model.moves import draw_id, settings_of
from tests.model.reader import Reader, compare_list
from tests.model.sights import Sight, expected_sight, told_entry
from tests.model.world import SECONDS, TENANT, World

from qim.writer.v1 import internal_pb2
from qim_client import convert
from qim_common.ids import UserId

pytestmark = pytest.mark.server

PATIENCE = 4
"""Turns of a reader, so that each direction of a history and pages of several sizes are asked."""


@pytest.fixture(scope="module")
async def story(world: World) -> Lane:
    """A group with kept, dropped and revoked stays, gaps between them, own clear points, a floor, CONCERNED events, and
    a backlog from before a join."""
    lane = Lane.of_group(new_people(7))
    ana, ben, cara, dan, eve, finn, gwen = lane.people

    def say(*people: UserId) -> None:
        for who in people:
            lane.do(lane.send(who, b"a body", request=draw_id()))

    def change(adding: bool, *people: UserId, leaver: str = "") -> None:
        if adding:
            lane.do(lane.add(list(people), request=draw_id()))
        else:
            lane.do(lane.remove(list(people), request=draw_id(), leaver=leaver, initiator=None))

    lane.do(lane.create(settings_of(broadcast_max=4), [ben, cara, dan], by=ana, request=draw_id()))
    say(ana, ben, cara, dan)
    change(True, eve)
    say(ben, eve)
    lane.do(lane.leave(ben, request=draw_id()))
    say(ana, eve)
    lane.do(lane.set(settings_of(rejoin="ALL_STAYS", newcomer="LAST_N", last_n=2, broadcast_max=4), request=draw_id()))
    change(True, ben)
    say(ben, ana)
    change(False, cara, leaver="NONE")
    say(ana)
    change(True, cara)
    say(cara, ana)
    change(False, dan, leaver="NONE")
    change(False, ben)
    say(ana, cara)
    change(True, ben, finn)
    say(finn, ana, ben, cara)
    lane.do(lane.clear_group(ana, 3, request=draw_id()))
    lane.do(lane.clear(finn, 22, request=draw_id()))
    lane.do(lane.clear(eve, 6, request=draw_id()))
    lane.do(lane.read(ana, 20))
    lane.do(lane.leave(eve, request=draw_id()))
    say(ana, ben, finn)
    assert not any(isinstance(foretold, str) for _, foretold in lane.pending), "the story is told without a refusal"
    assert len({str(expected_sight(lane.model, who).visible) for who in lane.people}) == 6, "each sees something else"
    assert gwen not in lane.model.stays
    await lane.play(world)
    return lane


def readers(world: World, lane: Lane) -> list[Reader]:
    """Everybody's read paths, the stranger's too."""
    return [
        Reader(world, lane.group, expected_sight(lane.model, who), turn)
        for who in lane.people
        for turn in range(PATIENCE)
    ]


async def test_get_visible_range_is_what_the_stays_leave(world: World, story: Lane) -> None:
    for reader in readers(world, story):
        await reader.visible_range()


async def test_pull_history_returns_exactly_the_visible_messages(world: World, story: Lane) -> None:
    for reader in readers(world, story):
        await reader.history()


async def test_get_messages_leaves_out_what_is_not_visible(world: World, story: Lane) -> None:
    for reader in readers(world, story):
        await reader.named()


async def test_list_conversations_shows_the_newest_visible_message(world: World, story: Lane) -> None:
    for reader in readers(world, story):
        await reader.listed()


async def test_get_conversation_shows_the_newest_visible_message(world: World, story: Lane) -> None:
    for reader in readers(world, story):
        await reader.entry()


async def test_set_conversation_flags_shows_the_newest_visible_message(world: World, story: Lane) -> None:
    for reader in readers(world, story):
        await reader.flagged()


async def test_get_total_unread_counts_only_what_counts(world: World, story: Lane) -> None:
    for who in story.people:
        await compare_list(world, who, {story.group: expected_sight(story.model, who)})


async def test_pull_mailbox_withholds_what_is_not_visible(world: World, story: Lane) -> None:
    for reader in readers(world, story):
        await reader.listed()
        await reader.mailbox()


async def test_subscribe_withholds_what_is_not_visible(world: World, story: Lane) -> None:
    async with world.gateway.subscribe() as subscription:
        for reader in readers(world, story):
            await reader.live(subscription)


async def test_explain_visibility_decides_as_the_history_does(world: World, story: Lane) -> None:
    for who in story.people:
        sight = expected_sight(story.model, who)
        for turn in range(sight.head + 1):
            await Reader(world, story.group, sight, turn).explanation()


async def test_group_timeline_shows_the_stays_and_what_is_visible(world: World, story: Lane) -> None:
    for who in story.people:
        sight = expected_sight(story.model, who)
        page = await world.operators["operator"].group_timeline(story.group, user=who)
        shown = [seq for stretch in page.visible for seq in range(stretch.first, stretch.last + 1)]
        assert shown == ([] if isinstance(sight.visible, str) else sight.visible)
        assert page.own_clear_seq == sight.cleared


async def test_mark_read_counts_only_what_counts(world: World, story: Lane) -> None:
    for who in story.people:
        for seq in (1, 9, 21, 40):
            story.do(story.read(who, seq))
    await story.play(world)


def queries(lane: Lane, sight: Sight) -> internal_pb2.ConversationStatesRequest:
    query = internal_pb2.ConversationQuery(conversation_id=lane.group, read_seq=sight.read)
    return internal_pb2.ConversationStatesRequest(
        tenant_id=TENANT, user_id=sight.who, conversations=[query], with_preview=True
    )


async def test_conversation_states_show_the_newest_visible_message(world: World, story: Lane) -> None:
    for who in story.people:
        sight = expected_sight(story.model, who)
        answer = await world.internal.ConversationStates(queries(story, sight), timeout=SECONDS)
        (state,) = answer.states
        entry = state.entry
        assert (entry.head_seq, entry.unread_count) == (sight.head_seen, sight.unread)
        assert entry.HasField("preview") == bool(sight.head_seen)
        if sight.head_seen:
            preview = convert.message(entry.preview)
            assert (preview.seq, told_entry(preview)) == (sight.head_seen, sight.line[sight.head_seen])


@pytest.mark.parametrize("limit", [1, 3, 1000])
async def test_delivered_page_withholds_what_is_not_visible(world: World, story: Lane, limit: int) -> None:
    for who in story.people:
        sight = expected_sight(story.model, who)
        messages, withheld = [], []
        request = internal_pb2.DeliveredPageRequest(
            tenant_id=TENANT, user_id=who, conversation_id=story.group, limit=limit
        )
        more = True
        while more:
            page = await world.internal.DeliveredPage(request, timeout=SECONDS)
            assert len(page.entries) <= limit
            messages += [convert.message(item.message) for item in page.entries if item.HasField("message")]
            withheld += [convert.seq_range(item.withheld) for item in page.entries if item.HasField("withheld")]
            more, request.after_seq = page.more, page.next_after_seq
        Reader(world, story.group, sight, 0).compare_delivered(messages, withheld)

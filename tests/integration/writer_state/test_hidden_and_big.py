"""What a list asks of a conversation beside its messages: whether it is still hidden, and whether the group is big."""

from __future__ import annotations

import pytest
from tests.integration.writer_state.conftest import Room
from tests.support.chat import ANA, BEN, CARA, user

from qim_common.enums import LeaverHistory
from qim_common.ids import ConversationId
from qim_writer.commands.states import ConversationQuery

pytestmark = pytest.mark.server


async def hide(room: Room, group: ConversationId) -> int:
    """Where Ben's conversation is hidden now."""
    return (await room.state(BEN, group)).newest_delivered


async def hidden(room: Room, group: ConversationId, at: int | None) -> bool:
    """Whether Ben still has it hidden."""
    return (await room.state(BEN, group, hidden=at)).hidden


async def test_a_conversation_is_hidden_until_the_next_ordinary_message(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send(ANA, group)
    at = await hide(room, group)
    assert await hidden(room, group, at)
    assert not await hidden(room, group, None), "nothing is hidden that was not"
    await room.chat.add(group, CARA)
    await room.chat.remove(group, CARA)
    assert await hidden(room, group, at), "who comes and goes shows nothing"
    await room.chat.send(ANA, group)
    assert not await hidden(room, group, at)


async def test_a_group_without_a_message_can_be_hidden(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    at = await hide(room, group)
    assert at == 0
    assert await hidden(room, group, at)
    await room.chat.send(ANA, group)
    assert not await hidden(room, group, at)


async def test_ones_own_message_from_another_device_shows_the_conversation_too(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send(ANA, group)
    at = await hide(room, group)
    await room.chat.send(BEN, group)
    assert not await hidden(room, group, at)


async def test_neither_a_floor_nor_a_clear_hides_a_conversation_again(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send(ANA, group)
    at = await hide(room, group)
    await room.chat.send(ANA, group)
    await room.clear(BEN, group, 0)
    await room.floor(group, 2)
    while await room.states.trim(room.chat.of(group)):
        pass
    assert not await hidden(room, group, at)


async def test_what_came_while_one_was_outside_or_was_the_own_return_shows_nothing(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send(ANA, group)
    at = await hide(room, group)
    await room.chat.remove(group, BEN, leaver=LeaverHistory.NONE)
    await room.chat.send_many(3, ANA, group)
    assert await hidden(room, group, at)
    await room.chat.add(group, BEN)
    assert await hidden(room, group, at)
    await room.chat.add(group, CARA)
    await room.chat.send(ANA, group)
    assert not await hidden(room, group, at)


async def test_a_message_before_the_own_leave_shows_the_conversation(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send(ANA, group)
    at = await hide(room, group)
    await room.chat.send(ANA, group)
    await room.chat.leave(BEN, group)
    assert not await hidden(room, group, at)
    assert await hidden(room, group, await hide(room, group)), "hidden after the leave it stays hidden"


async def test_each_of_many_conversations_is_judged_by_its_own_seq(room: Room) -> None:
    groups = [await room.chat.create(ANA, BEN) for _ in range(5)]
    for number, group in enumerate(groups):
        await room.chat.send_many(number + 1, ANA, group)
    queries = [ConversationQuery(group, 0, at) for group, at in zip(groups, (1, 1, 3, None, 9), strict=True)]
    states = await room.persons.conversations(room.chat.tenant, BEN, queries, with_preview=False)
    assert [state and state.hidden for _, state in states] == [True, False, True, False, True]


async def test_a_state_tells_whether_the_group_is_big(room: Room) -> None:
    """The room's bound is 8."""
    group = await room.chat.create(ANA, *(user(100 + n) for n in range(7)))
    assert not (await room.state(ANA, group)).facts.big
    await room.chat.add(group, BEN)
    assert (await room.state(ANA, group)).facts.big
    await room.chat.remove(group, *(user(100 + n) for n in range(4)))
    assert (await room.state(ANA, group)).facts.big, "not before it falls below half of the bound"
    await room.chat.remove(group, user(104), user(105))
    assert not (await room.state(ANA, group)).facts.big

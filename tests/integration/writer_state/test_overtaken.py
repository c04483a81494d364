"""Between look-ups and commit: the same request elsewhere, other changes of the group, a floor that moves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.integration.writer_state.conftest import Room
from tests.support.chat import ANA, BEN, CARA, Chat, acting

from qim_common.enums import LeaverHistory
from qim_common.ids import ConversationId, TenantId, UserId, uuid7
from qim_common.keys import SENDER_SEGMENT
from qim_writer.commands.change_members import GroupQueues
from qim_writer.commands.create_group import CreateGroup, create_group
from qim_writer.commands.states import ConversationQuery, PersonStates
from qim_writer.domain.policy import GroupSettings, Limits
from qim_writer.domain.visible import UnreadSpan
from qim_writer.storage import Conversation, MessageStore

pytestmark = pytest.mark.server


class _TrimsFirst:
    """A message store whose first unread comes after a removal that was faster than it."""

    def __init__(self, store: MessageStore, room: Room, group: Conversation) -> None:
        self._store = store
        self._room = room
        self._group = group
        self.reads = 0

    async def unread(
        self, tenant: TenantId, spans: Sequence[tuple[ConversationId, UnreadSpan, bytes]]
    ) -> list[int | None]:
        self.reads += 1
        if self.reads == 1:
            await self._room.floor(self._group.id, SENDER_SEGMENT, by=None)
            while await self._room.states.trim(self._group):
                pass
        return await self._store.unread(tenant, spans)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_unread_is_exact_while_the_floor_passes_a_segment_of_the_sender_column(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.preset_column(group, ANA, SENDER_SEGMENT + 10)
    await room.floor(group, SENDER_SEGMENT - 500, by=None)
    racing = _TrimsFirst(room.chat.stores.messages, room, room.chat.of(group))
    persons = PersonStates(room.chat.stores.membership, racing)  # type: ignore[arg-type]
    ((_, state),) = await persons.conversations(room.chat.tenant, ANA, [ConversationQuery(group)], with_preview=False)
    assert state is not None
    assert (racing.reads, state.unread, state.facts.floor) == (2, 0, SENDER_SEGMENT)
    ((_, other),) = await persons.conversations(room.chat.tenant, BEN, [ConversationQuery(group)], with_preview=False)
    assert other is not None
    assert other.unread == 10


async def test_the_same_transfer_twice_at_once_gets_the_first_answer_twice(room: Room) -> None:
    for _ in range(30):
        group, request = await room.chat.create(ANA, BEN), uuid7()
        elsewhere = room.another_writer()
        both = await asyncio.gather(
            room.groups.transfer(acting(ANA), request, group, BEN), elsewhere.transfer(acting(ANA), request, group, BEN)
        )
        assert both[0] == both[1]


async def test_the_same_own_clear_around_a_removal_gets_the_first_answer_twice(room: Room) -> None:
    for _ in range(30):
        group, request = await room.chat.create(ANA, BEN), uuid7()
        await room.chat.send_many(3, ANA, group)

        async def clear(group: ConversationId = group, request: bytes = request) -> int:
            return await room.own_clear(acting(BEN), request, group, 2)

        assert await clear() == 2
        again, _ = await asyncio.gather(clear(), room.chat.remove(group, BEN, leaver=LeaverHistory.NONE))
        assert again == 2


async def test_changes_of_one_writer_wait_for_each_other(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    wanted = [GroupSettings(member_limit=number) for number in range(2, 42)]
    await asyncio.gather(
        *(room.groups.update_settings(room.chat.operator, uuid7(), group, settings) for settings in wanted),
        room.chat.add(group, CARA),
    )
    log = await room.states.state_records(room.chat.of(group), 1, 100)
    assert [record.revision for record in log] == sorted({record.revision for record in log})
    assert len(log) == len(wanted)


async def test_a_creation_repeated_under_other_limits_of_the_deployment_gets_the_first_answer(room: Room) -> None:
    store, request = room.chat.stores.membership, CreateGroup(uuid7(), b"", [BEN, CARA], GroupSettings(member_limit=0))
    first = await create_group(store, Limits(member_limit=50), acting(ANA), request)
    for limits in (Limits(member_limit=60), Limits(member_limit=2), Limits(member_limit=2, member_limit_max=2)):
        assert await create_group(store, limits, acting(ANA), request) == first


async def test_settings_repeated_under_another_default_limit_get_the_first_answer(room: Room) -> None:
    group, request, unset = await room.chat.create(ANA, BEN), uuid7(), GroupSettings(member_limit=0)
    first = await room.groups.update_settings(room.chat.operator, request, group, unset)
    assert first[1].policy.settings.member_limit == room.chat.limits.member_limit
    elsewhere = room.another_writer(Limits(member_limit=77))
    assert await elsewhere.update_settings(room.chat.operator, request, group, unset) == first


async def test_a_queue_that_nobody_waits_in_is_forgotten() -> None:
    queues, group = GroupQueues(), Conversation(TenantId(1), ConversationId(UserId(bytes(16))))
    async with queues.turn(group):
        pass
    assert len(queues) == 0


async def test_who_is_outside_learns_of_nothing_after_the_leave(room: Room) -> None:
    chat: Chat = room.chat
    group = await chat.create(ANA, BEN)
    await chat.send_many(3, ANA, group)
    left = await chat.leave(BEN, group)
    await chat.send_many(5, ANA, group)
    await chat.add(group, CARA)
    await room.floor(group, 0, by=ANA)
    state = await room.state(BEN, group)
    assert state.facts.floor > left.left_at
    assert state.facts.floor_for(state.person) == left.left_at - 1
    assert state.facts.version_for(state.person) == left.ended_version < state.facts.version


async def test_a_revoked_persons_entry_has_an_earliest_seq(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send_many(3, ANA, group)
    await room.chat.remove(group, BEN, leaver=LeaverHistory.NONE)
    state = await room.state(BEN, group)
    assert (state.head, state.unread, state.visible.earliest) == (0, 0, 1)

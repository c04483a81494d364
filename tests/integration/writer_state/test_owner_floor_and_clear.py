"""What changes a group without a seq: ownership, freeze, settings, floor and own clear (design.md, "Decisions between
the sources"), and that readers see it at once, before anything is removed."""

from __future__ import annotations

import pytest
from tests.integration.writer_state.conftest import Room
from tests.support.chat import ANA, BEN, CARA, DAN

from qim_common.enums import LeaverHistory, NewcomerPolicy
from qim_common.errors import (
    GroupFrozen,
    IdempotencyKeyReused,
    NewOwnerNotMember,
    OwnerCannotLeave,
    PermissionDenied,
    QimError,
)
from qim_common.ids import ConversationId, UserId, uuid7
from qim_writer.domain.policy import GroupSettings

pytestmark = pytest.mark.server


async def test_an_owner_may_leave_once_another_member_owns_the_group(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    with pytest.raises(OwnerCannotLeave):
        await room.chat.leave(ANA, group)
    before = await room.chat.version(group)
    assert (await room.transfer(group, BEN, by=ANA)).policy.owner == BEN
    assert (await room.chat.version(group), await room.chat.head(group)) == (before, 0)
    assert (await room.chat.leave(ANA, group)).left_at == 1


@pytest.mark.parametrize("to", [CARA, DAN], ids=["left", "never was in it"])
async def test_only_a_member_becomes_the_owner(room: Room, to: UserId) -> None:
    group = await room.chat.create(ANA, BEN, CARA)
    await room.chat.leave(CARA, group)
    for by in (ANA, None):
        with pytest.raises(NewOwnerNotMember):
            await room.transfer(group, to, by=by)


@pytest.mark.parametrize("by", [BEN, CARA], ids=["member", "stranger"])
async def test_only_the_owner_does_what_the_owner_may(room: Room, by: UserId) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send(ANA, group)
    with pytest.raises(PermissionDenied):
        await room.transfer(group, BEN, by=by)
    with pytest.raises(PermissionDenied):
        await room.floor(group, 1, by=by)
    assert await room.chat.read(ANA, group) == [1]


async def test_a_frozen_group_refuses_its_owner_and_not_an_operator(room: Room) -> None:
    group = await room.chat.create(ANA, BEN, CARA)
    await room.chat.send_many(3, ANA, group)
    await room.freeze(group)
    with pytest.raises(GroupFrozen):
        await room.transfer(group, BEN, by=ANA)
    with pytest.raises(GroupFrozen):
        await room.floor(group, 1, by=ANA)
    assert (await room.transfer(group, BEN)).policy.owner == BEN
    assert (await room.floor(group, 1)).floor == 1
    assert await room.clear(CARA, group, 2) == 2
    assert (await room.chat.leave(CARA, group)).left_at == 4
    await room.freeze(group, frozen=False)
    assert (await room.floor(group, 2, by=BEN)).floor == 2


async def test_the_floor_only_moves_up_and_at_most_to_the_head(room: Room) -> None:
    group = await room.chat.create(ANA)
    await room.chat.send_many(6, ANA, group)
    assert [(await room.floor(group, upto)).floor for upto in (4, 2, 4, 99)] == [4, 4, 4, 6]
    await room.chat.send(ANA, group)
    assert (await room.floor(group, 0)).floor == 7


async def test_the_own_clear_point_only_moves_up_and_at_most_to_the_upper_bound(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send_many(6, ANA, group)
    assert [await room.clear(BEN, group, upto) for upto in (4, 2, 4)] == [4, 4, 4]
    await room.chat.leave(BEN, group)
    await room.chat.send_many(3, ANA, group)
    assert await room.clear(BEN, group, 99) == 6
    assert await room.clear(ANA, group, 99) == 10


async def test_a_clear_point_outlives_a_rejoin(room: Room) -> None:
    everything = GroupSettings(member_limit=10, newcomer=NewcomerPolicy.ALL)
    group = await room.chat.create(ANA, BEN, settings=everything)
    await room.chat.send_many(4, ANA, group)
    await room.clear(BEN, group, 3)
    await room.chat.leave(BEN, group)
    await room.chat.add(group, BEN)
    assert await room.chat.read(BEN, group) == [4, 5, 6]


async def test_a_clear_cuts_every_read_path_of_that_person_at_once(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send_many(5, ANA, group)
    await room.clear(BEN, group, 3)
    for person, seqs in ((BEN, [4, 5]), (ANA, [1, 2, 3, 4, 5])):
        assert await room.chat.read(person, group) == seqs
        assert await room.named(person, group) == seqs
        assert await room.bodies(person, group) == seqs
    assert (await room.state(BEN, group)).unread == 2
    await room.clear(BEN, group, 0)
    state = await room.state(BEN, group)
    assert (state.head, state.preview, state.unread, state.visible.earliest) == (0, None, 0, 6)


async def test_a_floor_cuts_every_read_path_of_everybody_before_a_record_is_gone(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send_many(3, ANA, group)
    await room.chat.add(group, CARA)
    await room.chat.send_many(2, ANA, group)
    await room.floor(group, 5)
    assert (await room.chat.record(group, 1)).seq == 1
    for person, own_join in ((ANA, []), (BEN, []), (CARA, [4])):
        assert await room.chat.read(person, group) == await room.named(person, group) == [6]
        assert await room.bodies(person, group) == [*own_join, 6]
        assert (await room.state(person, group)).unread == (0 if person == ANA else 1)
        assert (await room.state(person, group)).visible.earliest == 6


async def test_who_may_read_nothing_may_clear_nothing(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send_many(3, ANA, group)
    await room.chat.remove(group, BEN, leaver=LeaverHistory.NONE)
    for stranger in (BEN, DAN):
        with pytest.raises(PermissionDenied):
            await room.clear(stranger, group, 1)


async def test_an_id_means_one_content_and_gets_the_first_answer_again(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send_many(5, ANA, group)
    one, two, three = uuid7(), uuid7(), uuid7()
    first = await room.floor(group, 1, request_id=one)
    assert await room.clear(BEN, group, 2, request_id=two) == 2
    owned = await room.transfer(group, BEN, request_id=three)
    await room.floor(group, 3)
    await room.clear(BEN, group, 4)
    await room.transfer(group, ANA)
    assert await room.floor(group, 1, request_id=one) == first
    assert await room.clear(BEN, group, 2, request_id=two) == 2
    assert await room.transfer(group, BEN, request_id=three) == owned
    for other in (
        room.floor(group, 2, request_id=one),
        room.clear(BEN, group, 3, request_id=two),
        room.transfer(group, ANA, request_id=three),
        room.set(group, GroupSettings(member_limit=9), request_id=one),
    ):
        with pytest.raises(IdempotencyKeyReused):
            await other


async def test_a_change_to_what_is_already_so_makes_no_revision(room: Room) -> None:
    group = await room.chat.create(ANA, BEN)
    await room.chat.send(ANA, group)
    settings = GroupSettings(member_limit=7)
    revision = (await room.set(group, settings)).revision
    assert (await room.set(group, settings)).revision == revision
    assert (await room.transfer(group, ANA)).revision == revision
    assert (await room.freeze(group, frozen=False)).revision == revision
    assert (await room.floor(group, 1)).revision == revision + 1
    assert (await room.floor(group, 1)).revision == revision + 1


async def test_an_unknown_group_is_refused_like_a_foreign_one(room: Room) -> None:
    nowhere = ConversationId(b"\x02" + bytes(14) + b"\x09")
    for attempt in (
        room.floor(nowhere, 1),
        room.floor(nowhere, 1, by=ANA),
        room.transfer(nowhere, ANA),
        room.freeze(nowhere),
        room.set(nowhere, GroupSettings(member_limit=5)),
        room.clear(ANA, nowhere, 1),
    ):
        with pytest.raises(QimError) as refused:
            await attempt
        assert type(refused.value) is PermissionDenied

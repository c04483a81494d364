"""The postconditions and errors of the trait GroupMembership (group-membership-contract), one test a clause."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.contract.conftest import Backend
from tests.support.chat import ANA, BEN, CARA, DAN, EVE, Chat, acting, user

from qim_common.enums import LeaverHistory
from qim_common.errors import (
    GroupAlreadyExists,
    InvalidArgument,
    MemberLimitExceeded,
    MembershipVersionExpired,
    PermissionDenied,
    QimError,
)
from qim_common.ids import ConversationId, TenantId, UserId, group_conversation_id
from qim_writer.commands.history import Direction

RAW = b"\0" + bytes(range(1, 16))
CANONICAL = group_conversation_id(RAW)


async def test_raw_and_canonical_group_ids_share_one_key_set(backend: Backend, chat: Chat) -> None:
    """Clause: a wire GroupId goes through strip_kind and group_conversation_id; no second set of keys for raw ids."""
    assert await chat.create(ANA, BEN, group_id=RAW) == CANONICAL
    await chat.add(CANONICAL, CARA)
    await chat.send(ANA, RAW)
    await chat.send(CARA, CANONICAL)
    await chat.leave(BEN, RAW)
    names = await backend.stored_names()
    assert await chat.read(ANA, RAW) == await chat.read(ANA, CANONICAL) == [1, 2, 3, 4]
    assert await chat.present(CARA, RAW) == await chat.present(CARA, CANONICAL)
    assert set(await chat.present(CARA, RAW)) == {ANA, CARA}
    assert not any(RAW.hex().encode() in name for name in names)
    assert any(CANONICAL.hex().encode() in name for name in names)


@pytest.mark.parametrize("again", [RAW, CANONICAL])
async def test_a_group_is_unique_by_its_canonical_id(chat: Chat, again: bytes) -> None:
    """Clause: uniqueness and authorization use (tenant_id, canonical ConversationId): the other spelling names the
    same group."""
    await chat.create(ANA, group_id=RAW)
    with pytest.raises(GroupAlreadyExists):
        await chat.create(BEN, group_id=again)


async def test_groups_of_other_tenants_are_other_groups(backend: Backend, chat: Chat) -> None:
    """Clause: uniqueness and authorization use (tenant_id, canonical ConversationId): the same id and the same people
    in two tenants."""
    elsewhere = Chat(backend.stores, tenant=TenantId(2))
    await chat.create(ANA, BEN, group_id=RAW)
    with pytest.raises(PermissionDenied):
        await elsewhere.read(ANA, CANONICAL)
    await elsewhere.create(ANA, CARA, group_id=RAW)
    await chat.send_many(3, ANA, CANONICAL)
    assert await elsewhere.head(CANONICAL) == 0
    assert set(await chat.present(ANA, RAW)) == {ANA, BEN}
    assert set(await elsewhere.present(ANA, RAW)) == {ANA, CARA}


async def test_creating_makes_the_actor_the_owner_whatever_is_invited(chat: Chat) -> None:
    """Clause: the actor is always put in as the owner: also where the actor is invited, or nobody is."""
    for invited in ((), (BEN, CARA), (BEN, ANA), (ANA,)):
        group = await chat.create(ANA, *invited)
        page = await chat.members.page(acting(ANA), group, 10, "")
        assert {row.user for row in page.rows} == {ANA, *invited}
        assert [row.user for row in page.rows if row.owner] == [ANA]
        assert all(row.stay.joined_at == 0 for row in page.rows)
        assert (page.version, page.count) == (1, len(page.rows))
        assert await chat.head(group) == 0, "initial members make no control message"


async def test_creating_checks_all_invitees_and_the_limit_before_anything_is_written(
    backend: Backend, chat: Chat
) -> None:
    """Clause: all invitees and the member limit are checked in one step: one bad invitee, or one too many, and there
    is no group."""
    before = await backend.stored_names()
    for invited, settings in (((BEN, b"short", CARA), {}), ((BEN, bytes(16)), {}), ((BEN, CARA), {"member_limit": 2})):
        with pytest.raises(InvalidArgument if not settings else MemberLimitExceeded):
            await chat.create(ANA, *invited, group_id=RAW, **settings)  # type: ignore[arg-type]
        with pytest.raises(PermissionDenied):
            await chat.read(ANA, RAW)
    assert await backend.stored_names() == before
    await chat.create(ANA, BEN, CARA, group_id=RAW, member_limit=3)


async def test_an_existing_group_is_never_created_again_and_gets_no_member(chat: Chat) -> None:
    """Clause: an existing group answers AlreadyExists, and never gets a member added: neither from its owner nor from
    anybody else."""
    group = await chat.create(ANA, BEN, group_id=RAW)
    for owner in (ANA, BEN, EVE):
        with pytest.raises(GroupAlreadyExists):
            await chat.create(owner, CARA, DAN, group_id=RAW)
    page = await chat.members.page(acting(ANA), group, 10, "")
    assert {row.user for row in page.rows} == {ANA, BEN}
    assert [row.user for row in page.rows if row.owner] == [ANA]
    assert page.version == 1


async def test_of_many_creators_at_once_one_wins(chat: Chat) -> None:
    """Clause: create_group only creates a canonical group that does not exist."""
    owners = [user(number) for number in range(1, 9)]
    made = await asyncio.gather(*(chat.create(owner, group_id=RAW) for owner in owners), return_exceptions=True)
    winners = [owner for owner, result in zip(owners, made, strict=True) if result == CANONICAL]
    assert len(winners) == 1
    assert sum(isinstance(result, GroupAlreadyExists) for result in made) == 7
    assert await chat.present(winners[0], RAW) == winners


async def test_every_change_of_members_raises_the_version_by_one(chat: Chat) -> None:
    """Clause: every change of members raises MembershipVersion: adding, removing, leaving and returning; many people
    at once too; what changes nobody does not."""
    group = await chat.create(ANA, BEN)
    assert (await chat.add(group, CARA)).version == 2
    assert (await chat.remove(group, CARA)).version == 3
    left = await chat.leave(BEN, group)
    assert left.ended_version == 4
    assert (await chat.add(group, BEN, CARA, DAN, EVE)).version == 5
    assert (await chat.add(group, BEN, CARA)).version == 5
    assert (await chat.remove(group, user(99))).version == 5
    await chat.send_many(3, ANA, group)
    assert await chat.version(group) == 5


async def test_freezing_a_delivery_gives_the_version_of_that_moment(chat: Chat) -> None:
    """Clause: freeze_delivery gives the exact, unchangeable version at the boundary of the commit: a send at that
    version is committed at exactly it, and is refused as soon as somebody came or went."""
    group = await chat.create(ANA, BEN)
    for change in (chat.add, chat.remove):
        _, frozen = await chat.authorization.send(acting(ANA), group)
        sent = await chat.send(ANA, group, expected_version=frozen.version)
        assert sent.version == frozen.version
        assert (await chat.record(group, sent.seq)).membership_version == frozen.version
        await change(group, CARA)
        head = await chat.head(group)
        with pytest.raises(QimError, match="MEMBERSHIP_CHANGED"):
            await chat.send(ANA, group, expected_version=frozen.version)
        assert await chat.head(group) == head


async def _change_at_random(chat: Chat, group: ConversationId, rng: random.Random, times: int) -> None:
    people = [user(number) for number in range(2, 30)]
    for _ in range(times):
        chosen = rng.sample(people, rng.randint(1, 6))
        if rng.random() < 0.6:
            await chat.add(group, *chosen)
        else:
            await chat.remove(group, *chosen)


async def _note_versions(chat: Chat, group: ConversationId, rng: random.Random, times: int) -> dict[int, set[UserId]]:
    """The members of each version, as they were when it was the present one."""
    known = {await chat.version(group): {*await chat.present(ANA, group)}}
    for _ in range(times):
        await _change_at_random(chat, group, rng, 1)
        known[await chat.version(group)] = {*await chat.present(ANA, group)}
    return known


async def test_the_members_at_an_old_version_are_the_same_after_any_later_change(chat: Chat) -> None:
    """Clause: recipients_for_version reads that version only; a recovery does not depend on the present members."""
    group = await chat.create(ANA, BEN, CARA)
    rng = random.Random(3)  # noqa: S311  no secret
    known = await _note_versions(chat, group, rng, 12)
    for _ in range(12):
        await _change_at_random(chat, group, rng, 1)
        for version, members in known.items():
            assert {*await chat.at(group, version)} == members, version


async def test_an_old_version_is_the_same_on_each_mailbox_shard(chat: Chat) -> None:
    """Clause: recipients_for_version of a target shard: the shards put together are the members, none twice."""
    group = await chat.create(ANA, *(user(number) for number in range(2, 40)))
    await chat.remove(group, BEN, CARA)
    whole = await chat.at(group, 1)
    by_shard = [person for shard in range(chat.stores.buckets) for person in await chat.at(group, 1, shard=shard)]
    assert by_shard == whole
    assert len(set(whole)) == 39


async def test_a_version_is_kept_as_long_as_the_log_can_be_replayed(backend: Backend, chat: Chat) -> None:
    """Clause: versions are kept for the whole window in which the log can be replayed: every version from that of the
    oldest dispatch entry on stays what it was; older ones end with MEMBERSHIP_VERSION_EXPIRED, never with other
    members."""
    group = await chat.create(ANA, BEN, CARA)
    rng = random.Random(5)  # noqa: S311  no secret
    known = await _note_versions(chat, group, rng, 10)
    for version, members in known.items():
        assert {*await chat.at(group, version)} == members, "all of the log is there"
    await backend.forget_dispatch(group)
    oldest = (await chat.add(group, user(50))).version
    known |= {oldest: {*await chat.present(ANA, group)}}
    known |= await _note_versions(chat, group, rng, 10)
    expired = []
    for version, members in sorted(known.items()):
        try:
            assert {*await chat.at(group, version)} == members
        except MembershipVersionExpired:
            expired.append(version)
            with pytest.raises(MembershipVersionExpired):
                await chat.members.since(None, chat.tenant, group, version, 100)
    assert expired == list(range(1, len(expired) + 1))
    assert 1 in expired
    assert max(expired) < oldest


async def test_a_version_that_does_not_exist_yet_is_refused(chat: Chat) -> None:
    """Clause: recipients_for_version reads that version only: neither 0 nor a future one stands for the present."""
    group = await chat.create(ANA)
    for version in (0, 2, 2**48 - 1, 2**48, 2**64 - 1):
        with pytest.raises(InvalidArgument):
            await chat.at(group, version)
    with pytest.raises(PermissionDenied):
        await chat.at(group_conversation_id(BEN), 1)


async def _refusals(chat: Chat, who: UserId, group: bytes) -> list[str]:
    """What each of the checks answers somebody outside."""
    actor = acting(who)
    answers = []
    for call in (
        chat.send(actor.user, group),
        chat.authorization.send(actor, group),
        chat.authorization.history(actor, group),
        chat.history.page(actor, group, 0, Direction.OLDER, 10),
        chat.history.named(actor, group, [1]),
        chat.history.range(actor, group),
        chat.members.page(actor, group, 10, ""),
        chat.members.since(actor, chat.tenant, group, 1, 10),
        chat.leave(actor.user, group),
    ):
        with pytest.raises(PermissionDenied) as caught:
            await call
        assert not caught.value.metadata
        assert not caught.value.violations
        answers.append(str(caught.value))
    return answers


async def test_a_stranger_gets_permission_denied_and_no_data(chat: Chat) -> None:
    """Clause: a send, history or member page without a right answers PermissionDenied and tells nothing of members or
    messages: an existing group and an unknown one answer with the same words."""
    group = await chat.create(ANA, BEN)
    await chat.send_many(3, ANA, group)
    assert await _refusals(chat, EVE, group) == await _refusals(chat, EVE, group_conversation_id(DAN))
    assert await chat.head(group) == 3


async def test_a_leaver_gets_permission_denied_for_sends_and_members(chat: Chat) -> None:
    """Clause: a send or member page without a right answers PermissionDenied: history up to the leave goes on."""
    group = await chat.create(ANA, BEN)
    await chat.send_many(3, ANA, group)
    await chat.leave(BEN, group)
    for call in (
        chat.send(BEN, group),
        chat.authorization.send(acting(BEN), group),
        chat.members.page(acting(BEN), group, 10, ""),
        chat.members.since(acting(BEN), chat.tenant, group, 1, 10),
    ):
        with pytest.raises(PermissionDenied):
            await call
    await chat.authorization.history(acting(BEN), group)
    assert await chat.read(BEN, group) == [1, 2, 3]


async def test_somebody_whose_history_was_revoked_gets_permission_denied(chat: Chat) -> None:
    """Clause: history without a right answers PermissionDenied: leaver_history NONE leaves nothing to read."""
    group = await chat.create(ANA, BEN)
    await chat.send_many(3, ANA, group)
    await chat.remove(group, BEN, leaver=LeaverHistory.NONE)
    for call in (chat.authorization.history(acting(BEN), group), chat.read(BEN, group)):
        with pytest.raises(PermissionDenied):
            await call

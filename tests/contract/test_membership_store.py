"""`qim_writer.storage.MembershipStore`: creating, planning and carrying out, on every backend."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contract.conftest import Backend
from tests.contract.one_group import GROUP, LIMITS, POLICY, TAIL, carry_out, create, key
from tests.support.chat import ANA, BEN, CARA, DAN, EVE, TENANT, Chat, user

from qim_common.enums import LeaverHistory, MemberState, NewcomerPolicy
from qim_common.errors import (
    GroupAlreadyExists,
    IdempotencyKeyReused,
)
from qim_common.ids import ZERO_ID, MembershipOp, TenantId, group_conversation_id, uuid7
from qim_common.records import Audience, RecordType
from qim_writer.domain.changes import ChangeRequest, plan_change
from qim_writer.domain.policy import EVERYTHING
from qim_writer.domain.stays import Stay
from qim_writer.storage import ChangeAnswer, Conversation


async def test_a_new_group_has_version_1_no_message_and_its_policy(backend: Backend) -> None:
    store = backend.stores.membership
    answer = await create(store, ANA, BEN, CARA)
    assert replace(answer, time_ms=0) == ChangeAnswer(version=1, seq=0, count=3, changed=3, time_ms=0)
    facts = await store.facts(GROUP, BEN)
    assert facts is not None
    assert (facts.version, facts.revision, facts.generation, facts.member_count) == (1, 1, 0, 3)
    assert (facts.head, facts.floor, facts.newest_broadcast, facts.policy) == (0, 0, 0, POLICY)
    assert facts.created_ms == answer.time_ms > 1_600_000_000_000
    assert facts.person is not None
    assert facts.person.stays == (Stay(0, 0, 0, 1, 0, MemberState.MEMBER),)
    assert facts.person.own_clear == 0


async def test_members_have_sender_ordinals_of_their_own(backend: Backend) -> None:
    store = backend.stores.membership
    await create(store, ANA, BEN)
    await carry_out(store, ChangeRequest(MembershipOp.JOIN, (CARA, DAN)))
    found = [await store.facts(GROUP, person) for person in (ANA, BEN, CARA, DAN)]
    ordinals = {facts.person.ordinal for facts in found if facts is not None and facts.person is not None}
    assert len(ordinals) == 4
    assert bytes(3) not in ordinals, "0 stands for control messages"


async def test_facts_of_somebody_outside_and_of_no_conversation(backend: Backend) -> None:
    store = backend.stores.membership
    assert await store.facts(GROUP, ANA) is None
    await create(store)
    facts = await store.facts(GROUP, EVE)
    assert facts is not None
    assert facts.person is None
    assert await store.facts(Conversation(TenantId(9), GROUP.id), ANA) is None


async def test_looks_keep_the_order_asked_for_and_bring_the_record_at_the_head(backend: Backend, chat: Chat) -> None:
    made = [await chat.create(ANA, *([BEN] if number % 2 else []), group_id=user(number)[:0]) for number in range(5)]
    for number, group in enumerate(made):
        await chat.send_many(number + 1, ANA, group)
    unknown = group_conversation_id(EVE)
    wanted = [made[3], unknown, made[0], made[3], made[1]]
    looks = await backend.stores.membership.looks(TENANT, BEN, wanted)
    assert [look and look.facts.head for look in looks] == [4, None, 1, 4, 2]
    assert [look is not None and look.facts.person is not None for look in looks] == [True, False, False, True, True]
    assert [look and look.newest and look.newest.seq for look in looks] == [4, None, None, 4, 2]
    for look, group in zip(looks, wanted, strict=True):
        if look is not None and look.newest is not None:
            conversation = Conversation(TENANT, group)
            assert look.facts == await backend.stores.membership.facts(conversation, BEN)
            assert [look.newest] == await backend.stores.messages.records(conversation, [look.newest.seq])
    assert await backend.stores.membership.looks(TENANT, BEN, []) == []
    assert len(await backend.stores.membership.looks(TENANT, BEN, made * 60)) == 300


async def test_an_existing_group_is_not_created_again(backend: Backend) -> None:
    store = backend.stores.membership
    await create(store, ANA, BEN)
    with pytest.raises(GroupAlreadyExists):
        await store.create(GROUP, (CARA, DAN), POLICY.with_owner(CARA), key(), big=False)
    page = await store.members_page(GROUP, b"", 10)
    assert page is not None
    assert {entry[2:] for entry in page.entries} == {ANA, BEN}


async def test_a_repeated_create_gets_the_first_answer_also_after_changes(backend: Backend) -> None:
    store = backend.stores.membership
    first_key = key()
    first = await store.create(GROUP, (ANA, BEN), POLICY, first_key, big=False)
    await carry_out(store, ChangeRequest(MembershipOp.JOIN, (CARA,)))
    assert await store.create(GROUP, (ANA, BEN), POLICY, first_key, big=False) == first
    with pytest.raises(IdempotencyKeyReused):
        await store.create(GROUP, (ANA, BEN), POLICY, replace(first_key, digest=b"another!"), big=False)


async def test_planning_starts_from_the_newest_stays_of_the_people_named(backend: Backend) -> None:
    store = backend.stores.membership
    assert (await store.plan_facts(GROUP, (ANA,), key())).state is None
    await create(store, ANA, BEN)
    await carry_out(store, ChangeRequest(MembershipOp.REMOVE, (BEN,)))
    state = (await store.plan_facts(GROUP, (EVE, BEN, ANA), key())).state
    assert state is not None
    assert (state.version, state.policy, state.count, state.big) == (2, POLICY, 1, False)
    assert state.stays[EVE] is None
    assert state.stays[BEN] == Stay(0, 0, 1, 1, 2, MemberState.REMOVED, revoked=True)
    assert state.stays[ANA] == Stay(0, 0, 0, 1, 0, MemberState.MEMBER)


async def test_planning_knows_whether_the_group_is_big(backend: Backend) -> None:
    store = backend.stores.membership
    await create(store, big=True)
    state = (await store.plan_facts(GROUP, (ANA,), key())).state
    assert state is not None
    assert state.big


async def test_a_join_writes_stay_version_event_and_count_at_once(backend: Backend, chat: Chat) -> None:
    store = backend.stores.membership
    await create(store)
    await chat.send_many(5, ANA, GROUP.id)
    answer = await carry_out(store, ChangeRequest(MembershipOp.JOIN, (DAN, CARA)))
    assert answer is not None
    assert replace(answer, time_ms=0) == ChangeAnswer(version=2, seq=6, count=4, changed=2, time_ms=0)
    facts = await store.facts(GROUP, CARA)
    assert facts is not None
    assert facts.person is not None
    assert (facts.version, facts.revision, facts.member_count, facts.head) == (2, 2, 4, 6)
    assert facts.person.stays == (Stay(5, 2, 0, 2, 0, MemberState.MEMBER, keeps_earlier=True),)
    record = await chat.record(GROUP.id, 6)
    assert (record.audience, record.membership_version, record.prev) == (Audience.BROADCAST, 2, 5)
    assert record.time_ms == answer.time_ms
    assert record.tail.type is RecordType.CONTROL
    assert record.tail.body == b"body"


@pytest.mark.parametrize(
    ("newcomer", "last_n", "before", "shows_from"),
    [
        (NewcomerPolicy.SINCE_JOIN, 0, 5, 5),
        (NewcomerPolicy.LAST_N, 3, 5, 2),
        (NewcomerPolicy.LAST_N, 5, 5, 0),
        (NewcomerPolicy.LAST_N, 9, 5, 0),
        (NewcomerPolicy.ALL, 0, 5, 0),
        (NewcomerPolicy.LAST_N, 3, 0, 0),
    ],
)
async def test_a_stay_shows_what_the_plan_says_counted_from_the_join(
    backend: Backend, chat: Chat, newcomer: NewcomerPolicy, last_n: int, before: int, shows_from: int
) -> None:
    store = backend.stores.membership
    policy = replace(POLICY, settings=replace(POLICY.settings, newcomer=newcomer, last_n=last_n))
    assert policy.settings.history_back == (EVERYTHING if newcomer is NewcomerPolicy.ALL else last_n)
    await store.create(GROUP, (ANA,), policy, key(), big=False)
    if before:
        await chat.send_many(before, ANA, GROUP.id)
    await carry_out(store, ChangeRequest(MembershipOp.JOIN, (BEN,)))
    facts = await store.facts(GROUP, BEN)
    assert facts is not None
    assert facts.person is not None
    assert (facts.person.newest.joined_at, facts.person.newest.history_from) == (before, shows_from)


async def test_leaving_and_coming_back_keeps_every_stay_and_the_ordinal(backend: Backend, chat: Chat) -> None:
    store = backend.stores.membership
    await create(store)
    before = await store.facts(GROUP, BEN)
    await carry_out(store, ChangeRequest(MembershipOp.LEAVE, (BEN,), BEN, leaver=LeaverHistory.UNTIL_LEFT))
    await chat.send_many(2, ANA, GROUP.id)
    await carry_out(store, ChangeRequest(MembershipOp.JOIN, (BEN,)))
    await carry_out(store, ChangeRequest(MembershipOp.REMOVE, (BEN,)))
    await carry_out(store, ChangeRequest(MembershipOp.JOIN, (BEN,)))
    facts = await store.facts(GROUP, BEN)
    assert before is not None
    assert before.person is not None
    assert facts is not None
    assert facts.person is not None
    assert facts.person.stays == (
        Stay(0, 0, 1, 1, 2, MemberState.LEFT),
        Stay(3, 0, 5, 3, 4, MemberState.REMOVED, keeps_earlier=True, revoked=True),
        Stay(5, 2, 0, 5, 0, MemberState.MEMBER, keeps_earlier=True),
    )
    assert facts.person.ordinal == before.person.ordinal
    assert facts.person.versions == {1, 2, 3, 4, 5}


async def test_a_plan_that_changes_nobody_takes_no_seq_and_no_version(backend: Backend) -> None:
    store = backend.stores.membership
    await create(store)
    repeated = key()
    answer = await carry_out(store, ChangeRequest(MembershipOp.JOIN, (BEN,)), repeated)
    assert answer is not None
    assert (answer.version, answer.seq, answer.count, answer.changed) == (1, 0, 2, 0)
    await carry_out(store, ChangeRequest(MembershipOp.REMOVE, (BEN,)))
    facts = await store.plan_facts(GROUP, (BEN,), repeated)
    assert facts.answer == answer, "the first answer, whatever came after it"


async def test_a_plan_on_another_version_is_not_carried_out(backend: Backend) -> None:
    store = backend.stores.membership
    await create(store)
    stale = (await store.plan_facts(GROUP, (CARA,), key())).state
    assert stale is not None
    await carry_out(store, ChangeRequest(MembershipOp.JOIN, (DAN,)))
    plan = plan_change(stale, ChangeRequest(MembershipOp.JOIN, (CARA,)), LIMITS)
    assert await store.apply(GROUP, plan, TAIL, key()) is None
    nothing = plan_change(stale, ChangeRequest(MembershipOp.REMOVE, (CARA,)), LIMITS)
    assert await store.apply(GROUP, nothing, TAIL, key()) is None, "not even one that changes nobody"
    facts = await store.facts(GROUP, CARA)
    assert facts is not None
    assert (facts.person, facts.version, facts.head) == (None, 2, 1)


async def test_a_plan_on_another_policy_is_not_carried_out(backend: Backend) -> None:
    store = backend.stores.membership
    await create(store)
    state = (await store.plan_facts(GROUP, (CARA,), key())).state
    assert state is not None
    for other in (POLICY.with_owner(BEN), replace(POLICY, frozen=True)):
        plan = plan_change(state, ChangeRequest(MembershipOp.JOIN, (CARA,)), LIMITS)
        assert await store.apply(GROUP, replace(plan, base=replace(state, policy=other)), TAIL, key()) is None
    facts = await store.facts(GROUP, CARA)
    assert facts is not None
    assert (facts.person, facts.head) == (None, 0)


async def test_a_plan_for_a_group_that_is_not_there_is_not_carried_out(backend: Backend) -> None:
    store = backend.stores.membership
    await create(store)
    state = (await store.plan_facts(GROUP, (CARA,), key())).state
    assert state is not None
    plan = plan_change(state, ChangeRequest(MembershipOp.JOIN, (CARA,)), LIMITS)
    elsewhere = Conversation(TENANT, group_conversation_id(CARA))
    assert await store.apply(elsewhere, plan, TAIL, key()) is None
    assert await store.facts(elsewhere, CARA) is None


async def test_a_repeated_change_has_its_first_answer_before_any_comparison(backend: Backend) -> None:
    store = backend.stores.membership
    await create(store)
    repeated = key()
    state = (await store.plan_facts(GROUP, (CARA,), repeated)).state
    assert state is not None
    plan = plan_change(state, ChangeRequest(MembershipOp.JOIN, (CARA,)), LIMITS)
    first = await store.apply(GROUP, plan, TAIL, repeated)
    await carry_out(store, ChangeRequest(MembershipOp.REMOVE, (CARA,)))
    assert await store.apply(GROUP, plan, TAIL, repeated) == first
    assert (await store.plan_facts(GROUP, (CARA,), repeated)).answer == first
    reused = replace(repeated, digest=b"another!")
    with pytest.raises(IdempotencyKeyReused):
        await store.apply(GROUP, plan, TAIL, reused)
    with pytest.raises(IdempotencyKeyReused):
        await store.plan_facts(GROUP, (CARA,), reused)
    assert (await store.plan_facts(GROUP, (CARA,), replace(repeated, field=uuid7()))).answer is None


async def test_a_new_owner_comes_with_the_change(backend: Backend) -> None:
    store = backend.stores.membership
    await create(store, ANA)
    await carry_out(store, ChangeRequest(MembershipOp.LEAVE, (ANA,), ANA))
    empty = await store.members_page(GROUP, b"", 10)
    assert empty is not None
    assert (empty.count, empty.entries, empty.owner) == (0, (), ZERO_ID)
    await carry_out(store, ChangeRequest(MembershipOp.JOIN, (CARA, BEN)))
    page = await store.members_page(GROUP, b"", 10)
    assert page is not None
    assert (page.count, page.owner) == (2, CARA)

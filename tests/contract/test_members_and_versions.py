"""`qim_writer.storage.MembershipStore`: pages of members, old versions and changes, on every backend."""

from __future__ import annotations

import pytest
from tests.contract.conftest import Backend
from tests.contract.one_group import GROUP, carry_out, create
from tests.support.chat import ANA, BEN, CARA, DAN, EVE, TENANT, Chat, acting, user

from qim_common.errors import (
    InvalidArgument,
    MembershipVersionExpired,
    PermissionDenied,
)
from qim_common.ids import ZERO_ID, MembershipOp, UserId, group_conversation_id
from qim_writer.domain.changes import ChangeRequest
from qim_writer.storage import Conversation


async def test_pages_of_members_are_ascending_and_show_nobody_twice_while_people_come_and_go(backend: Backend) -> None:
    store = backend.stores.membership
    people = [user(number) for number in range(1, 31)]
    await create(store, *people)
    seen: list[bytes] = []
    after = b""
    while True:
        page = await store.members_page(GROUP, after, 7)
        assert page is not None
        seen += page.entries
        assert len(page.stays) == len(page.entries)
        if len(page.entries) < 7:
            break
        after = page.entries[-1]
        last = UserId(page.entries[-1][2:])
        if last != ANA:
            await carry_out(store, ChangeRequest(MembershipOp.REMOVE, (last,)))
            await carry_out(store, ChangeRequest(MembershipOp.JOIN, (last,)))
    assert seen == sorted(set(seen))
    assert {entry[2:] for entry in seen} == set(people)
    assert await store.members_page(Conversation(TENANT, group_conversation_id(EVE)), b"", 7) is None


async def test_members_at_a_version_page_by_page_while_people_come_and_go(backend: Backend) -> None:
    store = backend.stores.membership
    people = [user(number) for number in range(1, 1000)]
    await create(store, *people)
    many = [user(number) for number in range(1000, 1400)]
    await carry_out(store, ChangeRequest(MembershipOp.JOIN, tuple(many[:200])))
    first: list[bytes] = []
    pages = 0
    async for page in store.members_at(GROUP, 1, None):
        pages += 1
        first += page
        await carry_out(store, ChangeRequest(MembershipOp.REMOVE, tuple(people[1::2])))
        await carry_out(store, ChangeRequest(MembershipOp.JOIN, tuple(many[200:])))
    assert pages > 1
    assert first == sorted(first)
    assert {entry[2:] for entry in first} == set(people)
    second = [entry async for page in store.members_at(GROUP, 2, None) for entry in page]
    assert {entry[2:] for entry in second} == {*people, *many[:200]}


async def test_members_at_a_version_behind_very_many_changes(backend: Backend) -> None:
    store = backend.stores.membership
    await create(store, ANA, BEN)
    for _ in range(130):
        await carry_out(store, ChangeRequest(MembershipOp.JOIN, (CARA,)))
        await carry_out(store, ChangeRequest(MembershipOp.REMOVE, (CARA,)))
    for version, members in ((1, {ANA, BEN}), (2, {ANA, BEN, CARA}), (3, {ANA, BEN}), (260, {ANA, BEN, CARA})):
        found = [entry[2:] async for page in store.members_at(GROUP, version, None) for entry in page]
        assert len(found) == len(set(found))
        assert set(found) == members, version


async def test_changes_since_a_version_are_dense_and_as_many_as_asked_for(backend: Backend) -> None:
    store = backend.stores.membership
    await create(store, ANA, BEN)
    await carry_out(store, ChangeRequest(MembershipOp.JOIN, (DAN, CARA), EVE))
    await carry_out(store, ChangeRequest(MembershipOp.LEAVE, (BEN,), BEN))
    await carry_out(store, ChangeRequest(MembershipOp.REMOVE, (CARA,)))
    found = await store.changes_since(GROUP, 1, 10)
    assert found is not None
    assert found.current == 4
    assert [(c.version, c.op, c.seq, c.actor, c.users) for c in found.changes] == [
        (2, MembershipOp.JOIN, 1, EVE, (CARA, DAN)),
        (3, MembershipOp.LEAVE, 2, BEN, (BEN,)),
        (4, MembershipOp.REMOVE, 3, ZERO_ID, (CARA,)),
    ]
    assert [change.time_ms for change in found.changes] == sorted(change.time_ms for change in found.changes)
    part = await store.changes_since(GROUP, 2, 1)
    assert part is not None
    assert [change.version for change in part.changes] == [3]
    present = await store.changes_since(GROUP, 4, 1)
    assert present is not None
    assert (present.changes, present.current) == ((), 4)


async def test_versions_that_are_none_or_gone_are_told_apart(backend: Backend) -> None:
    store = backend.stores.membership
    unknown = Conversation(TENANT, group_conversation_id(EVE))
    assert await store.changes_since(unknown, 1, 10) is None
    with pytest.raises(PermissionDenied):
        await anext(aiter(store.members_at(unknown, 1, None)))
    await create(store)
    for version in (0, 2):
        with pytest.raises(InvalidArgument):
            await store.changes_since(GROUP, version, 10)
        with pytest.raises(InvalidArgument):
            await anext(aiter(store.members_at(GROUP, version, None)))
    await carry_out(store, ChangeRequest(MembershipOp.JOIN, (CARA,)))
    await backend.forget_dispatch(GROUP.id)
    for _ in range(4):
        await carry_out(store, ChangeRequest(MembershipOp.JOIN, (DAN,)))
        await carry_out(store, ChangeRequest(MembershipOp.REMOVE, (DAN,)))
    with pytest.raises(MembershipVersionExpired):
        await store.changes_since(GROUP, 1, 10)
    with pytest.raises(MembershipVersionExpired):
        await anext(aiter(store.members_at(GROUP, 1, None)))


async def test_an_actor_reads_pages_with_tokens_of_their_own(chat: Chat) -> None:
    group = await chat.create(ANA, *(user(number) for number in range(2, 12)))
    assert sorted(await chat.present(ANA, group, size=3)) == [user(number) for number in range(1, 12)]
    page = await chat.members.page(acting(ANA), group, 3, "")
    with pytest.raises(Exception, match="PAGE_TOKEN_INVALID"):
        await chat.members.page(acting(BEN), group, 3, page.next_token)

"""The errors of the trait GroupMembership (group-membership-contract), one test a clause."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.conftest import Backend
from tests.support.chat import ANA, BEN, CARA, DAN, EVE, Chat, user

from qim_common.errors import (
    InternalIdentityRequired,
    MemberLimitExceeded,
    PermissionDenied,
    RoleNotAllowed,
)
from qim_common.identity import Peer, Role
from qim_common.ids import uuid7
from qim_common.roles import ADMIN_CHANGE_MEMBERS, CALLERS, caller_kind

RAW = b"\0" + bytes(range(1, 16))


async def test_a_batch_above_the_limit_is_refused_whole(chat: Chat) -> None:
    """Clause: MemberLimitExceeded refuses the whole batch, never a part of it: nobody of it is added, no seq and no
    version is taken, and a batch that fits is taken afterwards."""
    group = await chat.create(ANA, BEN, member_limit=4)
    with pytest.raises(MemberLimitExceeded):
        await chat.add(group, CARA, DAN, EVE)
    assert set(await chat.present(ANA, group)) == {ANA, BEN}
    assert (await chat.version(group), await chat.head(group)) == (1, 0)
    assert (await chat.add(group, CARA, DAN)).count == 4
    with pytest.raises(MemberLimitExceeded):
        await chat.create(ANA, BEN, CARA, DAN, EVE, group_id=RAW, member_limit=4)
    with pytest.raises(PermissionDenied):
        await chat.present(ANA, RAW)


async def test_of_two_batches_at_the_limit_exactly_one_wins(backend: Backend, chat: Chat) -> None:
    """Clause: MemberLimitExceeded refuses the whole batch: also from two writers at once, which do not queue behind
    each other."""
    other = Chat(backend.stores)
    for _ in range(5):
        group = await chat.create(ANA, member_limit=4)
        results = await asyncio.gather(
            chat.add(group, BEN, CARA, DAN), other.add(group, EVE, user(6), user(7)), return_exceptions=True
        )
        assert sum(isinstance(result, MemberLimitExceeded) for result in results) == 1
        won = {BEN, CARA, DAN} if isinstance(results[1], MemberLimitExceeded) else {EVE, user(6), user(7)}
        assert set(await chat.present(ANA, group)) == {ANA, *won}


async def test_a_refused_change_leaves_no_trace_and_may_be_tried_again(chat: Chat) -> None:
    """Errors are refusals: the same request id is judged anew once there is room (contracts.md, "Idempotency")."""
    group = await chat.create(ANA, BEN, member_limit=2)
    request_id = uuid7()
    with pytest.raises(MemberLimitExceeded):
        await chat.add(group, CARA, request_id=request_id)
    await chat.remove(group, BEN)
    added = await chat.add(group, CARA, request_id=request_id)
    assert (added.changed, added.seq) == (1, 2)


@pytest.mark.parametrize("method", sorted(name for name, row in CALLERS.items() if Role.ADMIN in row))
@pytest.mark.parametrize("has_actor", [False, True])
def test_a_missing_internal_identity_never_falls_back_to_an_end_users(method: str, has_actor: bool) -> None:
    """Clause: InternalIdentityRequired is an error at the boundary of the call, never a fall-back to what an end user
    may do: a call for principals is served for no other identity, and one with an actor instead is refused."""
    for role in Role:
        with pytest.raises((InternalIdentityRequired, RoleNotAllowed)) as caught:
            caller_kind(method, Peer("example.org", role, "x"), has_actor=has_actor, has_principal=False)
        if method == ADMIN_CHANGE_MEMBERS or (role is Role.ADMIN and not has_actor):
            assert isinstance(caught.value, InternalIdentityRequired), "before the role table's reason"

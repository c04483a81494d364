"""A refused send takes no seq and changes nothing, whatever the reason (design.md invariant 1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.chat import ANA, BEN, CARA, EVE, Chat, Sent
from tests.support.redis_stores import RedisStores

from qim_common.errors import (
    GroupFrozen,
    IdempotencyKeyReused,
    MembershipChanged,
    PermissionDenied,
    QimError,
    RequestTooOld,
)
from qim_common.ids import ConversationId, UserId, group_conversation_id, uuid7
from qim_writer.domain.policy import Policy

pytestmark = pytest.mark.server

Refused = tuple[UserId, bytes, dict[str, Any]]
Prepare = Callable[[RedisStores, Chat, ConversationId], Awaitable[Refused]]


async def a_stranger(stores: RedisStores, chat: Chat, group: ConversationId) -> Refused:
    return EVE, group, {}


async def a_leaver(stores: RedisStores, chat: Chat, group: ConversationId) -> Refused:
    await chat.leave(BEN, group)
    return BEN, group, {}


async def a_removed_one(stores: RedisStores, chat: Chat, group: ConversationId) -> Refused:
    await chat.remove(group, BEN)
    return BEN, group, {}


async def to_an_unknown_group(stores: RedisStores, chat: Chat, group: ConversationId) -> Refused:
    unknown = group_conversation_id(EVE)
    with pytest.raises(PermissionDenied):
        await chat.send(ANA, unknown)  # the bucket notes when it was first used
    return ANA, unknown, {}


async def to_a_frozen_group(stores: RedisStores, chat: Chat, group: ConversationId) -> Refused:
    keys = stores.keys(group)
    policy = Policy.unpack(await stores.call("HGET", keys.grpmeta, "policy"))
    await stores.call("HSET", keys.grpmeta, "policy", replace(policy, frozen=True).pack())
    return ANA, group, {}


async def with_a_version_that_was(stores: RedisStores, chat: Chat, group: ConversationId) -> Refused:
    await chat.add(group, CARA)
    return ANA, group, {"expected_version": 1}


async def with_a_version_to_come(stores: RedisStores, chat: Chat, group: ConversationId) -> Refused:
    return ANA, group, {"expected_version": 2}


async def with_an_id_of_other_content(stores: RedisStores, chat: Chat, group: ConversationId) -> Refused:
    message_id = uuid7()
    await chat.send(ANA, group, message_id=message_id)
    return ANA, group, {"message_id": message_id, "custom_type": "app.other"}


async def with_an_id_too_old(stores: RedisStores, chat: Chat, group: ConversationId) -> Refused:
    await stores.call("HSET", stores.bucket(group).meta, "low", await stores.now_ms())
    return ANA, group, {"message_id": bytes.fromhex("018f0000000070008000000000000001")}


@pytest.mark.parametrize(
    ("prepare", "error"),
    [
        (a_stranger, PermissionDenied),
        (a_leaver, PermissionDenied),
        (a_removed_one, PermissionDenied),
        (to_an_unknown_group, PermissionDenied),
        (to_a_frozen_group, GroupFrozen),
        (with_a_version_that_was, MembershipChanged),
        (with_a_version_to_come, MembershipChanged),
        (with_an_id_of_other_content, IdempotencyKeyReused),
        (with_an_id_too_old, RequestTooOld),
    ],
)
async def test_a_refused_send_changes_nothing(
    stores: RedisStores, chat: Chat, prepare: Prepare, error: type[QimError]
) -> None:
    group = await chat.create(ANA, BEN)
    await chat.send(ANA, group)
    who, where, fields = await prepare(stores, chat, group)
    before = await stores.everything()
    outcomes = await chat.outcomes((who, where, fields), (who, where, {**fields, "body": b"another"}))
    assert [type(outcome) for outcome in outcomes] == [error, error]
    assert await stores.everything() == before


async def test_refused_and_accepted_sends_of_one_call_leave_no_gap(stores: RedisStores, chat: Chat) -> None:
    group, frozen = await chat.create(ANA, BEN), await chat.create(ANA, BEN)
    await to_a_frozen_group(stores, chat, frozen)
    batch: list[Refused] = []
    for _ in range(20):
        batch += [
            (ANA, group, {}),
            (EVE, group, {}),
            (BEN, frozen, {}),
            (BEN, group, {"expected_version": 9}),
            (BEN, group, {"expected_version": 1}),
        ]
    outcomes = await chat.outcomes(*batch)
    assert [outcome.seq for outcome in outcomes if isinstance(outcome, Sent)] == list(range(1, 41))
    assert await chat.head(frozen) == 0
    assert await stores.call("HLEN", stores.keys(group).msgrec) == 40

"""Direct conversations below the wire: what the first send writes, and what batches make of it."""

from __future__ import annotations

import pytest
from tests.support.chat import ANA, BEN, CARA, TENANT, Chat, Sent
from tests.support.redis_stores import RedisStores

from qim_common.enums import MemberState
from qim_common.errors import PermissionDenied
from qim_common.ids import direct_conversation_id, person_bucket
from qim_writer.domain.policy import NOBODY
from qim_writer.domain.stays import Stay

pytestmark = pytest.mark.server

DIRECT = direct_conversation_id(TENANT, ANA, BEN)


async def test_the_first_send_writes_both_stays_and_version_1(stores: RedisStores, chat: Chat) -> None:
    sent = await chat.send(BEN, peer=ANA)
    assert (sent.seq, sent.version, sent.generation) == (1, 1, 0)
    ordinals = set()
    for person in (ANA, BEN):
        facts = await stores.membership.facts(chat.of(DIRECT), person)
        assert facts is not None
        assert facts.person is not None
        assert (facts.version, facts.revision, facts.member_count, facts.head) == (1, 1, 2, 1)
        assert (facts.policy.owner, facts.policy.frozen) == (NOBODY, False)
        assert facts.created_ms <= sent.time_ms
        assert facts.person.stays == (Stay(0, 0, 0, 1, 0, MemberState.MEMBER),)
        ordinals.add(facts.person.ordinal)
    assert ordinals == {b"\0\0\1", b"\0\0\2"}
    entries = await stores.call("ZRANGE", stores.keys(DIRECT).grpmem, 0, -1)
    assert sorted(entries) == sorted(
        person_bucket(TENANT, person, 256).to_bytes(2, "big") + person for person in (ANA, BEN)
    )


async def test_the_sender_column_holds_who_wrote_what(stores: RedisStores, chat: Chat) -> None:
    await chat.outcomes((BEN, b"", {"peer": ANA}), (ANA, b"", {"peer": BEN}), (BEN, DIRECT, {}))
    assert await stores.call("GET", stores.keys(DIRECT).msgsnd(0)) == b"\0\0\2\0\0\1\0\0\2"


async def test_the_version_stays_1_for_ever(chat: Chat) -> None:
    await chat.send(ANA, peer=BEN)
    assert (await chat.send(BEN, DIRECT, expected_version=1)).version == 1
    for version in (2, 3):
        with pytest.raises(Exception, match="MEMBERSHIP_CHANGED"):
            await chat.send(BEN, DIRECT, expected_version=version)


async def test_before_the_first_send_everything_about_it_is_denied(stores: RedisStores, chat: Chat) -> None:
    for call in (chat.read(ANA, DIRECT), chat.send(ANA, DIRECT), chat.at(DIRECT, 1)):
        with pytest.raises(PermissionDenied):
            await call
    assert await stores.call("KEYS", f"*{DIRECT.hex()}*") == []


async def test_a_stranger_in_the_same_call_as_the_first_send_stays_outside(chat: Chat) -> None:
    outcomes = await chat.outcomes((CARA, DIRECT, {}), (ANA, b"", {"peer": BEN}), (CARA, DIRECT, {}))
    assert isinstance(outcomes[0], PermissionDenied)
    assert isinstance(outcomes[1], Sent)
    assert isinstance(outcomes[2], PermissionDenied)
    assert outcomes[1].seq == 1


async def test_a_send_without_the_peer_before_the_first_one_is_denied_in_any_batch(chat: Chat) -> None:
    outcomes = await chat.outcomes((ANA, DIRECT, {}), (ANA, b"", {"peer": BEN}), (ANA, DIRECT, {}))
    assert isinstance(outcomes[0], PermissionDenied)
    assert [outcome.seq for outcome in outcomes[1:] if isinstance(outcome, Sent)] == [1, 2]


async def test_a_peer_named_by_a_refused_send_creates_nothing_for_its_neighbours(chat: Chat) -> None:
    outcomes = await chat.outcomes((ANA, b"", {"peer": BEN, "expected_version": 5}), (BEN, DIRECT, {}))
    assert not any(isinstance(outcome, Sent) for outcome in outcomes)
    assert await chat.stores.membership.facts(chat.of(DIRECT), ANA) is None


async def test_conversations_of_other_pairs_and_tenants_are_apart(stores: RedisStores, chat: Chat) -> None:
    elsewhere = Chat(stores, tenant=type(TENANT)(2))
    await chat.send(ANA, peer=BEN)
    await chat.send(ANA, peer=CARA)
    await elsewhere.send(ANA, peer=BEN)
    assert await chat.head(DIRECT) == 1
    with pytest.raises(PermissionDenied):
        await elsewhere.read(ANA, DIRECT)
    assert await elsewhere.read(BEN, direct_conversation_id(elsewhere.tenant, ANA, BEN)) == [1]

"""`qim_writer.storage.CommitLog` and `MessageStore`, on every backend."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.chat import ANA, BEN, CARA, DAN, EVE, TENANT, Chat, Outcomes, Sent, user

from qim_common.errors import (
    IdempotencyKeyReused,
    MembershipChanged,
    PermissionDenied,
    QimError,
)
from qim_common.ids import (
    UserId,
    direct_conversation_id,
    group_conversation_id,
    person_bucket,
    uuid7,
)
from qim_common.records import Audience, RecordType


def kinds(outcomes: list[Sent | QimError]) -> list[object]:
    """Seqs, and the classes of refusals."""
    return [outcome.seq if isinstance(outcome, Sent) else type(outcome) for outcome in outcomes]


async def test_messages_take_the_seqs_from_1_without_a_gap_in_the_order_of_submission(chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    first = await chat.send_many(40, ANA, group)
    second = await chat.send_many(3, BEN, group)
    assert [sent.seq for sent in first + second] == list(range(1, 44))
    for seq in (1, 17, 40):
        assert (await chat.record(group, seq)).tail.body == b"%d" % (seq - 1)


async def test_the_answer_is_what_the_record_says(chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    await chat.add(group, CARA)
    message_id = uuid7()
    sent = await chat.send(BEN, group, message_id=message_id, custom_type="app.x", body=b"")
    record = await chat.record(group, sent.seq)
    assert (record.seq, record.time_ms, record.membership_version, record.generation) == (
        sent.seq,
        sent.time_ms,
        sent.version,
        sent.generation,
    )
    assert (sent.seq, sent.version, sent.generation) == (2, 2, 0)
    assert (record.audience, record.prev) == (Audience.BROADCAST, 1)
    tail = record.tail
    assert (tail.type, tail.sender, tail.client_message_id) == (RecordType.ORDINARY, BEN, message_id)
    assert (tail.custom_type, tail.body) == ("app.x", b"")


async def test_times_never_fall_within_a_conversation(chat: Chat) -> None:
    group = await chat.create(ANA)
    times = [sent.time_ms for _ in range(20) for sent in await chat.send_many(2, ANA, group)]
    assert times == sorted(times)


async def test_refusals_take_no_seq_and_do_not_disturb_their_neighbours(chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    reused = uuid7()
    await chat.send(ANA, group, message_id=reused)
    outcomes = await chat.outcomes(
        (ANA, group, {}),
        (EVE, group, {}),
        (BEN, group, {"expected_version": 7}),
        (ANA, group, {"message_id": reused, "body": b"other"}),
        (BEN, group, {"expected_version": 1}),
        (ANA, group_conversation_id(EVE), {}),
        (ANA, group, {}),
    )
    assert kinds(outcomes) == [2, PermissionDenied, MembershipChanged, IdempotencyKeyReused, 3, PermissionDenied, 4]
    changed = outcomes[2]
    assert isinstance(changed, MembershipChanged)
    assert changed.metadata == {"membership_version": "1"}
    assert await chat.head(group) == 4


async def test_the_same_id_gets_the_first_answer_for_ever(chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    again = {"message_id": uuid7(), "body": b"once"}
    first = await chat.send(BEN, group, **again)
    await chat.send(ANA, group)
    await chat.leave(BEN, group)
    assert await chat.send(BEN, group, **again) == first, "looked up before any check"
    with pytest.raises(PermissionDenied):
        await chat.send(BEN, group)
    assert await chat.head(group) == 3


async def test_the_same_id_twice_in_one_batch_takes_one_seq(chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    again, other = {"message_id": uuid7()}, {"message_id": uuid7()}
    outcomes = await chat.outcomes(
        (ANA, group, again),
        (ANA, group, other),
        (ANA, group, again),
        (ANA, group, {**other, "body": b"other"}),
        (BEN, group, again),
        (ANA, group, again),
    )
    assert kinds(outcomes) == [1, 2, 1, IdempotencyKeyReused, 3, 1]
    assert outcomes[0] == outcomes[2] == outcomes[5]


async def test_a_refused_id_is_judged_anew(chat: Chat) -> None:
    group = await chat.create(ANA)
    again = {"message_id": uuid7()}
    outcomes = await chat.outcomes((BEN, group, again), (BEN, group, again))
    assert kinds(outcomes) == [PermissionDenied, PermissionDenied]
    await chat.add(group, BEN)
    assert (await chat.send(BEN, group, **again)).seq == 2


async def test_the_same_id_of_another_person_or_conversation_is_another_message(chat: Chat) -> None:
    group, other = await chat.create(ANA, BEN), await chat.create(ANA)
    again = {"message_id": uuid7()}
    outcomes = await chat.outcomes((ANA, group, again), (BEN, group, again), (ANA, other, again))
    assert kinds(outcomes) == [1, 2, 1]


async def test_batches_at_once_leave_no_gap_and_keep_each_batch_in_order(chat: Chat) -> None:
    groups = [await chat.create(ANA, BEN, CARA) for _ in range(3)]
    sinks: list[Outcomes] = []
    for number in range(30):
        sink = Outcomes(36)
        sends = [
            chat.prepared(sink, index, (ANA, BEN, CARA)[number % 3], groups[index % 3], body=b"%d" % number)
            for index in range(36)
        ]
        chat.stores.commits.submit(sends)
        sinks.append(sink)
    by_group: list[list[int]] = [[], [], []]
    for sink in sinks:
        for index, outcome in enumerate(await sink.wait()):
            assert isinstance(outcome, Sent)
            by_group[index % 3].append(outcome.seq)
    for seqs in by_group:
        assert seqs == list(range(1, 361)), "in the order of submission"


async def test_a_send_racing_leaves_is_delivered_exactly_below_them(chat: Chat) -> None:
    people = [user(number) for number in range(10, 50)]
    group = await chat.create(ANA, *people)
    leaving = asyncio.gather(*(chat.leave(person, group) for person in people))
    sent: list[Sent] = []
    while not leaving.done():
        sent.append(await chat.send(ANA, group))
    left = {person: stay.left_at for person, stay in zip(people, await leaving, strict=True)}
    sent.append(await chat.send(ANA, group))
    assert sorted([*left.values(), *(each.seq for each in sent)]) == list(range(1, len(left) + len(sent) + 1))
    for each in sent:
        audience = set(await chat.at(group, each.version))
        assert audience == {ANA, *(person for person, seq in left.items() if each.seq < seq)}


async def test_the_first_send_creates_a_direct_conversation_from_either_side(chat: Chat) -> None:
    for sender, peer in ((ANA, BEN), (DAN, CARA)):
        conversation = direct_conversation_id(TENANT, sender, peer)
        with pytest.raises(PermissionDenied):
            await chat.send(sender, conversation)
        with pytest.raises(PermissionDenied):
            await chat.read(sender, conversation)
        assert (await chat.send(sender, peer=peer)).seq == 1
        assert (await chat.send(peer, peer=sender)).seq == 2
        assert (await chat.send(peer, conversation)).seq == 3
        assert await chat.read(sender, conversation) == await chat.read(peer, conversation) == [1, 2, 3]
        assert await chat.at(conversation, 1) == sorted(
            (sender, peer), key=lambda person: chat_shard(chat, person) + person
        )
        with pytest.raises(PermissionDenied):
            await chat.send(EVE, conversation)
        with pytest.raises(PermissionDenied):
            await chat.read(EVE, conversation)


def chat_shard(chat: Chat, person: bytes) -> bytes:
    """The person's mailbox shard, u16be."""
    return person_bucket(chat.tenant, UserId(person), chat.stores.buckets).to_bytes(2, "big")


async def test_notes_to_oneself_have_one_stay_and_one_member(chat: Chat) -> None:
    conversation = direct_conversation_id(TENANT, ANA, ANA)
    assert (await chat.send(ANA, peer=ANA)).version == 1
    facts = await chat.stores.membership.facts(chat.of(conversation), ANA)
    assert facts is not None
    assert facts.person is not None
    assert (facts.member_count, facts.version, len(facts.person.stays)) == (1, 1, 1)
    assert await chat.at(conversation, 1) == [ANA]
    with pytest.raises(PermissionDenied):
        await chat.send(BEN, conversation)


async def test_a_first_send_that_is_refused_creates_nothing(chat: Chat) -> None:
    conversation = direct_conversation_id(TENANT, ANA, BEN)
    with pytest.raises(MembershipChanged):
        await chat.send(ANA, peer=BEN, expected_version=2)
    assert await chat.stores.membership.facts(chat.of(conversation), ANA) is None
    assert (await chat.send(ANA, peer=BEN, expected_version=1)).seq == 1

"""Sends on CQL alone: what holds, and what is lost where a writer dies between two of its steps."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from tests.support.chat import ANA, BEN, CARA, Chat, Outcomes, Sent, acting, user
from tests.support.scylla import open_stores

from qim_common.cassandra import CassandraSession
from qim_common.errors import IdempotencyKeyReused, Overloaded, PermissionDenied, QimError, RequestTooOld
from qim_common.ids import ConversationId, TenantId, direct_conversation_id, uuid7
from qim_session.backends.cassandra_sets import CassandraConversationSets
from qim_writer.backends.scylla import commit_log
from qim_writer.backends.scylla.conversations import Conversations
from qim_writer.backends.scylla.requests import Answer, Requests
from qim_writer.commands.delivered import DeliveredPages
from qim_writer.commands.history import Direction
from qim_writer.commands.states import ConversationQuery, PersonStates


@pytest.fixture
def other(scylla_session: CassandraSession, tenant: TenantId) -> Chat:
    """A second writer, which shares only the tables."""
    return Chat(open_stores(scylla_session), tenant=tenant)


async def test_two_writers_at_once_give_one_conversation_gapless_seqs(chat: Chat, other: Chat) -> None:
    group = await chat.create(ANA, BEN)
    batches = await asyncio.gather(
        *(writer.send_many(40, sender, group) for writer, sender in ((chat, ANA), (other, BEN), (chat, BEN))),
    )

    sent = sorted((each for batch in batches for each in batch), key=lambda each: each.seq)
    assert [each.seq for each in sent] == list(range(1, 121))
    assert all(before.time_ms <= after.time_ms for before, after in pairwise(sent))
    assert {(each.version, each.generation) for each in sent} == {(1, 0)}
    # What one writer was given for one batch is in the order of the batch.
    assert all(batch == sorted(batch, key=lambda each: each.seq) for batch in batches)
    assert await other.read(ANA, group) == list(range(1, 121))


async def test_a_retry_gets_the_first_answer_from_any_writer(chat: Chat, other: Chat) -> None:
    group, message_id = await chat.create(ANA, BEN), uuid7()
    first = await chat.send(ANA, group, message_id=message_id)
    await chat.send(BEN, group)

    assert await chat.send(ANA, group, message_id=message_id) == first
    assert await other.send(ANA, group, message_id=message_id) == first
    with pytest.raises(IdempotencyKeyReused):
        await other.send(ANA, group, message_id=message_id, body=b"else")
    assert await chat.read(ANA, group) == [1, 2]


async def test_the_same_id_twice_in_one_batch_takes_one_seq(chat: Chat) -> None:
    group, twice = await chat.create(ANA), {"message_id": uuid7()}
    outcomes = await chat.outcomes((ANA, group, twice), (ANA, group, {}), (ANA, group, twice))
    assert [outcome.seq for outcome in outcomes if isinstance(outcome, Sent)] == [1, 2, 1]
    assert await chat.read(ANA, group) == [1, 2]


async def test_an_id_that_may_have_been_forgotten_is_not_executed(chat: Chat) -> None:
    group = await chat.create(ANA)
    with pytest.raises(RequestTooOld):
        await chat.send(ANA, group, message_id=(1_000).to_bytes(6, "big") + b"\x70\x01\x80" + bytes(7))
    assert await chat.head(group) == 0


async def test_a_version_that_the_sender_names_is_not_compared(chat: Chat) -> None:
    group = await chat.create(ANA)
    assert (await chat.send(ANA, group, expected_version=17)).version == 1


async def test_who_is_outside_sends_and_reads_nothing(chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    outcomes = await chat.outcomes((CARA, group, {}), (ANA, group, {}))
    assert isinstance(outcomes[0], PermissionDenied)
    assert isinstance(outcomes[1], Sent)
    with pytest.raises(PermissionDenied):
        await chat.read(CARA, group)
    with pytest.raises(PermissionDenied):
        await chat.send(ANA, ConversationId(b"\2" + uuid7()[1:]))


async def test_a_writer_that_died_before_the_answers_leaves_seqs_without_messages(
    chat: Chat, scylla_session: CassandraSession
) -> None:
    group = await chat.create(ANA, BEN)
    await chat.send(ANA, group)
    conversations = Conversations(scylla_session)
    row = await conversations.find(chat.of(group))
    assert row is not None
    assert (await conversations.allocate(chat.of(group), row.line, 3)).first == 2

    assert (await chat.send(BEN, group)).seq == 5
    assert await chat.read(ANA, group) == [1, 5]
    # A writer that still believes in the old head takes what follows.
    assert (await conversations.allocate(chat.of(group), row.line, 1)).first == 6


async def test_a_retry_writes_the_message_of_a_writer_that_died_before_it(
    chat: Chat, scylla_session: CassandraSession
) -> None:
    group, message_id = await chat.create(ANA, BEN), uuid7()
    send = chat.prepared(Outcomes(1), 0, ANA, group, message_id=message_id, body=b"late")
    conversations = Conversations(scylla_session)
    row = await conversations.find(chat.of(group))
    assert row is not None
    taken = await conversations.allocate(chat.of(group), row.line, 1)
    answer = Answer(send.key.digest, taken.first, taken.time_ms)
    await Requests(scylla_session).store(chat.of(group), [(send.key.field, answer)])
    assert await chat.read(ANA, group) == []

    assert await chat.send(ANA, group, message_id=message_id, body=b"late") == Sent(1, taken.time_ms, 1, 0)
    assert (await chat.record(group, 1)).tail.body == b"late"


async def test_the_first_send_to_somebody_creates_the_direct_conversation(chat: Chat, other: Chat) -> None:
    direct = direct_conversation_id(chat.tenant, ANA, BEN)
    with pytest.raises(PermissionDenied):
        await chat.send(ANA, direct)
    sent = await asyncio.gather(chat.send(ANA, peer=BEN), other.send(BEN, peer=ANA))
    assert sorted(each.seq for each in sent) == [1, 2]
    assert (await chat.send(BEN, direct)).seq == 3
    assert await chat.read(ANA, direct) == await chat.read(BEN, direct) == [1, 2, 3]
    with pytest.raises(PermissionDenied):
        await chat.read(CARA, direct)
    assert (await chat.send(CARA, peer=CARA)).seq == 1


async def test_creating_twice_is_one_creation_and_another_one_is_refused(chat: Chat, other: Chat) -> None:
    request_id = uuid7()
    first = await chat.create_with_answer(ANA, BEN, CARA, request_id=request_id)
    assert await other.create_with_answer(ANA, BEN, CARA, request_id=request_id) == first
    with pytest.raises(IdempotencyKeyReused):
        await chat.create(ANA, BEN, request_id=request_id)
    with pytest.raises(QimError, match="GROUP_ALREADY_EXISTS"):
        await chat.create(BEN, ANA, group_id=first[0])
    assert sorted(await chat.at(first[0], 1)) == sorted((ANA, BEN, CARA))


async def test_the_conversation_sets_hold_what_the_writer_has_created(
    chat: Chat, scylla_session: CassandraSession
) -> None:
    people = [user(number) for number in range(1, 251)]
    group = await chat.create(*people)
    await chat.send(BEN, peer=ANA)

    sets = CassandraConversationSets(scylla_session)
    assert set(await sets.of(chat.tenant, ANA)) == {group, direct_conversation_id(chat.tenant, ANA, BEN)}
    assert await sets.of(chat.tenant, people[-1]) == [group]
    assert len(await chat.at(group, 1)) == 250


async def test_states_count_unread_without_ones_own_and_tell_the_preview(chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    await chat.send_many(3, ANA, group)
    await chat.send_many(2, BEN, group)
    states = PersonStates(chat.stores.membership, chat.stores.messages)

    queries = [ConversationQuery(group), ConversationQuery(group, read=2), ConversationQuery(b"\2" + uuid7()[1:])]
    found = await states.conversations(chat.tenant, BEN, queries, with_preview=True)
    (_, whole), (_, partly), (_, unknown) = found
    assert whole is not None
    assert partly is not None
    assert (whole.unread, partly.unread, unknown) == (3, 1, None)
    assert whole.preview is not None
    assert (whole.preview.seq, whole.head, whole.newest_delivered) == (5, 5, 5)
    assert whole.last_activity_ms == whole.preview.time_ms

    page = await DeliveredPages(chat.stores.membership, chat.stores.messages).page(chat.tenant, ANA, group, 2, 2)
    assert ([getattr(entry, "seq", 0) for entry in page.entries], page.more, page.waiting) == ([3, 4], True, 3)


async def test_a_long_run_crosses_partitions_and_large_messages_go_whole(chat: Chat) -> None:
    group = await chat.create(ANA)
    sent = await chat.send_many(1_010, ANA, group)
    assert [each.seq for each in sent] == list(range(1, 1_011))
    large = await chat.outcomes(*((ANA, group, {"body": bytes(65_536)}) for _ in range(20)))
    assert all(isinstance(outcome, Sent) for outcome in large)
    page = await chat.history.page(acting(ANA, chat.tenant), group, 990, Direction.NEWER, 30)
    assert [record.seq for record in page.messages] == list(range(990, 1_020))


async def test_more_than_the_queue_holds_is_refused_at_once(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "QUEUE_SENDS", 3)
    group = await chat.create(ANA)
    outcomes = await chat.outcomes(*((ANA, group, {}) for _ in range(5)))
    assert [isinstance(outcome, Overloaded) for outcome in outcomes] == [False, False, False, True, True]
    assert await chat.read(ANA, group) == [1, 2, 3]


async def test_what_nobody_waits_for_any_more_is_not_written(chat: Chat) -> None:
    group = await chat.create(ANA)
    gone, sink = Outcomes(1, expired=True), Outcomes(1)
    chat.stores.commits.submit([chat.prepared(gone, 0, ANA, group), chat.prepared(sink, 0, ANA, group)])
    (outcome,) = await sink.wait()
    assert isinstance(outcome, Sent)
    assert (outcome.seq, gone.answers) == (1, {})

"""Conditional writes whose answer is lost are read back: each run gets its seqs once, whatever became of the write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.support.chat import ANA, BEN, Chat
from tests.support.scylla import open_stores

from qim_common.cassandra import CassandraSession, CassandraUnavailable, OutcomeUnknown, Row, Statement, Value
from qim_common.ids import TenantId, uuid7
from qim_writer.backends.scylla.conversations import Conversations


class LosesAnswers:
    """A session on which the answers of conditional writes are lost.

    Attributes:
        lost: how many answers are still to be lost.
        carries_out: whether those writes reach the cluster.
        late: writes that did not reach it yet.
    """

    def __init__(self, session: CassandraSession, lost: int, *, carries_out: bool) -> None:
        self._session = session
        self.lost = lost
        self.carries_out = carries_out
        self.late: list[tuple[Statement, Sequence[Value]]] = []

    async def prepare(self, *statements: Statement) -> None:
        await self._session.prepare(*statements)

    async def execute(self, statement: Statement, values: Sequence[Value] = (), *, serial: bool = False) -> list[Row]:
        if statement.idempotent or not self.lost:
            return await self._session.execute(statement, values, serial=serial)
        self.lost -= 1
        if self.carries_out:
            await self._session.execute(statement, values)
        else:
            self.late.append((statement, values))
        raise OutcomeUnknown(statement.name)

    async def pages(
        self, statement: Statement, values: Sequence[Value] = (), *, serial: bool = False
    ) -> AsyncIterator[list[Row]]:
        async for rows in self._session.pages(statement, values, serial=serial):
            yield rows

    async def batch(self, statement: Statement, rows: Sequence[Sequence[Value]]) -> None:
        await self._session.batch(statement, rows)

    async def batch_packed(self, statement: Statement, rows: Sequence[Sequence[bytes]]) -> None:
        await self._session.batch_packed(statement, rows)


@pytest.mark.parametrize("carries_out", [True, False], ids=["applied", "not applied"])
async def test_a_run_whose_answer_was_lost_gets_its_seqs_once(
    chat: Chat, scylla_session: CassandraSession, *, carries_out: bool
) -> None:
    group = chat.of(await chat.create(ANA, BEN))
    conversations = Conversations(LosesAnswers(scylla_session, 2, carries_out=carries_out))
    row = await conversations.find(group)
    assert row is not None

    assert (await conversations.allocate(group, row.line, 5)).first == 1
    after = await conversations.find(group, serial=True)
    assert after is not None
    assert (after.line.head, len(after.line.runs)) == (5, 1)


async def test_a_write_that_arrives_late_takes_no_seq_of_its_own(chat: Chat, scylla_session: CassandraSession) -> None:
    group = chat.of(await chat.create(ANA, BEN))
    link = LosesAnswers(scylla_session, 1, carries_out=False)
    conversations = Conversations(link)
    row = await conversations.find(group)
    assert row is not None
    assert (await conversations.allocate(group, row.line, 2)).first == 1

    ((statement, values),) = link.late
    (answer,) = await scylla_session.execute(statement, values)
    assert answer[0] is False
    assert (await conversations.allocate(group, row.line, 1)).first == 3


async def test_sends_go_on_over_lost_answers_while_another_writer_sends(
    chat: Chat, scylla_session: CassandraSession, tenant: TenantId
) -> None:
    group = await chat.create(ANA, BEN)
    lossy = Chat(open_stores(LosesAnswers(scylla_session, 3, carries_out=True)), tenant=tenant)
    batches = await asyncio.gather(lossy.send_many(5, ANA, group), chat.send_many(5, BEN, group))
    more = await lossy.send_many(5, ANA, group)
    assert sorted(each.seq for batch in (*batches, more) for each in batch) == list(range(1, 16))
    assert await chat.read(BEN, group) == list(range(1, 16))


@pytest.mark.parametrize("carries_out", [True, False], ids=["applied", "not applied"])
async def test_a_creation_whose_answer_was_lost_is_one_creation(
    chat: Chat, scylla_session: CassandraSession, tenant: TenantId, *, carries_out: bool
) -> None:
    lossy = Chat(open_stores(LosesAnswers(scylla_session, 1, carries_out=carries_out)), tenant=tenant)
    request_id = uuid7()
    if carries_out:
        group = await lossy.create(ANA, BEN, request_id=request_id)
    else:
        with pytest.raises(CassandraUnavailable):
            await lossy.create(ANA, BEN, request_id=request_id)
        group = await lossy.create(ANA, BEN, request_id=request_id)
    assert (await chat.create_with_answer(ANA, BEN, request_id=request_id))[0] == group
    assert (await chat.send(BEN, group)).seq == 1

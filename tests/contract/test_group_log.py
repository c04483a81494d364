"""The log of changes and the archive's positions: what is written stays, and a lost generation never comes back."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from qim_common.cassandra import CassandraSession
from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId
from qim_common.positions import Position
from qim_common.records import Audience, StateChange
from qim_writer.backends.cassandra.group_log import CassandraGroupLog
from qim_writer.backends.cassandra.positions import CassandraArchivePositions
from qim_writer.domain.group_rows import GroupRow, RowFlags, RowKind
from qim_writer.storage import Conversation
from qim_writer.storage_archive import ArchivePosition, GroupLog

COMMITTED_MS = 1_700_000_000_000


@pytest.fixture
def log(cassandra_session: CassandraSession) -> GroupLog:
    return CassandraGroupLog(cassandra_session)


@pytest.fixture
def hikers(tenant: TenantId) -> Conversation:
    return Conversation(tenant, ConversationId(b"\x02" + os.urandom(15)))


def joined(conversation: Conversation, revision: int, people: int = 2, *, generation: int = 0) -> GroupRow:
    """A row with something in every column."""
    return GroupRow(
        kind=RowKind.MEMBERSHIP,
        operation=MembershipOp.JOIN,
        tenant=conversation.tenant,
        conversation=conversation.id,
        generation=generation,
        revision=revision,
        version=revision,
        head=10 * revision,
        count=people + 3,
        audience=Audience.CONCERNED,
        flags=RowFlags.KEEPS_EARLIER | RowFlags.BIG,
        history_from=2**47,
        floor=3,
        clear=0,
        actor=b"a" * 16,
        policy=bytes(range(37)),
        request_field=b"f" * 16,
        request_digest=b"d" * 8,
        maker="",
        people=tuple(UserId(os.urandom(16)) for _ in range(people)),
        answer=b"answer",
        time_ms=COMMITTED_MS + revision,
    )


def cleared(conversation: Conversation, revision: int) -> GroupRow:
    """A state entry that nobody asked for by an id."""
    return replace(
        joined(conversation, revision, 1),
        kind=RowKind.STATE,
        operation=StateChange.OWN_CLEAR,
        audience=None,
        flags=RowFlags.NONE,
        clear=77,
        actor=bytes(16),
        request_field=b"",
        request_digest=b"",
        answer=b"",
        maker="operator:käthe",
    )


async def rows_of(log: GroupLog, conversation: Conversation, after: int = 0) -> list[GroupRow]:
    return [row async for page in log.rows(conversation, after) for row in page]


async def test_rows_come_back_as_they_were_written(log: GroupLog, hikers: Conversation) -> None:
    rows = [joined(hikers, 1), cleared(hikers, 2), joined(hikers, 3, 1000)]
    await log.append(rows)

    assert await rows_of(log, hikers) == rows


async def test_rows_cross_partitions_and_begin_after_a_revision(log: GroupLog, hikers: Conversation) -> None:
    rows = [joined(hikers, revision) for revision in range(1, 2_102)]
    await log.append(rows)

    assert await rows_of(log, hikers) == rows
    assert await rows_of(log, hikers, 999) == rows[999:]
    assert await rows_of(log, hikers, 2_000) == rows[2_000:]
    assert await rows_of(log, hikers, 2_101) == []


@pytest.mark.parametrize("missing", [1, 2, 1_000, 1_001])
async def test_rows_end_before_the_first_that_is_missing(log: GroupLog, hikers: Conversation, missing: int) -> None:
    rows = [joined(hikers, revision) for revision in range(1, 1_005)]
    await log.append(rows[: missing - 1] + rows[missing:])

    assert await rows_of(log, hikers) == rows[: missing - 1]


async def test_writing_again_changes_nothing(log: GroupLog, hikers: Conversation) -> None:
    rows = [joined(hikers, 1), cleared(hikers, 2)]
    await log.append(rows)
    await log.append(rows[1:])
    await log.append([])

    assert await rows_of(log, hikers) == rows


@pytest.mark.parametrize("generation", [0, 1])
async def test_a_row_of_a_lost_line_does_not_come_back(log: GroupLog, hikers: Conversation, generation: int) -> None:
    lost = joined(hikers, 1, 5)
    new = replace(cleared(hikers, 1), generation=generation, time_ms=lost.time_ms + 1)
    await log.append([new])
    await log.append([lost])

    assert await rows_of(log, hikers) == [new]


@pytest.mark.parametrize("end", [0, 1, 3, 999, 1_000])
async def test_what_a_lost_line_left_behind_is_removed_and_stays_so(
    log: GroupLog, hikers: Conversation, end: int
) -> None:
    rows = [joined(hikers, revision) for revision in range(1, 1_006)]
    later = [replace(row, people=(), time_ms=COMMITTED_MS + 9_000) for row in rows[end:]]
    await log.append(rows)
    await log.remove_after(hikers, end, 1_005, COMMITTED_MS + 9_000)
    await log.remove_after(hikers, end, 0, COMMITTED_MS + 9_000)
    assert await rows_of(log, hikers) == rows[:end]

    await log.append(rows)
    assert await rows_of(log, hikers) == rows[:end]
    await log.append(later)
    assert await rows_of(log, hikers) == rows[:end] + later


async def test_rows_of_many_conversations_are_kept_apart(log: GroupLog, tenant: TenantId) -> None:
    groups = [Conversation(tenant, ConversationId(b"\x02" + os.urandom(15))) for _ in range(20)]
    rows = [joined(group, revision) for revision in (1, 2) for group in groups]
    await log.append(rows)

    for group in groups:
        assert await rows_of(log, group) == [row for row in rows if row.conversation == group.id]


async def test_positions_only_move_forward(cassandra_session: CassandraSession) -> None:
    positions = CassandraArchivePositions(cassandra_session, installation_id=os.urandom(8).hex())
    assert await positions.of(0) == {}

    first = {bucket: ArchivePosition("log", Position(1_700_000_000_000, bucket)) for bucket in range(300)}
    await positions.announce(0, first)
    assert await positions.of(0) == first
    await positions.announce(0, {3: ArchivePosition("log", Position(1_700_000_000_000, 2))})
    await positions.announce(0, {4: ArchivePosition("log", Position(1_700_000_000_000, 2**40))})
    await positions.announce(0, {4: ArchivePosition("log", Position(1_700_000_000_000, 2**40 - 1))})
    await positions.announce(0, {5: ArchivePosition("new", Position(1_700_000_000_001, 0))})

    now = await positions.of(0)
    assert now[3] == first[3]
    assert now[4].position.seq == 2**40
    assert now[5] == ArchivePosition("new", Position(1_700_000_000_001, 0))
    assert await positions.of(1) == {}

"""The archive of messages: what is written once stays, pages cross partitions, and heads only move forward."""

from __future__ import annotations

import os
import struct

import pytest

from qim_common.cassandra import CassandraSession
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, commit_bucket
from qim_common.records import RecordType, pack_tail
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.domain.seq_buckets import SEQS_PER_BUCKET
from qim_writer.storage import Conversation
from qim_writer.storage_archive import ArchiveHead, ArchiveRow, MessageArchive

BUCKETS = 16
COMMITTED_MS = 1_700_000_000_000
_HEADER = struct.Struct(">BB6s6s6sI")


def row(seq: int, body: bytes = b"", *, time_ms: int = COMMITTED_MS, generation: int = 0) -> ArchiveRow:
    """A message whose body tells its seq."""
    header = _HEADER.pack(1, 1, u48(1), u48(time_ms), u48(seq - 1), generation)
    sender, device, message_id = UserId(b"u" * 16), DeviceId(b"d" * 16), seq.to_bytes(16, "big")
    tail = pack_tail(RecordType.ORDINARY, sender, device, message_id, b"", body or f"message {seq}".encode())
    return ArchiveRow(seq, header + tail)


def u48(number: int) -> bytes:
    return number.to_bytes(6, "big")


@pytest.fixture
def archive(cassandra_session: CassandraSession) -> MessageArchive:
    return CassandraArchive(cassandra_session, installation_id="tests", buckets=BUCKETS)


@pytest.fixture
def hikers(tenant: TenantId) -> Conversation:
    return Conversation(tenant, ConversationId(b"\x02" + os.urandom(15)))


async def seqs_of(archive: MessageArchive, conversation: Conversation, first: int, last: int, limit: int) -> list[int]:
    return [record.seq for record in await archive.page(conversation, first, last, limit)]


async def test_a_record_comes_back_as_it_was_committed(archive: MessageArchive, hikers: Conversation) -> None:
    await archive.append(hikers, [row(7, b"see you at the hut", generation=3)])

    (record,) = await archive.page(hikers, 1, 100, 10)
    assert (record.seq, record.time_ms, record.prev, record.generation) == (7, COMMITTED_MS, 6, 3)
    assert record.tail.body == b"see you at the hut"
    assert record.tail.client_message_id == (7).to_bytes(16, "big")


async def test_pages_cross_partitions_in_both_directions(archive: MessageArchive, hikers: Conversation) -> None:
    border = SEQS_PER_BUCKET
    await archive.append(hikers, [row(seq) for seq in range(border - 150, 2 * border + 151)])

    upward = await archive.page(hikers, border - 10, 2 * border + 100, 1000)
    downward = await archive.page(hikers, border - 10, 2 * border + 100, 1000, newest_first=True)

    assert [record.seq for record in upward] == list(range(border - 10, 2 * border - 10))
    assert [record.seq for record in downward] == list(range(2 * border + 100, border + 100, -1))
    assert all(record.tail.body == f"message {record.seq}".encode() for record in upward + downward)


async def test_a_page_holds_nothing_outside_its_range_and_limit(archive: MessageArchive, hikers: Conversation) -> None:
    await archive.append(hikers, [row(seq) for seq in range(1, 301)])

    assert await seqs_of(archive, hikers, 10, 20, 1000) == list(range(10, 21))
    assert await seqs_of(archive, hikers, 10, 20, 3) == [10, 11, 12]
    assert await seqs_of(archive, hikers, 295, 5_000, 1000) == list(range(295, 301))
    assert await seqs_of(archive, hikers, -5, 2, 10) == [1, 2]
    assert await seqs_of(archive, hikers, 20, 19, 10) == []
    newest = await archive.page(hikers, 1, 300, 1, newest_first=True)
    assert [record.seq for record in newest] == [300]


async def test_a_page_fills_up_over_seqs_that_are_not_there(archive: MessageArchive, hikers: Conversation) -> None:
    await archive.append(hikers, [row(seq) for seq in (1, 2, 400, 1_700)])

    assert await seqs_of(archive, hikers, 1, 2_000, 4) == [1, 2, 400, 1_700]


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_of_no_or_too_many_records_is_refused(
    archive: MessageArchive, hikers: Conversation, limit: int
) -> None:
    with pytest.raises(ValueError, match="1 to 1000 records"):
        await archive.page(hikers, 1, 10, limit)


async def test_writing_again_changes_nothing(archive: MessageArchive, hikers: Conversation) -> None:
    rows = [row(seq) for seq in range(1, 21)]
    await archive.append(hikers, rows)
    await archive.append(hikers, rows[5:])
    await archive.append(hikers, rows[:3])

    assert await seqs_of(archive, hikers, 1, 100, 100) == list(range(1, 21))


async def test_a_late_write_of_a_lost_generation_does_not_undo_the_new_one(
    archive: MessageArchive, hikers: Conversation
) -> None:
    lost, new = row(5, b"lost"), row(5, b"new", time_ms=COMMITTED_MS + 60_000, generation=1)
    await archive.append(hikers, [new])
    await archive.append(hikers, [lost])

    (record,) = await archive.page(hikers, 5, 5, 1)
    assert (record.tail.body, record.generation) == (b"new", 1)


async def test_large_bodies_and_many_rows_are_written_in_several_batches(
    archive: MessageArchive, hikers: Conversation
) -> None:
    large = [row(seq, bytes([seq]) * 65_536) for seq in range(1, 21)]
    many = [row(seq) for seq in range(21, 721)]
    await archive.append(hikers, large + many)

    records = await archive.page(hikers, 1, 720, 1000)
    assert [record.seq for record in records] == list(range(1, 721))
    assert all(record.tail.body == bytes([record.seq]) * 65_536 for record in records[:20])


@pytest.mark.parametrize(
    "bad",
    [
        ArchiveRow(1, b""),
        ArchiveRow(1, b"\x01" * 24),
        ArchiveRow(1, b"\x02" + row(1).record[1:]),
        ArchiveRow(0, row(1).record),
        ArchiveRow(-1, row(1).record),
    ],
    ids=["empty", "header only", "unknown version", "seq 0", "seq -1"],
)
async def test_what_is_no_record_is_refused_before_anything_is_written(
    archive: MessageArchive, hikers: Conversation, bad: ArchiveRow
) -> None:
    with pytest.raises(ValueError, match="no record of version 1"):
        await archive.append(hikers, [row(2), bad])
    assert await seqs_of(archive, hikers, 1, 10, 10) == []


async def test_named_records_come_in_the_order_asked_for(archive: MessageArchive, hikers: Conversation) -> None:
    await archive.append(hikers, [row(seq) for seq in range(990, 1_300)])

    wanted = [1_001, 5, 999, 1_000, 1_001, 2_500, *range(1_010, 1_290)]
    found = [record.seq for record in await archive.records(hikers, wanted)]
    assert found == [1_001, 999, 1_000, 1_001, *range(1_010, 1_290)]
    assert await archive.records(hikers, []) == []


async def test_conversations_and_tenants_are_kept_apart(archive: MessageArchive, hikers: Conversation) -> None:
    namesake = Conversation(TenantId(hikers.tenant + 2**62), hikers.id)
    other = Conversation(hikers.tenant, ConversationId(b"\x02" + os.urandom(15)))
    await archive.append(hikers, [row(1, b"hikers")])
    await archive.append(namesake, [row(1, b"namesake")])

    assert [record.tail.body for record in await archive.page(hikers, 1, 9, 9)] == [b"hikers"]
    assert [record.tail.body for record in await archive.page(namesake, 1, 9, 9)] == [b"namesake"]
    assert await archive.page(other, 1, 9, 9) == []


async def test_a_head_only_moves_forward_and_a_higher_generation_cuts_it(
    archive: MessageArchive, hikers: Conversation
) -> None:
    assert await archive.head(hikers) is None

    for generation, seq, expected in [(0, 50, (0, 50)), (0, 49, (0, 50)), (0, 51, (0, 51)), (1, 40, (1, 40))]:
        await archive.advance_heads([(hikers, ArchiveHead(generation, seq))])
        assert await archive.head(hikers) == ArchiveHead(*expected)
    await archive.advance_heads([(hikers, ArchiveHead(0, 99))])
    assert await archive.head(hikers) == ArchiveHead(1, 40)


async def test_the_heads_of_a_bucket_name_each_of_its_conversations(archive: MessageArchive, tenant: TenantId) -> None:
    mine = [Conversation(tenant, ConversationId(b"\x02" + os.urandom(15))) for _ in range(30)]
    await archive.advance_heads([(conversation, ArchiveHead(0, seq)) for seq, conversation in enumerate(mine, 1)])

    found = [
        (bucket, conversation, head)
        for bucket in range(BUCKETS)
        async for page in archive.heads(bucket)
        for conversation, head in page
        if conversation.tenant == tenant
    ]
    assert {conversation: head.seq for _, conversation, head in found} == {one: seq for seq, one in enumerate(mine, 1)}
    assert all(commit_bucket(tenant, conversation.id, BUCKETS) == bucket for bucket, conversation, _ in found)


async def test_removed_buckets_are_gone_and_the_others_stay(archive: MessageArchive, hikers: Conversation) -> None:
    await archive.append(hikers, [row(seq) for seq in range(1, 2 * SEQS_PER_BUCKET + 6)])

    await archive.remove_buckets(hikers, [0])
    await archive.remove_buckets(hikers, [0, 1])
    await archive.append(hikers, [row(seq) for seq in range(1, 4)])  # by an archiver that lags

    assert await seqs_of(archive, hikers, 1, 5_000, 1000) == list(
        range(2 * SEQS_PER_BUCKET + 1, 2 * SEQS_PER_BUCKET + 6)
    )


@pytest.mark.parametrize("end", [0, 1, 7, 999, 1_000])
async def test_what_a_lost_line_left_behind_is_removed_and_stays_so(
    archive: MessageArchive, hikers: Conversation, end: int
) -> None:
    lost = [row(seq) for seq in range(1, 1_006)]
    later = COMMITTED_MS + 5
    await archive.append(hikers, lost)
    await archive.remove_after(hikers, end, 1_005, later)
    await archive.remove_after(hikers, end, 0, later)
    assert await seqs_of(archive, hikers, 1, 1_005, 1_000) == list(range(1, end + 1))

    await archive.append(hikers, lost)
    assert await seqs_of(archive, hikers, 1, 1_005, 1_000) == list(range(1, end + 1))
    await archive.append(hikers, [row(end + 1, b"later", time_ms=later)])
    assert (await archive.records(hikers, [end + 1]))[0].tail.body == b"later"


async def test_heads_of_another_installation_are_not_seen(
    cassandra_session: CassandraSession, archive: MessageArchive, hikers: Conversation
) -> None:
    other = CassandraArchive(cassandra_session, installation_id="others", buckets=BUCKETS)
    await archive.advance_heads([(hikers, ArchiveHead(0, 5))])

    assert await other.head(hikers) is None
    assert await archive.head(hikers) == ArchiveHead(0, 5)

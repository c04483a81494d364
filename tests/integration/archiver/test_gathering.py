"""What the archiver makes of the dispatch log is byte for byte what Redis holds; an entry that is none is refused."""

from __future__ import annotations

import random
import struct

import pytest
from tests.support.archiving import Life, with_archive
from tests.support.chat import Chat
from tests.support.dispatch import group, messages, ordinary, state, user
from tests.support.redis_stores import redis_stores

from qim_common.positions import LOG_START, Position
from qim_common.records import Audience, StateChange
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis import outbox as outbox_module
from qim_writer.backends.redis.behind import RedisBehind
from qim_writer.domain.archive_rounds import OutboxEntry, gather, patience
from qim_writer.domain.policy import Limits
from qim_writer.storage import Conversation

pytestmark = pytest.mark.server


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("max_bytes", "entries_max"), [(1, 4096), (200_000, 4096), (2**30, 4096), (2**30, 5)])
async def test_records_are_rebuilt_byte_for_byte(
    valkey_session: ValkeyServer, monkeypatch: pytest.MonkeyPatch, seed: int, max_bytes: int, entries_max: int
) -> None:
    monkeypatch.setattr(outbox_module, "_ENTRIES_PER_ROUND", entries_max)
    async with redis_stores(valkey_session, buckets=8) as stores:
        outbox = await with_archive(stores)
        life = Life(Chat(stores, limits=Limits(broadcast_max_members=20)), random.Random(seed))  # noqa: S311  no secret
        await life.begin(12)
        await life.go_on(60)

        records: dict[tuple[bytes, int], bytes] = {}
        recorded = rows = 0
        after = dict.fromkeys(outbox.buckets, LOG_START)
        complete = False
        while not complete:
            read = await outbox.read(after, max_bytes=max_bytes)
            complete = read.complete
            for bucket, entries in read.entries.items():
                found = gather(bucket, after[bucket], entries)
                after[bucket] = found.upto
                recorded += found.recorded
                rows += len(found.group_rows)
                for each in found.conversations.values():
                    assert [row.seq for row in each.rows] == sorted(row.seq for row in each.rows)
                    conversation = Conversation(each.tenant, each.conversation)
                    large = await outbox.records(conversation, [each.rows[at].seq for at in each.too_large])
                    assert all(large)
                    for at, record in zip(each.too_large, large, strict=True):
                        each.rows[at] = each.rows[at]._replace(record=record or b"")
                    records |= {(each.conversation, row.seq): row.record for row in each.rows}

        held: dict[tuple[bytes, int], bytes] = {}
        for key in await stores.call("KEYS", "*:msgrec"):
            conversation_id = bytes.fromhex(key.decode().split(":")[2])
            held |= {(conversation_id, int(seq)): record for seq, record in (await stores.hash(key)).items()}
        assert len(held) > 1_000
        assert records == held
        counted = [int(await stores.call("HGET", bucket.meta, "rec") or 0) for bucket in stores.store.buckets]
        assert recorded == sum(counted)
        assert recorded == (await RedisBehind(stores.store.instances[0], stores.store.topology).look()).messages
        assert rows >= 72


def test_rounds_carry_what_the_instance_must_be_told() -> None:
    hikers, skiers = group(1), group(2)
    blocks = [
        state(hikers, StateChange.CREATED) + state(skiers, StateChange.CREATED),
        messages(hikers, 1, 1, [ordinary(user(1)), ordinary(user(2))]) + messages(skiers, 1, 1, [ordinary(user(1))]),
        messages(hikers, 1, 3, [ordinary(user(1))]),
    ]
    entries = [OutboxEntry(Position(1_000 + n, 0), data, b"") for n, data in enumerate(blocks)]

    found = gather(5, Position(999, 7), entries)

    assert (found.bucket, found.after, found.upto) == (5, Position(999, 7), Position(1_002, 0))
    assert found.recorded == 6
    first, second = found.conversations.values()
    assert (first.conversation, first.head, first.oldest_ms, first.created) == (hikers, 3, 1_001, True)
    assert (second.conversation, second.head, second.oldest_ms, second.created) == (skiers, 1, 1_001, True)


@pytest.mark.parametrize(
    ("conversations", "each", "times"),
    [(0, 0, 1), (1, 999, 1), (1, 5_000, 1), (100, 9, 1), (100, 10, 2), (100, 39, 2), (100, 40, 1)],
)
def test_entries_gather_longer_where_batches_are_small_and_many(conversations: int, each: int, times: int) -> None:
    blocks = [messages(group(n), 1, 1, [ordinary(user(1))] * each) for n in range(conversations)]
    entries = [OutboxEntry(Position(1, n), data, b"") for n, data in enumerate(blocks)]

    assert patience([gather(0, LOG_START, entries)]) == times


GOOD = messages(group(1), 1, 1, [ordinary(user(1))])


@pytest.mark.parametrize(
    "blocks",
    [
        GOOD[:-1],
        GOOD[:40],
        GOOD + b"\x01",
        b"\x03" + GOOD[1:],
        messages(group(1), 1, 1, [(Audience.BROADCAST, b"")])[:-5] + struct.pack(">BI", 9, 0),
        state(group(1), StateChange.FLOOR)[:-4] + struct.pack(">I", 6),
    ],
    ids=["cut tail", "cut head", "something behind", "unknown kind", "unknown audience", "cut payload"],
)
def test_an_entry_that_is_none_is_refused(blocks: bytes) -> None:
    with pytest.raises(ValueError, match="dispatch entry 7-0 of bucket 3 cannot be read"):
        gather(3, LOG_START, [OutboxEntry(Position(6, 0), GOOD, b""), OutboxEntry(Position(7, 0), blocks, b"")])


@pytest.mark.parametrize("rows", [b"\x01", bytes(200)])
def test_rows_that_are_none_are_refused(rows: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        gather(3, LOG_START, [OutboxEntry(Position(7, 0), GOOD, rows)])

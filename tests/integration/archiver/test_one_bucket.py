"""The fault of one bucket stops no other: it is left out, told of, and tried again; nothing of it is skipped."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from cassandra import InvalidRequest
from tests.integration.archiver.test_rounds import Place, place
from tests.support.archiving import unfinished
from tests.support.writers import until

from qim_common.keys import BucketKeys
from qim_common.redis import ReplyError
from qim_common.telemetry.metrics import ArchiverMetrics
from qim_writer.commands.archive import rounds
from qim_writer.storage import Conversation

__all__ = ["place"]

NO_BLOCK = struct.pack(">B24sB4s6s6s6s6sH", 1, bytes(24), 0, bytes(4), bytes(6), bytes(6), bytes(6), b"\xff" * 6, 2)
"""Two messages of which the second has a seq above 48 bits."""

ENTRIES: dict[str, list[Any]] = {
    "another field": ["x", "junk"],
    "a third field": ["e", b"", "x", "junk"],
    "the rows first": ["g", b"", "e", b""],
    "more fields": ["e", b"", "g", b"", "x", b""],
    "no blocks": ["e", b"nonsense"],
    "a kind that is none": ["e", b"\x09" + bytes(60)],
    "a seq too large": ["e", NO_BLOCK + struct.pack(">BI", 1, 0) * 2],
    "rows that are none": ["e", b"", "g", b"nonsense"],
    "rows that are cut": ["e", b"", "g", bytes(190)],
}


def bad_bucket(place: Place) -> BucketKeys:
    """One that has conversations."""
    return place.stores.bucket(next(iter(place.life.groups)), place.chat.tenant)


def refused(metrics: ArchiverMetrics) -> float:
    return float(metrics.buckets_refused.labels("0")._value.get())


async def only_one_waits(place: Place) -> None:
    """All other buckets are archived to their ends."""

    async def others() -> bool:
        return len(await unfinished(place.stores)) == 1

    await until(others)


@pytest.mark.parametrize("fields", ENTRIES.values(), ids=ENTRIES.keys())
async def test_an_entry_that_no_script_writes(
    place: Place, fields: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    bad = bad_bucket(place)
    newest = (await place.stores.call("XREVRANGE", bad.dispatch, "+", "-", "COUNT", 1))[0][0]
    entry = await place.stores.call("XADD", bad.dispatch, "*", *fields)
    await place.life.go_on(2)
    async with place.archiver() as (_, metrics):
        await only_one_waits(place)
        await until(lambda: refused(metrics) == 1)
        await place.life.send(2)
        await only_one_waits(place)
    # What is before it is archived; it is the next one.
    assert await place.stores.call("HGET", bad.meta, "arch") == newest
    assert f"bucket {bad.bucket}: not archived any more" in caplog.text
    assert entry.decode() in caplog.text
    assert caplog.text.count("not archived any more") == 1


async def test_an_entry_of_another_program_is_taken_away_and_nothing_is_lost(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_REFUSED_SECONDS", 0.2)
    bad = bad_bucket(place)
    entry = await place.stores.call("XADD", bad.dispatch, "*", "x", "junk")
    await place.life.go_on(4)
    async with place.archiver() as (_, metrics):
        await only_one_waits(place)
        await until(lambda: refused(metrics) == 1)
        await place.stores.call("XDEL", bad.dispatch, entry)
        await place.verify()
        await until(lambda: refused(metrics) == 0)


async def test_an_entry_without_content_is_none_to_be_refused(place: Place) -> None:
    await place.stores.call("XADD", bad_bucket(place).dispatch, "*", "e", b"")
    async with place.archiver() as (_, metrics):
        await place.archived()
        assert refused(metrics) == 0


class Refusing:
    """Messages of an archive that refuses the rows of one conversation."""

    def __init__(self, conversation: bytes) -> None:
        self.conversation: bytes | None = conversation

    def __call__(self, store: Any) -> Any:
        append = getattr(store, "append", None)
        if hasattr(store, "advance_heads"):

            async def refuse(conversation: Conversation, rows: Any) -> None:
                if conversation.id == self.conversation:
                    raise InvalidRequest("the row is refused")
                await append(conversation, rows)  # type: ignore[misc]

            store.append = refuse
        return store


async def test_a_row_that_cassandra_refuses_and_takes_later(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rounds, "_REFUSED_SECONDS", 0.2)
    group = next(iter(place.life.groups))
    await place.chat.send(place.life.groups[group][0], bytes(group))
    refusing = Refusing(bytes(group))
    async with place.archiver(around=refusing) as (_, metrics):
        await only_one_waits(place)
        await until(lambda: refused(metrics) == 1)
        refusing.conversation = None
        await place.verify()
        await until(lambda: refused(metrics) == 0)
    assert "InvalidRequest: the row is refused" in caplog.text
    assert caplog.text.count("not archived any more") == 1


@pytest.mark.parametrize(
    ("key", "command"),
    [
        ("meta", ("SET", "a string")),
        ("meta", ("HSET", "arch", "nonsense")),
        ("meta", ("HSET", "archn", "nonsense")),
        ("meta", ("HSET", "arcd", "nonsense")),
        ("dispatch", ("SET", "a string")),
        ("hot", ("SET", "a string")),
    ],
)
async def test_a_key_that_cannot_be_read_or_written(place: Place, key: str, command: tuple[str, ...]) -> None:
    await place.life.go_on(4)
    bad = bad_bucket(place)
    verb, *rest = command
    await place.stores.call(verb, getattr(bad, key), *rest)

    async def others() -> bool:
        for bucket in place.stores.store.buckets:
            if bucket.bucket != bad.bucket:
                recorded, archived = await place.stores.call("HMGET", bucket.meta, "rec", "arcd")
                if recorded != archived:
                    return False
        return True

    async with place.archiver() as (_, metrics):
        await until(others)
        await until(lambda: refused(metrics) == 1)


async def test_a_record_that_is_not_what_is_asked_for(place: Place) -> None:
    group = next(iter(place.life.groups))
    await place.chat.send(place.life.groups[group][0], bytes(group), body=bytes(10_000))
    keys = place.stores.keys(group, place.chat.tenant)
    await place.stores.call("SET", keys.msgrec, "a string")
    with pytest.raises(ReplyError):
        await place.stores.call("HGETALL", keys.msgrec)
    async with place.archiver() as (_, metrics):
        await only_one_waits(place)
        await until(lambda: refused(metrics) == 1)

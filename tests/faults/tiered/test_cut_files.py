"""The append-only file ends at any byte of the last commit, and the server is started twice (pitfalls.md, "Redis and
Valkey as the durable store").

The caller of that commit has no answer yet. If the archive has seen the commit, an instance without it is fenced. If
not, the instance is accepted, the caller repeats the call with its id, and it is carried out once: its seq is used
once, also after the second start, where a server that kept a torn transaction in its file would bring it back.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.faults.tiered.append_only import Commit
from tests.integration.recovery.conftest import Recovering
from tests.support.archiving import with_archive
from tests.support.chat import ANA, BEN, CARA, DAN, Chat
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.cassandra import CassandraSession
from qim_common.ids import ConversationId, TenantId, uuid7
from qim_common.records import MessageBlock
from qim_common.redis.fence import Fenced, Verdict
from qim_common.redis.fingerprint import read_fingerprint
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.fence import FenceGuard, read_log_ends, what_is_missing
from qim_writer.storage_archive import ArchivePosition

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]

BUCKETS = 1
AT_ONCE = 3
"""Servers at a time: a start is mostly waiting."""

Seen = Mapping[int, ArchivePosition]
Act = Callable[[Chat, ConversationId, bytes], Awaitable[int]]
"""A call with this request id in this group; answers its seq."""


class SeenBefore:
    """What the archive had seen at some moment, read from it then."""

    def __init__(self, seen: Seen) -> None:
        self._seen = dict(seen)

    async def announce(self, instance: int, positions: Seen) -> None:
        """Nobody archives here."""
        raise AssertionError(f"instance {instance}: {positions}")

    async def of(self, instance: int) -> dict[int, ArchivePosition]:
        """As `ArchivePositions.of`."""
        return self._seen


@dataclass
class LastCommit:
    """A server's data with the commit, what the archive had seen before it and after it, and how it is repeated.

    `repeat` answers the seq; `seq` is what the first call was given."""

    commit: Commit
    before: Seen
    after: Seen
    tenant: TenantId
    group: ConversationId
    seq: int
    repeat: Callable[[Chat], Awaitable[int]]


async def prepared(
    recovering: Recovering,
    directory: Path,
    act: Callable[[Chat, ConversationId, bytes], Awaitable[int]],
    content: bytes,
) -> LastCommit:
    """A group with some history, all of it archived, and one more commit that has `content`."""
    request = uuid7()
    with ValkeyServer(directory / "live") as server:
        async with redis_stores(server, buckets=BUCKETS) as stores:
            await with_archive(stores)
            chat = Chat(stores, tenant=recovering.tenant)
            group = await chat.create(ANA, BEN)
            await chat.send_many(3, ANA, group)
            await chat.add(group, CARA)
            assert await guard(stores, {}).judge(stores.store.instances[0]) is Verdict.ACCEPT
            await recovering.archive_all(stores)
            before = await recovering.archive.positions.of(0)
            seq = await act(chat, group, request)
            shutil.copytree(server.directory, directory / "cut")  # appendfsync always: all of it is in the file
            await recovering.archive_all(stores)
            after = await recovering.archive.positions.of(0)
    commit = Commit.of(directory / "cut", content)
    return LastCommit(commit, before, after, recovering.tenant, group, seq, lambda chat: act(chat, group, request))


def guard(stores: RedisStores, seen: Seen) -> FenceGuard:
    """The fence, where the archive had seen this."""
    return FenceGuard(0, stores.store.topology, SeenBefore(seen), ack_level="log")


@asynccontextmanager
async def started(server: ValkeyServer, tenant: TenantId) -> AsyncIterator[tuple[RedisStores, Chat]]:
    """The server runs inside of the context, and is killed."""
    await asyncio.to_thread(server.start)
    try:
        async with redis_stores(server, buckets=BUCKETS) as stores:
            yield stores, Chat(stores, tenant=tenant)
    finally:
        server.kill()


async def is_missed(stores: RedisStores, seen: Seen) -> str:
    """What the archive has seen and the instance does not hold."""
    instance = stores.store.instances[0]
    fingerprint = await read_fingerprint(instance)
    assert fingerprint is not None
    return what_is_missing(fingerprint, seen, await read_log_ends(instance, range(BUCKETS)))


async def two_starts(last: LastCommit, directory: Path, size: int) -> None:
    """The story of one cut."""
    last.commit.copied(directory, size)
    whole = size == last.commit.end
    server = ValkeyServer(directory)
    async with started(server, last.tenant) as (stores, chat):
        assert bool(await is_missed(stores, last.after)) is not whole, "what the archive has seen is missed"
        assert await guard(stores, last.before).judge(stores.store.instances[0]) is Verdict.ACCEPT
        assert await chat.head(last.group) == last.seq - (not whole)
        assert await last.repeat(chat) == last.seq
        further = await chat.send(ANA, last.group, body=b"further")
        assert further.seq == last.seq + 1
        facts = await everything(stores, last.group)
    async with started(server, last.tenant) as (stores, chat):
        assert await guard(stores, last.before).judge(stores.store.instances[0]) is Verdict.ACCEPT
        assert await everything(stores, last.group) == facts
        assert await last.repeat(chat) == last.seq
        assert await chat.head(last.group) == last.seq + 1
        assert await chat.read(ANA, last.group) == list(range(1, last.seq + 2))
        blocks = [block for _, block in await stores.dispatched(last.group, last.tenant)]
        dispatched = [item.seq for block in blocks if isinstance(block, MessageBlock) for item in block.items]
        assert dispatched == list(range(1, last.seq + 2))


async def everything(stores: RedisStores, group: ConversationId) -> dict[bytes, Any]:
    """All keys but the marks of the fence, which each start changes."""
    return {key: value for key, value in (await stores.everything()).items() if b"fence" not in key}


async def at_each(last: LastCommit, directory: Path, sizes: Iterable[int]) -> None:
    """All cuts, some at a time."""
    left = iter(sizes)

    async def work(number: int) -> None:
        for size in left:
            try:
                await two_starts(last, directory / f"server-{number}", size)
            except Exception as error:
                error.add_note(f"cut at byte {size - last.commit.first} of {last.commit.end - last.commit.first}")
                raise

    async with asyncio.TaskGroup() as tasks:
        for number in range(AT_ONCE):
            tasks.create_task(work(number))


@pytest.fixture
def recovering(cassandra_session: CassandraSession, tenant: TenantId) -> Recovering:
    """An installation of the test's own, with what archives it."""
    return Recovering(cassandra_session, tenant, uuid7().hex())


async def send(chat: Chat, group: ConversationId, request: bytes) -> int:
    """The last commit as a message."""
    return (await chat.send(BEN, group, message_id=request, body=b"the last commit")).seq


async def join(chat: Chat, group: ConversationId, request: bytes) -> int:
    """The last commit as a membership change."""
    return (await chat.add(group, DAN, request_id=request)).seq


async def test_a_message_cut_at_every_byte_is_there_once_or_fenced(recovering: Recovering, tmp_path: Path) -> None:
    last = await prepared(recovering, tmp_path, send, b"the last commit")
    await at_each(last, tmp_path, range(last.commit.first, last.commit.end + 1))


async def test_a_membership_change_cut_at_many_bytes_is_there_once_or_fenced(
    recovering: Recovering, tmp_path: Path
) -> None:
    last = await prepared(recovering, tmp_path, join, bytes(DAN))
    sizes = {*range(last.commit.first, last.commit.end, 7), *range(last.commit.end - 20, last.commit.end + 1)}
    await at_each(last, tmp_path, sorted(sizes))


@pytest.mark.parametrize("where", [0.0, 0.5, 0.99])
async def test_an_instance_that_was_fenced_stays_so_whatever_is_started(
    recovering: Recovering, tmp_path: Path, where: float
) -> None:
    last = await prepared(recovering, tmp_path, send, b"the last commit")
    commit = last.commit
    last.commit.copied(tmp_path / "fenced", commit.first + int(where * (commit.end - commit.first)))
    server = ValkeyServer(tmp_path / "fenced")
    async with started(server, last.tenant) as (stores, _):
        assert isinstance(await guard(stores, last.after).judge(stores.store.instances[0]), Fenced)
    async with started(server, last.tenant) as (stores, _):
        # Also where the archive would not miss anything, or does not answer: the mark is in the file.
        assert isinstance(await guard(stores, last.before).judge(stores.store.instances[0]), Fenced)

"""The redis backend's own stores in-process on an embedded Valkey, and a way to its keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.chat import TENANT, Stores

from qim_common.ids import ConversationId, TenantId
from qim_common.keys import BucketKeys, ConversationKeys
from qim_common.records import Block, unpack_blocks
from qim_common.redis import Instance, ScriptLoader
from qim_common.topology import Topology
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.group_commit import RedisCommitLog
from qim_writer.backends.redis.membership import RedisMembershipStore
from qim_writer.backends.redis.messages import RedisMessageStore
from qim_writer.backends.redis.store import SCRIPTS, AckLevel, RedisStore
from qim_writer.domain.group_rows import GROUP_ROWS_FIELD, GroupRow, unpack_group_rows
from qim_writer.domain.hints import CommitHints

RETENTION_MS = 24 * 3_600_000


@dataclass(frozen=True)
class RedisStores(Stores):
    """The stores and what is below them."""

    store: RedisStore

    async def call(self, *args: Any) -> Any:
        """One command on the first instance."""
        return await self.store.instances[0].call(*args)

    async def now_ms(self) -> int:
        """The server's clock."""
        seconds, micros = await self.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def forget_dispatch(self, conversation: ConversationId, tenant: TenantId = TENANT) -> None:
        """What the retention of the dispatch log comes to in time: every entry so far of the conversation's bucket is
        gone, and what comes next is younger by the server's clock in milliseconds."""
        bucket = self.bucket(conversation, tenant)
        gone = await self.now_ms()
        while (now := await self.now_ms()) <= gone:
            pass
        await self.call("XTRIM", bucket.dispatch, "MAXLEN", 0)
        await self.call("HSET", bucket.meta, "dlow", f"{now}-0")

    def keys(self, conversation: ConversationId, tenant: TenantId = TENANT) -> ConversationKeys:
        """The keys of a conversation."""
        return self.store.place(tenant, conversation).keys

    def bucket(self, conversation: ConversationId, tenant: TenantId = TENANT) -> BucketKeys:
        """The keys of the conversation's bucket."""
        return self.store.buckets[self.store.place(tenant, conversation).bucket]

    async def hash(self, key: str) -> dict[bytes, bytes]:
        """A whole hash."""
        flat = await self.call("HGETALL", key)
        return dict(zip(flat[::2], flat[1::2], strict=True))

    async def dispatched(self, conversation: ConversationId, tenant: TenantId = TENANT) -> list[tuple[int, Block]]:
        """The blocks of a conversation in the dispatch log of its bucket, each with its commit time in ms."""
        entries = await self.call("XRANGE", self.bucket(conversation, tenant).dispatch, "-", "+")
        return [
            (int(entry.partition(b"-")[0]), block)
            for entry, fields in entries
            for block in unpack_blocks(fields[1])
            if (block.tenant, block.conversation) == (tenant, conversation)
        ]

    async def begin_archive(self) -> None:
        """From now on there is an archive, which holds nothing yet: what a tiered writer does at its start."""
        for bucket in self.store.buckets:
            await self.call("HSETNX", bucket.meta, "arch", "0-0")

    async def group_rows(self, conversation: ConversationId, tenant: TenantId = TENANT) -> list[GroupRow]:
        """The rows of a conversation that its dispatch entries carry, in their order."""
        entries = await self.call("XRANGE", self.bucket(conversation, tenant).dispatch, "-", "+")
        return [
            row
            for entry, fields in entries
            if GROUP_ROWS_FIELD in fields[::2]
            for row in unpack_group_rows(fields[fields.index(GROUP_ROWS_FIELD) + 1], int(entry.partition(b"-")[0]))
            if (row.tenant, row.conversation) == (tenant, conversation)
        ]

    async def everything(self) -> dict[bytes, Any]:
        """Every key with its value as bytes: equal before and after what changed nothing."""
        keys = sorted(await self.call("KEYS", "*"))
        return {key: await self.call("DUMP", key) for key in keys}


@asynccontextmanager
async def redis_stores(
    server: ValkeyServer,
    *,
    buckets: int = 256,
    retention_ms: int = RETENTION_MS,
    hints: CommitHints | None = None,
    ack_level: AckLevel = "log",
    replicas: int = 0,
    outbox_max: int | None = None,
) -> AsyncIterator[RedisStores]:
    """Stores on one server, as `qim_writer.main` puts them together; their connection ends with the context."""
    instance = Instance(server.address, name="test", instance_position=0)
    instance.on_connected.append(ScriptLoader(SCRIPTS))
    await instance.start()
    try:
        topology = Topology((server.address,), buckets, "tests")
        store = RedisStore(
            [instance],
            topology,
            retention_ms=retention_ms,
            ack_level=ack_level,
            replicas=replicas,
            outbox_max=outbox_max,
        )
        yield RedisStores(
            RedisMembershipStore(store), RedisMessageStore(store), RedisCommitLog(store, hints), buckets, store
        )
    finally:
        await instance.close()

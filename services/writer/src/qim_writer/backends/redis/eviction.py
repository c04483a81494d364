"""Records of one commit instance that are archived and old leave it (storage.md, "Backends": cold reads)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qim_common.ids import ConversationId, TenantId
from qim_common.keys import BucketKeys, ConversationKeys
from qim_common.redis import Instance, load_script, run
from qim_common.topology import Topology
from qim_writer.backends.redis.place import SCOPE
from qim_writer.storage import Conversation
from qim_writer.storage_outbox import Evicted

EVICT_RECORDS: Final = load_script("qim_writer", "evict_records")


class RedisHotRecords:
    """The `HotRecords` of one commit instance, started."""

    def __init__(self, instance: Instance, topology: Topology) -> None:
        self._instance = instance
        self._topology = topology

    @property
    def instance(self) -> int:
        """As `HotRecords.instance`."""
        return self._instance.position

    @property
    def buckets(self) -> Sequence[int]:
        """As `HotRecords.buckets`."""
        return self._topology.buckets_of(self._instance.position)

    async def due(self, bucket: int, older_than_ms: int, limit: int) -> list[Conversation]:
        """As `HotRecords.due`."""
        seconds, micros = await self._instance.call("TIME")
        before = int(seconds) * 1000 + int(micros) // 1000 - older_than_ms
        scopes = await self._instance.call(
            "ZRANGE", BucketKeys(bucket).hot, "-inf", before, "BYSCORE", "LIMIT", 0, limit
        )
        return [
            Conversation(TenantId(tenant), ConversationId(conversation))
            for tenant, conversation in map(SCOPE.unpack, scopes)
        ]

    async def evict(self, conversation: Conversation, older_than_ms: int) -> Evicted:
        """As `HotRecords.evict`."""
        bucket = self._topology.conversation_bucket(conversation.tenant, conversation.id)
        keys = ConversationKeys(conversation.tenant, conversation.id, bucket)
        removed, more = await run(
            self._instance,
            EVICT_RECORDS,
            [keys.grpmeta, keys.msgrec, keys.msgctl, keys.msgcseq, BucketKeys(bucket).hot, keys.msgts],
            [SCOPE.pack(conversation.tenant, conversation.id), older_than_ms],
        )
        return Evicted(removed, bool(more))

"""How far the archive was cleared below the floors, noted in Redis beside them."""

from __future__ import annotations

from qim_writer.backends.redis.store import NOTE_GONE, RedisStore
from qim_writer.domain.seq_buckets import SEQS_PER_BUCKET
from qim_writer.storage import Conversation
from qim_writer.storage_archive import RemovalState


class RedisArchiveRemovals:
    """See `qim_writer.storage_archive.ArchiveRemovals`."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    async def removed(self, conversation: Conversation, buckets: int = 0) -> RemovalState:
        """See the Protocol."""
        place = self._store.place(conversation.tenant, conversation.id)
        keys = (place.keys.grpmeta, self._store.buckets[place.bucket].untrimmed, place.keys.msgcseq)
        args = (place.scope, buckets, SEQS_PER_BUCKET)
        gone, floor, trimmed, archived, generation, archived_seq, newest = await self._store.run(
            place.instance, NOTE_GONE, keys, args
        )
        return RemovalState(gone, floor, trimmed, bool(archived), generation, archived_seq, newest)

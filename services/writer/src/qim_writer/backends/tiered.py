"""The messages of the backend tiered: in Redis as long as they are hot, in the archive for ever.

Redis is asked first. What it does not have was removed below the floor (`trimmed`), or has left it for the archive
(`evicted`), or never was: which of these is read after the records, so that a removal in between is seen. Only what
has left for the archive is asked of the archive; where the archive does not have it either, it went below the floor
meanwhile. So a page is the same wherever the border lies and while it moves, and what is hot needs no archive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from qim_common.ids import ConversationId, TenantId
from qim_common.records import Record
from qim_common.redis import Argument, checked
from qim_writer.backends.redis.messages import RedisMessageStore
from qim_writer.backends.redis.store import RedisStore
from qim_writer.domain.cold_reads import cold_reads
from qim_writer.storage import Conversation
from qim_writer.storage_archive import MessageArchive


class TieredMessageStore(RedisMessageStore):
    """See `qim_writer.storage.MessageStore`. Reads of records that are cold raise BackendUnavailable where the archive
    does not answer; everything else needs Redis only."""

    def __init__(self, store: RedisStore, archive: MessageArchive) -> None:
        super().__init__(store)
        self._archive = archive

    async def records(self, conversation: Conversation, seqs: Sequence[int]) -> list[Record]:
        """See the Protocol."""
        hot = await super().records(conversation, seqs)
        if len(hot) == len(seqs):
            return hot
        (found,) = await self._with_cold(conversation.tenant, [(conversation.id, seqs)], [hot])
        return found

    async def records_of_many(
        self, tenant: TenantId, wanted: Sequence[tuple[ConversationId, Sequence[int]]]
    ) -> list[list[Record]]:
        """See the Protocol."""
        hot = await super().records_of_many(tenant, wanted)
        short = [at for at, (_, seqs) in enumerate(wanted) if len(hot[at]) < len(seqs)]
        if short:
            whole = await self._with_cold(tenant, [wanted[at] for at in short], [hot[at] for at in short])
            for at, records in zip(short, whole, strict=True):
                hot[at] = records
        return hot

    async def _with_cold(
        self,
        tenant: TenantId,
        wanted: Sequence[tuple[ConversationId, Sequence[int]]],
        hot: Sequence[Sequence[Record]],
    ) -> list[list[Record]]:
        """What was wanted of each conversation, in its order: what was found hot, and what the archive has."""
        borders = await self._borders(tenant, [conversation for conversation, _ in wanted])
        reads = []
        for (conversation, seqs), found, (trimmed, evicted) in zip(wanted, hot, borders, strict=True):
            have = {record.seq for record in found}
            cold = [seq for seq in seqs if trimmed < seq <= evicted and seq not in have]
            reads.append(self._cold(Conversation(tenant, conversation), cold))
        # All of them end before the first failure is told: none goes on by itself.
        outcomes = await asyncio.gather(*reads, return_exceptions=True)
        whole = []
        for (_, seqs), found, outcome in zip(wanted, hot, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            by_seq = {record.seq: record for record in (*found, *outcome)}
            whole.append([by_seq[seq] for seq in seqs if seq in by_seq])
        return whole

    async def _borders(self, tenant: TenantId, conversations: Sequence[ConversationId]) -> list[tuple[int, int]]:
        """For each conversation the seqs up to which records were removed, and may have left for the archive."""
        borders = [(0, 0)] * len(conversations)
        by_instance: dict[int, list[tuple[int, tuple[Argument, ...]]]] = {}
        for index, conversation in enumerate(conversations):
            place = self._store.place(tenant, conversation)
            command = ("HMGET", place.keys.grpmeta, "trimmed", "evicted")
            by_instance.setdefault(place.instance, []).append((index, command))
        for instance, asked in by_instance.items():
            replies = checked(await self._store.instances[instance].pipeline([command for _, command in asked]))
            for (index, _), (trimmed, evicted) in zip(asked, replies, strict=True):
                borders[index] = int(trimmed or 0), int(evicted or 0)
        return borders

    async def _cold(self, conversation: Conversation, seqs: Sequence[int]) -> list[Record]:
        if not seqs:
            return []
        plan = cold_reads(seqs)
        reads = [self._archive.page(conversation, low, high, high - low + 1) for low, high in plan.ranges]
        if plan.named:
            reads.append(self._archive.records(conversation, plan.named))
        outcomes = await asyncio.gather(*reads, return_exceptions=True)
        found: list[Record] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            found += outcome
        return found

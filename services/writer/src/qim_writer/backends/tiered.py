"""The messages of the backend tiered: in Redis as long as they are hot, in the archive for ever.

Redis is asked first. What it does not have was removed below the floor (`trimmed`), or has left it for the archive
(`evicted`), or never was: which of these is read after the records, so that a removal in between is seen. Only what
has left for the archive is asked of the archive. Where the archive does not have it either, `trimmed` and the floor
are read once more: what they have passed meanwhile is left out, and anything else is an archive that has lost something
or another one's, which is an error and never a shorter page. So a page is the same wherever the border lies and while
it moves, and what is hot needs no archive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from qim_common.errors import BackendUnavailable
from qim_common.ids import ConversationId, TenantId
from qim_common.records import Record
from qim_common.redis import Argument, checked
from qim_common.telemetry.metrics import writer_metrics
from qim_writer.backends.redis.messages import RedisMessageStore
from qim_writer.backends.redis.store import RedisStore
from qim_writer.domain.cold_reads import cold_reads, left_out, stretches
from qim_writer.storage import Conversation
from qim_writer.storage_archive import MessageArchive

_TOLD_MAX: Final = 1_000
"""Conversations that were logged as incomplete; once there are so many, they are told again."""

_log = logging.getLogger(__name__)


class TieredMessageStore(RedisMessageStore):
    """See `qim_writer.storage.MessageStore`. Reads of records that are cold raise BackendUnavailable where the archive
    does not answer, or does not have what it should have; everything else needs Redis only."""

    def __init__(self, store: RedisStore, archive: MessageArchive) -> None:
        super().__init__(store)
        self._archive = archive
        self._told: set[tuple[TenantId, ConversationId]] = set()

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
        borders = await self._numbers(tenant, [conversation for conversation, _ in wanted], "trimmed", "evicted")
        reads, asked = [], []
        for (conversation, seqs), found, (trimmed, evicted) in zip(wanted, hot, borders, strict=True):
            have = {record.seq for record in found}
            cold = [seq for seq in seqs if trimmed < seq <= evicted and seq not in have]
            asked.append(cold)
            reads.append(self._cold(Conversation(tenant, conversation), cold))
        # All of them end before the first failure is told: none goes on by itself.
        outcomes = await asyncio.gather(*reads, return_exceptions=True)
        whole, short = [], []
        for (conversation, seqs), found, cold, outcome in zip(wanted, hot, asked, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            by_seq = {record.seq: record for record in (*found, *outcome)}
            whole.append([by_seq[seq] for seq in seqs if seq in by_seq])
            if any(seq not in by_seq for seq in cold):
                short.append((conversation, cold, by_seq))
        if short:
            gone = await self._numbers(tenant, [conversation for conversation, _, _ in short], "trimmed", "floor")
            lost = [
                (conversation, missing)
                for (conversation, cold, found), passed in zip(short, gone, strict=True)
                if (missing := left_out(cold, found, max(passed)))
            ]
            if lost:
                self._tell(tenant, lost)
                raise BackendUnavailable
        return whole

    def _tell(self, tenant: TenantId, lost: Sequence[tuple[ConversationId, Sequence[int]]]) -> None:
        """Count, and log each conversation once."""
        writer_metrics().archive_missing.inc(sum(len(missing) for _, missing in lost))
        if len(self._told) >= _TOLD_MAX:
            self._told.clear()
        for conversation, missing in lost:
            if (tenant, conversation) not in self._told:
                self._told.add((tenant, conversation))
                _log.error(
                    "the archive does not have messages of conversation %s of tenant %d that have left Redis for it: "
                    "seq %s; is it the right keyspace, and whole?",
                    bytes(conversation).hex(),
                    tenant,
                    stretches(missing),
                )

    async def _numbers(
        self, tenant: TenantId, conversations: Sequence[ConversationId], first: str, second: str
    ) -> list[tuple[int, int]]:
        """Two seqs of each conversation's `grpmeta`: up to which records were removed (`trimmed`), may have left for
        the archive (`evicted`), or are readable for nobody any more (`floor`)."""
        borders = [(0, 0)] * len(conversations)
        by_instance: dict[int, list[tuple[int, tuple[Argument, ...]]]] = {}
        for index, conversation in enumerate(conversations):
            place = self._store.place(tenant, conversation)
            command = ("HMGET", place.keys.grpmeta, first, second)
            by_instance.setdefault(place.instance, []).append((index, command))
        for instance, asked in by_instance.items():
            replies = checked(await self._store.instances[instance].pipeline([command for _, command in asked]))
            for (index, _), (one, other) in zip(asked, replies, strict=True):
                borders[index] = int(one or 0), int(other or 0)
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

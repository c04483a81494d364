"""Rebuilding the conversations of a commit bucket from the archive, in bounded memory.

A conversation's true archived head is found by reading on from the head that the archive has noted, as far as records
of that generation or a later one follow without a gap. Its rows up to that head are folded: rows are archived before
the messages that were committed after them, so none of them is missing. Then its messages above the floor are read
once. What is in memory at a time are a conversation's people and one page.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from qim_common.ids import ZERO_ID, ConversationId, TenantId, show
from qim_common.records import StateChange
from qim_writer.commands.archive_removal import first_buckets
from qim_writer.commands.recover.errors import ArchiveDamaged
from qim_writer.domain.group_rows import GroupRow, RowFlags, RowKind
from qim_writer.domain.refold import Refold
from qim_writer.domain.remade_messages import RemadeMessages
from qim_writer.domain.seq_buckets import last_seq, seq_bucket, whole_buckets
from qim_writer.storage import Conversation
from qim_writer.storage_archive import (
    ARCHIVE_PAGE_MAX,
    REMOVED_AT_ONCE,
    ArchiveHead,
    GroupLog,
    MessageArchive,
)
from qim_writer.storage_recovery import RebuildTarget, RebuiltLine

AT_ONCE: Final = 16
"""Conversations that are rebuilt at the same time."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Generation:
    """That the generation of every conversation rises: `recovery` (16 bytes) tells the row of this recovery from one of
    an earlier one, so that a run which was ended half-way and is run again raises it once."""

    recovery: bytes
    time_ms: int


@dataclass(slots=True)
class Rebuilt:
    """What was rebuilt: numbers of conversations, messages (control messages included) and rows; `newest_ms`: the
    newest commit time."""

    conversations: int = 0
    messages: int = 0
    rows: int = 0
    newest_ms: int = 0


class Rebuild:
    """Rebuilds from an archive into an instance.

    Args:
        entries_from_ms: requests that were carried out before have no idempotency entry.
        raised: that generations rise; None: they stay.
    """

    def __init__(
        self,
        archive: MessageArchive,
        group_log: GroupLog,
        target: RebuildTarget,
        *,
        entries_from_ms: int,
        raised: Generation | None,
    ) -> None:
        self._archive = archive
        self._group_log = group_log
        self._target = target
        self._entries_from_ms = entries_from_ms
        self._raised = raised

    async def bucket(self, bucket: int) -> Rebuilt:
        """Every conversation of a commit bucket. Raises ArchiveDamaged, BackendUnavailable."""
        rebuilt = Rebuilt()
        async for page in self._archive.heads(bucket):
            for start in range(0, len(page), AT_ONCE):
                work = (self._conversation(*noted, rebuilt) for noted in page[start : start + AT_ONCE])
                for outcome in await asyncio.gather(*work, return_exceptions=True):
                    if isinstance(outcome, BaseException):
                        raise outcome
        return rebuilt

    async def _conversation(self, conversation: Conversation, noted: ArchiveHead, rebuilt: Rebuilt) -> None:
        try:
            await self._rebuild(conversation, noted, rebuilt)
        except ValueError as error:
            where = f"conversation {show(conversation.id)} of tenant {conversation.tenant}"
            raise ArchiveDamaged(f"{where} cannot be rebuilt: {error}") from error

    async def _rebuild(self, conversation: Conversation, noted: ArchiveHead, rebuilt: Rebuilt) -> None:
        folded, head = await self._fold(conversation, await self._archived_head(conversation, noted))
        rebuilt.rows += folded.revision
        newest = folded.newest_broadcast(head)
        trimmed = await self._trimmed(conversation, folded.floor, head)
        folded.floor = max(folded.floor, trimmed)
        remade = RemadeMessages(
            conversation.tenant,
            conversation.id,
            folded.people,
            folded.controls,
            floor=trimmed,
            newest=newest,
            entries_from_ms=self._entries_from_ms,
        )
        await self._target.add_messages(conversation, remade.begin())
        await self._remember_below(conversation, remade, trimmed)
        after = trimmed
        while after < head:
            page = await self._archive.page(conversation, after + 1, head, ARCHIVE_PAGE_MAX)
            if not page:
                raise ValueError(f"the archive lacks seq {after + 1} to {head}")
            await self._target.add_messages(conversation, remade.take(page))
            rebuilt.messages += len(page)
            after = page[-1].seq
        newest_ms = 0
        if 0 < newest <= trimmed:
            gone = await self._archive.records(conversation, [newest])
            newest_ms = gone[0].time_ms if gone else folded.floor_ms
        gone_buckets = await self._removed_buckets(conversation, trimmed)
        line = RebuiltLine(head, trimmed, newest, newest_ms, remade.sample_ms, gone_buckets)
        await self._target.add_state(conversation, folded, line)
        rebuilt.conversations += 1
        rebuilt.newest_ms = max(rebuilt.newest_ms, folded.time_ms, remade.time_ms)

    async def _remember_below(self, conversation: Conversation, remade: RemadeMessages, trimmed: int) -> None:
        """The entries of sends that went below the floor since: from the floor downward as long as the archive has
        them, and as far as requests are known."""
        last = trimmed
        while last > 0:
            page = await self._archive.page(conversation, max(last - ARCHIVE_PAGE_MAX, 0) + 1, last, ARCHIVE_PAGE_MAX)
            await self._target.add_messages(conversation, remade.below(page))
            if not page or page[0].time_ms < self._entries_from_ms:
                return
            last = page[0].seq - 1

    async def _archived_head(self, conversation: Conversation, noted: ArchiveHead) -> int:
        head, generation = noted.seq, noted.generation
        while page := await self._archive.page(conversation, head + 1, head + ARCHIVE_PAGE_MAX, ARCHIVE_PAGE_MAX):
            for record in page:
                if record.seq != head + 1 or record.generation < generation:
                    return head
                head, generation = record.seq, record.generation
            if len(page) < ARCHIVE_PAGE_MAX:
                break
        return head

    async def _fold(self, conversation: Conversation, head: int) -> tuple[Refold, int]:
        """The rows up to the head, and the head: further where what comes after it was removed below a floor that was
        raised before the archive noted a later head."""
        folded = Refold()
        while True:
            last, floor = await self._fold_on(conversation, folded, head)
            found = await self._archive.page(conversation, head + 1, floor + 1, 1) if floor > head else []
            if not found:
                break
            head = await self._archived_head(conversation, ArchiveHead(folded.generation, found[0].seq - 1))
        if not folded.revision:
            raise ValueError("the archive has no row of its creation")
        if self._raised is not None:
            await self._raise_generation(conversation, folded, last, head, self._raised)
        return folded, head

    async def _fold_on(self, conversation: Conversation, folded: Refold, head: int) -> tuple[GroupRow | None, int]:
        """Fold what follows; the last row taken, and the highest floor of those that were not."""
        last: GroupRow | None = None
        floor = 0
        async for page in self._group_log.rows(conversation, folded.revision):
            effects = []
            for row in page:
                if folded.takes(row, head):
                    effects.append(folded.take(row))
                    last = row
                elif row.generation >= folded.generation:
                    floor = max(floor, row.floor)
            await self._target.add_rows(conversation, effects, self._entries_from_ms)
        return last, floor

    async def _raise_generation(
        self, conversation: Conversation, folded: Refold, last: GroupRow | None, head: int, raised: Generation
    ) -> None:
        """The row first, then the head: whoever reads the archive meanwhile finds the line without what was lost."""
        raised_before = last is not None and last.operation is StateChange.GENERATION
        if not raised_before or last is None or last.request_field != raised.recovery:
            row = _generation_row(conversation, folded, head, raised)
            await self._group_log.append([row])
            folded.take(row)
        await self._archive.advance_heads([(conversation, ArchiveHead(folded.generation, head))])

    async def _trimmed(self, conversation: Conversation, floor: int, head: int) -> int:
        """Up to where records are gone: the floor, or further where the floor was raised, and whole buckets below it
        deleted, before the row that says so was archived. What is gone is below the floor then."""
        if floor >= head:
            return head
        first = await self._archive.page(conversation, floor + 1, head, 1)
        trimmed = first[0].seq - 1 if first else head
        if trimmed > floor:
            _log.warning("conversation %s: the archive has nothing up to seq %d", show(conversation.id), trimmed)
        return trimmed

    async def _removed_buckets(self, conversation: Conversation, trimmed: int) -> int:
        """How many seq buckets, the first ones, were deleted below the floor. Where a deletion broke off, some of the
        last ones may still be there: the first of these and those behind it are deleted again."""

        async def is_gone(bucket: int) -> bool:
            return not await self._archive.records(conversation, [last_seq(bucket)])

        gone = await first_buckets(0, whole_buckets(trimmed), is_gone)
        last_ones = range(max(gone - REMOVED_AT_ONCE, 0), gone)
        left = await self._archive.records(conversation, [last_seq(bucket) for bucket in last_ones])
        return seq_bucket(left[0].seq) if left else gone


def _generation_row(conversation: Conversation, folded: Refold, head: int, raised: Generation) -> GroupRow:
    return GroupRow(
        kind=RowKind.STATE,
        operation=StateChange.GENERATION,
        tenant=TenantId(conversation.tenant),
        conversation=ConversationId(conversation.id),
        generation=folded.generation + 1,
        revision=folded.revision + 1,
        version=folded.version,
        head=head,
        count=folded.count,
        audience=None,
        flags=RowFlags.BIG if folded.big else RowFlags.NONE,
        history_from=0,
        floor=folded.floor,
        clear=0,
        actor=ZERO_ID,
        policy=folded.policy,
        request_field=raised.recovery,
        request_digest=bytes(8),
        maker="",
        people=(),
        answer=b"",
        time_ms=max(raised.time_ms, folded.time_ms),
    )

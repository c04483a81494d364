"""Rebuilding the conversations of a commit bucket from the archive, in bounded memory.

A conversation's true archived head is found by reading on from the head that the archive has noted (line_end.py). Its
rows up to that head are folded: rows are archived before the messages that were committed after them, so none of them
is missing. Then its messages above the floor are read once. What is in memory at a time are a conversation's people and
one page, and where the lines of one bucket end.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from dataclasses import dataclass, field
from typing import Final

from qim_common.ids import ZERO_ID, ConversationId, TenantId, show
from qim_common.records import StateChange
from qim_writer.commands.archive_removal import first_buckets
from qim_writer.commands.recover.line_end import PAGE_RECORDS, LineEnd, Seen, read_on
from qim_writer.domain.group_rows import GroupRow, RowFlags, RowKind
from qim_writer.domain.refold import Refold
from qim_writer.domain.remade_messages import RemadeMessages
from qim_writer.domain.seq_buckets import last_seq, seq_bucket, whole_buckets
from qim_writer.storage import Conversation
from qim_writer.storage_archive import (
    REMOVED_AT_ONCE,
    ArchiveHead,
    GroupLog,
    MessageArchive,
)
from qim_writer.storage_recovery import RebuildTarget, RebuiltLine

AT_ONCE: Final = 16
"""Conversations that are rebuilt at the same time; of each a page of messages is in memory."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Generation:
    """That the generation of every conversation rises: `recovery` (16 bytes) tells the row of this recovery from one of
    an earlier one, so that a run which was ended half-way and is run again raises it once. The row is of `time_ms`, or
    of later than whatever the conversation has in the archive: it takes the place of a row that was lost."""

    recovery: bytes
    time_ms: int


@dataclass(slots=True)
class Rebuilt:
    """What was rebuilt: numbers of conversations, messages (control messages included) and rows; `newest_ms`: the
    newest commit time of whatever the archive has of them, and of what was written to it; `ends`: where they end;
    `damaged`: which conversations could not be rebuilt, with the reason. Nothing is there of these."""

    conversations: int = 0
    messages: int = 0
    rows: int = 0
    newest_ms: int = 0
    ends: list[LineEnd] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


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
        """Every conversation of a commit bucket but those that are damaged. Raises BackendUnavailable."""
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
        except (ValueError, struct.error) as error:
            where = f"conversation {show(conversation.id)} of tenant {conversation.tenant}"
            rebuilt.damaged.append(f"{where} cannot be rebuilt: {error}")
            _log.error("%s", rebuilt.damaged[-1])
            await self._target.forget(conversation)

    async def _rebuild(self, conversation: Conversation, noted: ArchiveHead, rebuilt: Rebuilt) -> None:
        seen = Seen()
        created_ms = 0 if noted.seq else await self._created_ms(conversation)
        archived_head = await read_on(self._archive, conversation, noted, created_ms or 0, seen)
        if created_ms is None:
            # Its round came as far as the index, and not to the end of the rows: no message of it was acknowledged
            # as archived, and whatever there is must not be met by the one that is created with the same id.
            rebuilt.newest_ms = max(rebuilt.newest_ms, seen.newest_ms)
            rebuilt.ends.append(LineEnd(conversation, 0, 0, seen.seq, seen.revision))
            return
        folded, head = await self._fold(conversation, archived_head, seen)
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
            page = await self._archive.page(conversation, after + 1, head, PAGE_RECORDS)
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
        rebuilt.newest_ms = max(rebuilt.newest_ms, seen.newest_ms)
        rebuilt.ends.append(LineEnd(conversation, head, folded.revision, seen.seq, seen.revision))

    async def _remember_below(self, conversation: Conversation, remade: RemadeMessages, trimmed: int) -> None:
        """The entries of sends that went below the floor since: from the floor downward as long as the archive has
        them, and as far as requests are known."""
        last = trimmed
        while last > 0:
            page = await self._archive.page(conversation, max(last - PAGE_RECORDS, 0) + 1, last, PAGE_RECORDS)
            await self._target.add_messages(conversation, remade.below(page))
            if not page or page[0].time_ms < self._entries_from_ms:
                return
            last = page[0].seq - 1

    async def _created_ms(self, conversation: Conversation) -> int | None:
        """What is not as old as the conversation is of one with the same id that was lost. None: it was not created,
        as far as the archive knows."""
        async for page in self._group_log.rows(conversation):
            return page[0].time_ms
        return None

    async def _fold(self, conversation: Conversation, head: int, seen: Seen) -> tuple[Refold, int]:
        """The rows up to the head, and the head: further where what comes after it was removed below a floor that was
        raised before the archive noted a later head."""
        folded = Refold()
        while True:
            last, floor = await self._fold_on(conversation, folded, head, seen)
            found = await self._archive.page(conversation, head + 1, floor + 1, 1) if floor > head else []
            if not found or found[0].time_ms < folded.time_ms:
                break
            noted = ArchiveHead(folded.generation, found[0].seq - 1)
            head = await read_on(self._archive, conversation, noted, 0, seen)
        if not folded.revision:
            raise ValueError("the archive has no row of its creation")
        if self._raised is not None:
            await self._raise_generation(conversation, folded, last, head, self._raised, seen)
        return folded, head

    async def _fold_on(
        self, conversation: Conversation, folded: Refold, head: int, seen: Seen
    ) -> tuple[GroupRow | None, int]:
        """Fold what follows; the last row taken, and the highest floor of those that were not."""
        last: GroupRow | None = None
        floor = 0
        async for page in self._group_log.rows(conversation, folded.revision):
            effects = []
            for row in page:
                seen.row(row)
                if folded.takes(row, head):
                    effects.append(folded.take(row))
                    last = row
                elif folded.may_precede(row):
                    floor = max(floor, row.floor)
            await self._target.add_rows(conversation, effects, self._entries_from_ms)
        return last, floor

    async def _raise_generation(
        self,
        conversation: Conversation,
        folded: Refold,
        last: GroupRow | None,
        head: int,
        raised: Generation,
        seen: Seen,
    ) -> None:
        """The row first, then the head: whoever reads the archive meanwhile finds the line without what was lost."""
        raised_before = last is not None and last.operation is StateChange.GENERATION
        if not raised_before or last is None or last.request_field != raised.recovery:
            row = _generation_row(conversation, folded, head, raised, max(raised.time_ms, seen.newest_ms + 1))
            await self._group_log.append([row])
            seen.row(row)
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


def _generation_row(
    conversation: Conversation, folded: Refold, head: int, raised: Generation, time_ms: int
) -> GroupRow:
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
        time_ms=time_ms,
    )

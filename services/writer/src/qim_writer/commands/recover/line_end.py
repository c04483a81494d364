"""Where a recovered line ends in the archive, and what a lost one left behind it.

An archiver writes a round's rows of the group log first, then each conversation's messages in their order, and it may
have died, or have written to too few nodes, at any point. So behind the end of a recovered line there may be rows and
messages that do not belong to it, also some that no read has met. A recovery deletes them, and begins later than any of
them. What it does not reach, far behind the end, is told by its time: commit times never fall along a line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from qim_common.records import Record
from qim_writer.domain.group_rows import GroupRow
from qim_writer.storage import Conversation
from qim_writer.storage_archive import ArchiveHead, GroupLog, MessageArchive

PAGE_RECORDS: Final = 250
"""Records that are read at once: 16 MB where every body has 64 KiB."""

_AT_ONCE: Final = 32


@dataclass(slots=True)
class Seen:
    """What the archive was seen to have of one conversation, whether it belongs to the line or not: the newest seq,
    revision and commit time (ms); 0 for none."""

    seq: int = 0
    revision: int = 0
    newest_ms: int = 0

    def record(self, record: Record) -> None:
        """One more message."""
        self.seq = max(self.seq, record.seq)
        self.newest_ms = max(self.newest_ms, record.time_ms)

    def row(self, row: GroupRow) -> None:
        """One more row."""
        self.revision = max(self.revision, row.revision)
        self.newest_ms = max(self.newest_ms, row.time_ms)


@dataclass(frozen=True, slots=True)
class LineEnd:
    """A recovered line ends at `head` and `revision`; the archive was seen to have something up to `seen_seq` and
    `seen_revision`."""

    conversation: Conversation
    head: int
    revision: int
    seen_seq: int
    seen_revision: int


async def read_on(
    archive: MessageArchive, conversation: Conversation, noted: ArchiveHead, from_ms: int, seen: Seen
) -> int:
    """The true archived head: as far behind the noted one as records of that generation or a later one follow without
    a gap, none committed before `from_ms` or before the one that it follows. `seen` is told of whatever was met, which
    goes on behind the head until there is nothing for a whole page. Raises BackendUnavailable."""
    head, generation, time_ms = noted.seq, noted.generation, from_ms
    first, ended = max(head, 1), False
    while page := await archive.page(conversation, first, first + PAGE_RECORDS - 1, PAGE_RECORDS):
        for record in page:
            seen.record(record)
            if record.seq == noted.seq:
                time_ms = max(time_ms, record.time_ms)
                continue
            ended = ended or record.seq != head + 1 or record.generation < generation or record.time_ms < time_ms
            if not ended:
                head, generation, time_ms = record.seq, record.generation, record.time_ms
        first = page[-1].seq + 1
        if not ended and len(page) < PAGE_RECORDS:
            break
    return head


async def remove_left_behind(
    archive: MessageArchive, group_log: GroupLog, ends: Sequence[LineEnd], before_ms: int
) -> None:
    """Delete what lies behind the ends and was, or is yet to be, written with a commit time before `before_ms`, which
    the recovered lines begin with. Raises BackendUnavailable."""

    async def remove(end: LineEnd) -> None:
        await archive.remove_after(end.conversation, end.head, end.seen_seq, before_ms)
        await group_log.remove_after(end.conversation, end.revision, end.seen_revision, before_ms)

    for start in range(0, len(ends), _AT_ONCE):
        piece = ends[start : start + _AT_ONCE]
        for outcome in await asyncio.gather(*(remove(end) for end in piece), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

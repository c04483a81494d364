"""What the commands ask of the archive, as Protocols (storage.md, "Backends": tiered).

Every method raises `BackendUnavailable` when the archive does not answer: what was to be written may have been, and is
written again without harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from qim_common.positions import Position
from qim_common.records import Record
from qim_writer.domain.group_rows import GroupRow
from qim_writer.storage import Conversation

ARCHIVE_PAGE_MAX: Final = 1000
"""The most records of one page."""


@dataclass(frozen=True, slots=True)
class ArchiveRow:
    """A message on its way into the archive: its record as the commit wrote it (qim_common.records)."""

    seq: int
    record: bytes


@dataclass(frozen=True, slots=True, order=True)
class ArchiveHead:
    """The archive holds every seq of the conversation up to `seq`, but for those removed below the floor."""

    generation: int
    seq: int


class MessageArchive(Protocol):
    """The messages that have left the outbox: durable at QUORUM, never changed, removed only below a floor."""

    async def append(self, conversation: Conversation, rows: Sequence[ArchiveRow]) -> None:
        """Write records; once this returns, they are held at QUORUM. The same (conversation, seq) again has no effect.

        The head does not move: `advance_head` does, once everything up to it is held. Raises ValueError for a record
        that cannot be one, before anything is written."""
        ...

    async def advance_head(self, conversation: Conversation, head: ArchiveHead) -> None:
        """Note how far the archive is; forward only, an older head has no effect."""
        ...

    async def head(self, conversation: Conversation) -> ArchiveHead | None:
        """How far the archive is; None for a conversation that it does not know."""
        ...

    def heads(self, bucket: int) -> AsyncIterator[list[tuple[Conversation, ArchiveHead]]]:
        """All conversations of a commit bucket with their heads, in pages."""
        ...

    async def page(
        self, conversation: Conversation, first: int, last: int, limit: int, *, newest_first: bool = False
    ) -> list[Record]:
        """At most `limit` (1 to 1,000) records of `[first, last]`, from `first` upward or from `last` downward.

        The caller has cut the range by what may be read (design.md invariant 6), and by the floor: a long stretch
        that holds nothing is read as a long one. Raises ValueError for another limit."""
        ...

    async def records(self, conversation: Conversation, seqs: Sequence[int]) -> list[Record]:
        """The records of these seqs, in their order; those that are not there are left out."""
        ...

    async def remove_buckets(self, conversation: Conversation, buckets: Sequence[int]) -> None:
        """Delete whole seq buckets (`qim_writer.domain.seq_buckets`) that lie at or below the floor; again: no effect.

        Records of them that are written later, by an archiver that lags, are gone as well."""
        ...


class GroupLog(Protocol):
    """What changed in each conversation: one row per revision, never deleted."""

    async def append(self, rows: Sequence[GroupRow]) -> None:
        """Write rows of any conversations, durable at QUORUM once this returns; the same row again has no effect.

        A row of a higher generation replaces one of a lower at the same revision."""
        ...

    def rows(self, conversation: Conversation, after_revision: int = 0) -> AsyncIterator[list[GroupRow]]:
        """The rows after a revision, ascending, in pages; up to the first revision that is missing."""
        ...


@dataclass(frozen=True, slots=True)
class ArchivePosition:
    """How far one dispatch log may have been archived, at most: the entry's id, and the identity of the log."""

    log_id: str
    position: Position


class ArchivePositions(Protocol):
    """What the archive may have seen of each commit instance; the fence compares it with what the instance holds.

    An archiver announces a position before it writes anything of the entries up to it: an instance whose log ends below
    has lost what once was in it."""

    async def announce(self, instance: int, positions: Mapping[int, ArchivePosition]) -> None:
        """Commit bucket to position, forward only; durable at QUORUM once this returns. In one batch."""
        ...

    async def of(self, instance: int) -> dict[int, ArchivePosition]:
        """All positions of one commit instance, by its place in the configured list."""
        ...

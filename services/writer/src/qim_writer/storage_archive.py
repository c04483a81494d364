"""What the commands ask of the archive of messages, as a Protocol (storage.md, "Backends": tiered).

Every method raises `BackendUnavailable` when the archive does not answer: what was to be written may have been, and is
written again without harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from qim_common.records import Record
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

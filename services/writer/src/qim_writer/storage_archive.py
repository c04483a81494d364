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
from qim_writer.domain.archive_rounds import ArchiveRow as ArchiveRow
from qim_writer.domain.group_rows import GroupRow
from qim_writer.storage import Conversation

ARCHIVE_PAGE_MAX: Final = 1000
"""The most records of one page."""

REMOVED_AT_ONCE: Final = 16
"""Seq buckets that are deleted at the same time, one such piece after another."""


@dataclass(frozen=True, slots=True, order=True)
class ArchiveHead:
    """The archive holds every seq of the conversation up to `seq`, but for those removed below the floor."""

    generation: int
    seq: int


@dataclass(frozen=True, slots=True)
class RemovalState:
    """How far what lies below a conversation's floor is removed.

    Attributes:
        gone: so many seq buckets, the first ones, are deleted from the archive.
        floor, trimmed: the floor, and the seq up to which Redis has no records any more.
        archived: whether every change of the conversation is in the archive, so also what moved the floor, and
            everything up to it.
        generation, archived_seq: the conversation's generation, and the newest archived seq.
        newest: the newest seq that reached everybody; 0 for none.
    """

    gone: int
    floor: int
    trimmed: int
    archived: bool
    generation: int
    archived_seq: int
    newest: int


class MessageArchive(Protocol):
    """The messages that have left the outbox: durable at QUORUM, never changed, removed only below a floor."""

    async def append(self, conversation: Conversation, rows: Sequence[ArchiveRow]) -> None:
        """Write records; once this returns, they are held at QUORUM. The same (conversation, seq) again has no effect.

        They are written in their order, so that what is held is always a beginning. The head does not move:
        `advance_heads` does, once everything up to it is held. Raises ValueError for a record that cannot be one,
        before anything is written."""
        ...

    async def advance_heads(self, heads: Sequence[tuple[Conversation, ArchiveHead]]) -> None:
        """Note how far the archive is, for any conversations; forward only, an older head has no effect."""
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
        In their order, `REMOVED_AT_ONCE` at the same time.

        Records of them that are written later, by an archiver that lags, are gone as well."""
        ...

    async def remove_after(self, conversation: Conversation, seq: int, last: int, before_ms: int) -> None:
        """Delete what a lost line left behind: the records above `seq` that were committed before `before_ms`, to the
        end of the seq bucket of `last`, at least to that of `seq + 1`. Again: no effect.

        They are gone also where they are written later, or were written to fewer nodes than answer a read. Records
        that are committed at `before_ms` or later hold."""
        ...


class ArchiveRemovals(Protocol):
    """How far the archive's records of a conversation were removed below its floor; noted beside the floor."""

    async def removed(self, conversation: Conversation, buckets: int = 0) -> RemovalState:
        """Note that the first `buckets` seq buckets are deleted (0: only look); how things stand then."""
        ...


class GroupLog(Protocol):
    """What changed in each conversation: one row per revision. Only what a lost line left behind is ever deleted."""

    async def append(self, rows: Sequence[GroupRow]) -> None:
        """Write rows of any conversations, durable at QUORUM once this returns; the same row again has no effect.

        Of two rows of the same revision the one with the later commit time holds, as a whole."""
        ...

    def rows(self, conversation: Conversation, after_revision: int = 0) -> AsyncIterator[list[GroupRow]]:
        """The rows after a revision, ascending, in pages; up to the first revision that is missing."""
        ...

    async def remove_after(self, conversation: Conversation, revision: int, last: int, before_ms: int) -> None:
        """Delete what a lost line left behind: the rows above `revision` that were committed before `before_ms`, to the
        end of the partition of `last`, at least to that of `revision + 1`; as `MessageArchive.remove_after`."""
        ...


@dataclass(frozen=True, slots=True)
class ArchivePosition:
    """How far one dispatch log may have been archived, at most: the entry's id, and the identity of the log. `former`:
    the identities that the instance's logs had before, the newest last; none: what was noted of them stays."""

    log_id: str
    position: Position
    former: tuple[str, ...] = ()


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

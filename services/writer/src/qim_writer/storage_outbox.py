"""What the archiver asks of a commit instance, as Protocols (docs/decisions/0016): the dispatch logs are the outbox.

Every method raises `BackendUnavailable` when the instance does not answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from qim_common.positions import Position
from qim_writer.domain.archive_rounds import BucketRound, OutboxEntry
from qim_writer.storage import Conversation


@dataclass(frozen=True, slots=True)
class OutboxState:
    """What an instance tells of its logs.

    Attributes:
        log_id: their identity.
        archived: by bucket, the newest entry that is archived with all before it; without those of `refused`.
        refused: why a bucket cannot be archived: its log has lost entries after that, which must never be, or its keys
            cannot be read.
    """

    log_id: str
    archived: dict[int, Position]
    refused: dict[int, str]


@dataclass(frozen=True, slots=True)
class OutboxRead:
    """Entries by bucket, ascending; buckets without any are left out.

    Attributes:
        unreadable: why a bucket's entry after these is none; nothing behind it was read.
        log_id: the identity of the logs at this moment.
        server_ms: the instance's time, taken before the reading.
        complete: whether nothing more was there.
        life: of the instance when it was read, which ends with the connection.
    """

    entries: dict[int, list[OutboxEntry]]
    unreadable: dict[int, str]
    log_id: str
    server_ms: int
    complete: bool
    life: int


class Outbox(Protocol):
    """The dispatch logs of one commit instance, read by the archiver; any number of processes may."""

    @property
    def instance(self) -> int:
        """The instance's place in the configured list."""
        ...

    @property
    def buckets(self) -> Sequence[int]:
        """The buckets that it holds, ascending."""
        ...

    async def state(self) -> OutboxState:
        """Where the archive is, and whether every log still has what comes after."""
        ...

    async def read(self, after: Mapping[int, Position], *, max_bytes: int) -> OutboxRead:
        """Entries after these positions, from all buckets alike, until about `max_bytes` were read."""
        ...

    async def confirm(self, life: int) -> None:
        """Raise BackendUnavailable unless the instance still lives that life: it may have come back without what was
        read. Whoever has announced positions and confirmed them is sure that an instance which loses them is fenced."""
        ...

    async def records(self, conversation: Conversation, seqs: Sequence[int]) -> list[bytes | None]:
        """The records of these seqs as they are stored; None for one that is archived already and has left."""
        ...

    async def note(self, rounds: Sequence[BucketRound]) -> frozenset[int]:
        """Note that everything of these rounds is in the archive: `arch`, and of each conversation the archived head
        and revision, which only rise.

        By compare-and-set: answered and unchanged are the buckets where `arch` was not at the round's beginning, as
        another archiver was faster or the instance went back, or whose log has lost entries."""
        ...


@dataclass(frozen=True, slots=True)
class OutboxBehind:
    """How far the archive is behind an instance's logs.

    Attributes:
        messages: messages and state entries that are recorded and not archived.
        oldest_ms: the commit time of the oldest entry that is not archived; None where there is none.
        server_ms: the instance's time, taken before the logs were asked.
    """

    messages: int
    oldest_ms: int | None
    server_ms: int


class Behind(Protocol):
    """How far the archive is behind one instance; asked beside the rounds, on a connection of its own."""

    @property
    def instance(self) -> int:
        """The instance's place in the configured list."""
        ...

    async def look(self) -> OutboxBehind:
        """Ask all logs. A bucket whose keys cannot be read counts for nothing."""
        ...


class ArchiveLease(Protocol):
    """Which archiver works on an instance. Two at once do no harm, so nothing is fenced by it."""

    async def hold(self) -> bool:
        """Take or renew it; whether this process has it now."""
        ...

    async def release(self) -> None:
        """Give it up, so that another process need not wait for its end."""
        ...


@dataclass(frozen=True, slots=True)
class Evicted:
    """What one step removed: so many records, and whether more of the conversation may go."""

    records: int
    more: bool


class HotRecords(Protocol):
    """The records of one instance that are archived and still there."""

    @property
    def instance(self) -> int:
        """The instance's place in the configured list."""
        ...

    @property
    def buckets(self) -> Sequence[int]:
        """The buckets that the instance holds, ascending."""
        ...

    async def due(self, bucket: int, older_than_ms: int, limit: int) -> list[Conversation]:
        """Conversations with archived records older than so many ms by the instance's clock; at most `limit`."""
        ...

    async def evict(self, conversation: Conversation, older_than_ms: int) -> Evicted:
        """Remove such records of a conversation, at most 1,000: never one that is not archived, the newest that reached
        everybody, or one before or at a control seq, which lists show to leavers."""
        ...

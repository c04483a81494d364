"""What entries of a dispatch log become in the archive. Pure.

The log is the outbox (docs/decisions/0016): an entry carries everything but the records' headers and the tails that are
too large for it. The header is rebuilt from the block, so that a record is byte for byte what `msgrec` holds
(qim_common.records); a tail that is not there is marked, and its record read from Redis.

Entries are cut by hand and no message is made an object: this is the archiver's hot loop.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from qim_common.ids import ConversationId, TenantId
from qim_common.positions import Position
from qim_common.records import EVENT_NOT_INLINED, RECORD_VERSION, Audience, BlockKind, StateChange
from qim_writer.domain.group_rows import GroupRow, unpack_group_rows

_BLOCK: Final = struct.Struct(">B24sB4s6s6s6s6sH")
_ITEM: Final = struct.Struct(">BI")
_LEAD: Final = struct.Struct(">BB6s6s")
_TENANT: Final = struct.Struct(">Q")
_BROADCAST: Final = int(Audience.BROADCAST)
_MESSAGES: Final = int(BlockKind.MESSAGES)
_STATE: Final = int(BlockKind.STATE)
_AUDIENCES: Final = frozenset(int(audience) for audience in Audience)
_CREATED: Final = int(StateChange.CREATED)
_MANY_MESSAGES: Final = 1000
_SMALL_BATCH: Final = 40
"""Messages of a busy round, and of one conversation in it: a batch costs the nodes as much as tens of rows do."""


class ArchiveRow(NamedTuple):
    """A message on its way into the archive: its record as the commit wrote it (qim_common.records)."""

    seq: int
    record: bytes


class OutboxEntry(NamedTuple):
    """An entry of a dispatch log: its id, its blocks (qim_common.records), and the rows of the group log that it
    carries (qim_writer.domain.group_rows), empty for none."""

    position: Position
    blocks: bytes
    group_rows: bytes


@dataclass(slots=True)
class ConversationRound:
    """What one round brings of one conversation.

    Attributes:
        scope: tenant u64 and conversation.
        rows: its messages, ascending; the record of one that is too large for the log is empty.
        too_large: the places of those in `rows`.
        head: the newest seq of the round; 0 where it has no message.
        revision, generation: the newest ones.
        oldest_ms: the commit time of the first message; 0 where there is none.
        created: whether its creation is in this round.
    """

    scope: bytes
    tenant: TenantId
    conversation: ConversationId
    rows: list[ArchiveRow] = field(default_factory=list)
    too_large: list[int] = field(default_factory=list)
    head: int = 0
    revision: int = 0
    generation: int = 0
    oldest_ms: int = 0
    created: bool = False

    def pieces(self, large_most: int) -> Iterator[list[ArchiveRow]]:
        """The rows in their order, in pieces with at most so many whose record is still to be read."""
        begin = 0
        for at in self.too_large[large_most::large_most]:
            yield self.rows[begin:at]
            begin = at
        if begin < len(self.rows):
            yield self.rows[begin:]


@dataclass(slots=True)
class BucketRound:
    """What one round brings of one bucket's dispatch log.

    Attributes:
        after, upto: the entries in `(after, upto]`.
        conversations: by scope, in the order of their first block.
        group_rows: in the order of the log.
        recorded: messages and state entries; `entries` of the log.
    """

    bucket: int
    after: Position
    upto: Position
    conversations: dict[bytes, ConversationRound] = field(default_factory=dict)
    group_rows: list[GroupRow] = field(default_factory=list)
    recorded: int = 0
    entries: int = 0


class UnreadableEntry(ValueError):  # noqa: N818  it says what happened, as those of qim_common.errors do
    """An entry is none that a script writes.

    Attributes:
        readable: how many entries before it can be read.
    """

    def __init__(self, message: str, readable: int) -> None:
        super().__init__(message)
        self.readable = readable


def gather(bucket: int, after: Position, entries: Iterable[OutboxEntry]) -> BucketRound:
    """Everything that the entries hold. Raises UnreadableEntry: nothing of that one may be archived."""
    found = BucketRound(bucket, after, after)
    for entry in entries:
        try:
            _take_blocks(found, entry.blocks, entry.position.ms)
            if entry.group_rows:
                _take_rows(found, list(unpack_group_rows(entry.group_rows, entry.position.ms)))
        except (struct.error, ValueError, OverflowError) as error:
            words = f"dispatch entry {entry.position} of bucket {bucket} cannot be read: {error}"
            raise UnreadableEntry(words, found.entries) from error
        found.upto = entry.position
        found.entries += 1
    return found


def _take_rows(found: BucketRound, rows: list[GroupRow]) -> None:
    found.group_rows += rows
    for row in rows:
        if row.operation is StateChange.GENERATION:
            # Raised in place, which is the one change that no block tells of.
            scope = _TENANT.pack(row.tenant) + row.conversation
            into = found.conversations.setdefault(scope, ConversationRound(scope, row.tenant, row.conversation))
            into.revision, into.generation = row.revision, row.generation


def _take_blocks(found: BucketRound, data: bytes, time_ms: int) -> None:
    conversations = found.conversations
    time = time_ms.to_bytes(6, "big")
    at, end = 0, len(data)
    while at < end:
        kind, scope, _, generation, version, revision, prev, first, count = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        into = conversations.get(scope)
        if into is None:
            (tenant,) = _TENANT.unpack_from(scope)
            into = conversations[scope] = ConversationRound(scope, TenantId(tenant), ConversationId(scope[8:]))
        into.revision = int.from_bytes(revision, "big")
        into.generation = int.from_bytes(generation, "big")
        found.recorded += count
        if kind == _MESSAGES:
            if not into.oldest_ms:
                into.oldest_ms = time_ms
            at = _take_messages(into, data, at, (version, time, prev, generation), int.from_bytes(first, "big"), count)
        elif kind == _STATE:
            change, length = _ITEM.unpack_from(data, at)
            into.created = into.created or change == _CREATED
            at += _ITEM.size + length
        else:
            raise ValueError(f"a block of the kind {kind}")
    if at != end:
        raise ValueError("it is cut short")


def _take_messages(
    into: ConversationRound, data: bytes, at: int, header: tuple[bytes, bytes, bytes, bytes], seq: int, count: int
) -> int:
    """Appends the records of one block; returns where the next one begins."""
    version, time, prev, generation = header
    lead, lead_of = b"", -1
    item, size, append = _ITEM.unpack_from, _ITEM.size, into.rows.append
    for _ in range(count):
        audience, length = item(data, at)
        at += size
        if audience != lead_of:
            if audience not in _AUDIENCES:
                raise ValueError(f"seq {seq} has the audience {audience}")
            lead, lead_of = _LEAD.pack(RECORD_VERSION, audience, version, time), audience
        if length >= EVENT_NOT_INLINED:
            into.too_large.append(len(into.rows))
            append(ArchiveRow(seq, b""))
        else:
            begin = at
            at += length
            if at > len(data):
                raise ValueError("it is cut short")
            append(ArchiveRow(seq, lead + prev + generation + data[begin:at]))
        if audience == _BROADCAST:
            prev = seq.to_bytes(6, "big")
        seq += 1
    into.head = seq - 1
    return at


def patience(buckets: Sequence[BucketRound]) -> int:
    """How many times as long as usual entries gather after this round: twice where many conversations had few messages
    each and together many, so that the nodes get fewer and larger batches."""
    conversations = sum(len(one.conversations) for one in buckets)
    messages = sum(one.recorded for one in buckets)
    return 2 if messages >= _MANY_MESSAGES and messages < conversations * _SMALL_BATCH else 1

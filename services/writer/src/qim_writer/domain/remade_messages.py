"""What a conversation's messages add to its keys, computed from the archived records in their order. Pure.

Only what a commit, an unread count and a list need is made: the sender column, samples of time, and the few records
that stay in Redis always (lua/evict_records.lua): the newest that reached everybody and all above it, and those at and
right before a control seq. All others are read from the archive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.keys import SENDER_SEGMENT, sender_segment
from qim_common.records import Record, RecordType, pack_record, pack_tail_of
from qim_writer.domain.refold import RefoldedPerson
from qim_writer.domain.send_identity import send_answer, send_key

SAMPLE_SEQS: Final = 1000
SAMPLE_MS: Final = 3_600_000
"""As in send.lua."""

NOBODY: Final = b"\0\0\0"
"""In the sender column, of what nobody sent: a control message."""


@dataclass(slots=True)
class MessageBatch:
    """What some records in a row add: `columns` by segment, what is appended to the sender column; `samples` (time,
    seq); `records` by seq; `entries` (field, value) of idempotency."""

    columns: dict[int, bytearray] = field(default_factory=dict)
    samples: list[tuple[int, int]] = field(default_factory=list)
    records: dict[int, bytes] = field(default_factory=dict)
    entries: list[tuple[bytes, bytes]] = field(default_factory=list)


class RemadeMessages:
    """The messages of one conversation, taken in their order.

    Args:
        tenant, conversation: whose.
        people: everybody who ever was in it.
        controls: the seqs of membership events.
        floor: nothing at or below it is taken; the column holds nobody there.
        newest: the newest seq that reached everybody.
        entries_from_ms: sends that were committed before have no idempotency entry.

    Attributes:
        sample_ms: the time of the newest sample, 0 for none.
        time_ms: the commit time of the newest record, 0 for none.
    """

    def __init__(
        self,
        tenant: TenantId,
        conversation: ConversationId,
        people: Mapping[UserId, RefoldedPerson],
        controls: AbstractSet[int],
        *,
        floor: int,
        newest: int,
        entries_from_ms: int,
    ) -> None:
        self._tenant = tenant
        self._conversation = conversation
        self._ordinals = {user: person.ordinal.to_bytes(3, "big") for user, person in people.items()}
        self._controls = controls
        self._newest = newest
        self._entries_from_ms = entries_from_ms
        self._head = floor
        self.sample_ms = 0
        self.time_ms = 0

    def begin(self) -> MessageBatch:
        """The column up to the floor, of the segment that the first message above it is in: of nobody."""
        segment = sender_segment(self._head + 1)
        first = segment * SENDER_SEGMENT + 1
        batch = MessageBatch()
        if self._head >= first:
            batch.columns[segment] = bytearray(NOBODY * (self._head - first + 1))
        return batch

    def take(self, records: Sequence[Record]) -> MessageBatch:
        """The next records. Raises ValueError for one that is not the next, or whose sender never was in it."""
        batch = MessageBatch()
        for record in records:
            if record.seq != self._head + 1:
                raise ValueError(f"the archive has seq {record.seq} after {self._head}")
            self._take(batch, record)
            self._head = record.seq
        return batch

    def _take(self, batch: MessageBatch, record: Record) -> None:
        seq, tail = record.seq, record.tail
        ordinary = tail.type is RecordType.ORDINARY
        ordinal = self._ordinals.get(tail.sender) if ordinary else NOBODY
        if ordinal is None:
            raise ValueError(f"the sender of seq {seq} never was in the conversation")
        segment = sender_segment(seq)
        batch.columns.setdefault(segment, bytearray()).extend(ordinal)
        if seq % SAMPLE_SEQS == 0 or record.time_ms - self.sample_ms >= SAMPLE_MS:
            batch.samples.append((record.time_ms, seq))
            self.sample_ms = record.time_ms
        self.time_ms = record.time_ms
        if seq >= self._newest or seq in self._controls or seq + 1 in self._controls:
            batch.records[seq] = pack_record(record)
        self._add_entry(batch, record)

    def below(self, records: Sequence[Record]) -> MessageBatch:
        """The idempotency entries of records at or below the floor: who repeats a send need not know of the floor."""
        batch = MessageBatch()
        for record in records:
            self._add_entry(batch, record)
        return batch

    def _add_entry(self, batch: MessageBatch, record: Record) -> None:
        tail = record.tail
        if tail.type is RecordType.CONTROL or record.time_ms < self._entries_from_ms:
            return
        packed = pack_tail_of(tail)
        key = send_key(self._tenant, tail.sender, self._conversation, tail.client_message_id, packed)
        answer = send_answer(record.seq, record.time_ms, record.membership_version, record.generation)
        batch.entries.append((key.field, key.digest + answer))

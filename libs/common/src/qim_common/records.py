"""Message records and dispatch entries as bytes (storage.md, "Keys per conversation"). Pure; big-endian throughout.

A record (value of `msgrec`) is a header that the commit script writes, then the tail that the writer made:

    version u8 = 1 | audience u8 | membership version u48 | time u48 (ms) | prev u48 | generation u32
    type u8 | sender 16 | device 16 | client_message_id 16 | length u8 | custom_type | body

An entry of the dispatch log has one field, `e`: blocks, one after another, each of one conversation:

    kind u8 | tenant u64 | conversation 16 | flags u8 | generation u32 | version u48 | revision u48
    | prev u48 | first seq u48 | count u16 | count items

    MESSAGES items: audience u8 | length u32 | tail; length 2^32-1: a message too large to be inlined, 2^32-2: a
                    membership event too large to be inlined; no tail follows
    STATE items:    change u8   | length u32 | payload

The milliseconds of the entry's id are the commit time of everything in it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import NamedTuple

from qim_common.ids import ConversationId, DeviceId, TenantId, UserId

RECORD_VERSION = 1
RECORD_HEADER_BYTES = 24
NOT_INLINED = 2**32 - 1
EVENT_NOT_INLINED = 2**32 - 2

CUSTOM_TYPE_MAX_BYTES = 128
DISPATCH_FIELD = b"e"

_TAIL = struct.Struct(">B16s16s16sB")
# A u48 is read as its upper two and its lower four bytes: two numbers are made faster than a string and a number of it.
_HEADER = struct.Struct(">BBHIHIHII")
_BLOCK = struct.Struct(">BQ16sBIHIHIHIHIH")
_ITEM = struct.Struct(">BI")


class RecordType(IntEnum):
    """The type of a message, as on the wire."""

    ORDINARY = 1
    CONTROL = 2


class Audience(IntEnum):
    """Whom a message reaches (design.md invariant 4), as on the wire."""

    BROADCAST = 1
    CONCERNED = 2


class BlockKind(IntEnum):
    """What a block of a dispatch entry holds."""

    MESSAGES = 1
    STATE = 2


class BlockFlags(IntFlag):
    """Facts about the conversation that every block carries."""

    NONE = 0
    BIG = 1
    """Above `projection_fanout_max_members`."""

    BIG_BEGAN = 2
    """This change, or creation, turned BIG on."""


class StateChange(IntEnum):
    """What a state entry changed (design.md, "Words")."""

    CREATED = 1
    SETTINGS = 2
    OWNER = 3
    FLOOR = 4
    OWN_CLEAR = 5
    FROZEN = 6
    GENERATION = 7
    """Acknowledged seqs were lost for good (design.md invariant 11). Only in the group log: no block of a dispatch log
    tells of it."""


# By the stored number: a message has two or three of these, and asking their class takes as long as all the rest.
_FLAGS = {value: BlockFlags(value) for value in range(256)}
_TYPES = {value.value: value for value in RecordType}
_AUDIENCES = {value.value: value for value in Audience}

_OPAQUE = {NOT_INLINED: RecordType.ORDINARY, EVENT_NOT_INLINED: RecordType.CONTROL}


class Tail(NamedTuple):
    """The part of a record that its sender decided."""

    type: RecordType
    sender: UserId
    device: DeviceId
    client_message_id: bytes
    custom_type: str
    body: bytes


class Record(NamedTuple):
    """One message as it is stored. `time_ms` is the server's; `prev` as in design.md invariant 12."""

    seq: int
    audience: Audience
    membership_version: int
    time_ms: int
    prev: int
    generation: int
    tail: Tail


@dataclass(frozen=True, slots=True)
class DispatchItem:
    """A message of a dispatch block; `tail` is None when it was too large to be inlined."""

    seq: int
    prev: int
    audience: Audience
    type: RecordType
    tail: Tail | None


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """A run of messages of one conversation, committed by one script call at one version."""

    tenant: TenantId
    conversation: ConversationId
    flags: BlockFlags
    generation: int
    version: int
    revision: int
    items: tuple[DispatchItem, ...]


@dataclass(frozen=True, slots=True)
class StateBlock:
    """A change without a seq; `head` is the conversation's newest seq at that moment."""

    tenant: TenantId
    conversation: ConversationId
    flags: BlockFlags
    generation: int
    version: int
    revision: int
    head: int
    change: StateChange
    payload: bytes


Block = MessageBlock | StateBlock


def pack_tail(
    record_type: RecordType, sender: bytes, device: bytes, client_message_id: bytes, custom_type: bytes, body: bytes
) -> bytes:
    """A record's tail. `custom_type` is UTF-8 of at most 128 bytes."""
    return _TAIL.pack(record_type, sender, device, client_message_id, len(custom_type)) + custom_type + body


def pack_tail_of(tail: Tail) -> bytes:
    """The inverse of `unpack_tail`."""
    return pack_tail(tail.type, tail.sender, tail.device, tail.client_message_id, tail.custom_type.encode(), tail.body)


def unpack_tail(data: bytes) -> Tail:
    """The tail of a record; raises struct.error when it is cut short."""
    kind, sender, device, message_id, length = _TAIL.unpack_from(data)
    start = _TAIL.size
    custom_type = data[start : start + length].decode() if length else ""
    body = data[start + length :]
    return Tail(_TYPES[kind], UserId(sender), DeviceId(device), message_id, custom_type, body)


def pack_record(record: Record) -> bytes:
    """The inverse of `unpack_record`: the value of `msgrec`, byte for byte as the commit wrote it."""
    numbers = (record.membership_version, record.time_ms, record.prev)
    halves = [half for number in numbers for half in (number >> 32, number & 0xFFFFFFFF)]
    header = _HEADER.pack(RECORD_VERSION, record.audience, *halves, record.generation)
    return header + pack_tail_of(record.tail)


def unpack_record(seq: int, data: bytes) -> Record:
    """The record stored under `seq`; raises ValueError for a version that this code does not know."""
    if data[0] != RECORD_VERSION:
        raise ValueError(f"record version {data[0]} of seq {seq} is not known")
    _, audience, version_hi, version, time_hi, time, prev_hi, prev, generation = _HEADER.unpack_from(data)
    return Record(
        seq,
        _AUDIENCES[audience],
        version_hi << 32 | version,
        time_hi << 32 | time,
        prev_hi << 32 | prev,
        generation,
        unpack_tail(data[RECORD_HEADER_BYTES:]),
    )


def unpack_blocks(data: bytes) -> Iterator[Block]:
    """The blocks of one dispatch entry, in commit order."""
    at = 0
    while at < len(data):
        kind, tenant, conversation, flags, generation, *numbers, count = _BLOCK.unpack_from(data, at)
        version_hi, version, revision_hi, revision, prev_hi, prev, first_hi, first = numbers
        at += _BLOCK.size
        common = (
            TenantId(tenant),
            ConversationId(conversation),
            _FLAGS[flags],
            generation,
            version_hi << 32 | version,
            revision_hi << 32 | revision,
        )
        head = first_hi << 32 | first
        if kind == BlockKind.MESSAGES:
            items, at = _unpack_items(data, at, head, prev_hi << 32 | prev, count)
            yield MessageBlock(*common, items)
        else:
            change, length = _ITEM.unpack_from(data, at)
            at += _ITEM.size
            payload = data[at : at + length]
            at += length
            yield StateBlock(*common, head, StateChange(change), payload)


def _unpack_items(data: bytes, at: int, seq: int, prev: int, count: int) -> tuple[tuple[DispatchItem, ...], int]:
    items = []
    for _ in range(count):
        audience, length = _ITEM.unpack_from(data, at)
        at += _ITEM.size
        tail = None
        if length >= EVENT_NOT_INLINED:
            record_type = _OPAQUE[length]
        else:
            tail = unpack_tail(data[at : at + length])
            record_type = tail.type
            at += length
        items.append(DispatchItem(seq, prev, _AUDIENCES[audience], record_type, tail))
        if audience == Audience.BROADCAST:
            prev = seq
        seq += 1
    return tuple(items), at

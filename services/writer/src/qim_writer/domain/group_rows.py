"""What changed in a conversation with one revision, everything resolved: a row of `group_log` (storage.md, "Backends").

Folding the rows of a conversation in the order of their revisions rebuilds it. The committing scripts pack a row
(`lua/include/group_rows.lua`) into the field `g` of the dispatch entry that tells of the change, so that the archiver
meets changes and messages in one order. Big-endian:

    kind u8 | operation u8 | tenant u64 | conversation 16 | generation u32 | revision u48 | version u48 | head u48
    | count u32 | audience u8 | flags u8 | history_from u48 | floor u48 | clear u48 | actor 16 | policy 37
    | request field 16 | request digest 8 | length u8 | people u16 | length u16 | maker | people 16 each | answer

The commit time is the milliseconds of the entry's id. The answers to a creation and to a membership change end with it;
the script, which packs the row before the entry has its id, leaves a zero there, and reading puts the time in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId
from qim_common.records import Audience, StateChange

GROUP_ROWS_FIELD: Final = b"g"
_ROW: Final = struct.Struct(">BBQ16sI6s6s6sIBB6s6s6s16s37s16s8sBHH")
_ID: Final = 16
_TIME_BYTES: Final = 6


class RowKind(IntEnum):
    """What a row tells of."""

    MEMBERSHIP = 1
    """A membership change; the operation is a `MembershipOp`, and `head` is its seq J."""

    STATE = 2
    """A change without a seq, creation being the first; the operation is a `StateChange`."""


class RowFlags(IntFlag):
    """Facts that a row resolves."""

    NONE = 0
    KEEPS_EARLIER = 1
    """Of the stays that a join opens."""
    REVOKED = 2
    """Of the stays that a leave or removal closes."""
    BIG = 4
    """The conversation is too large to be projected per message, after the change."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One row.

    Attributes:
        revision: from 1, creation; `generation`, `version`, `head`, `count`, `floor`, `policy` (packed, 37 bytes) are
            those after the change.
        audience: of a membership event; None for a state entry.
        history_from: of the stays that a join opens.
        people: those who were changed, or put in at the creation, in the order in which they got their sender
            ordinals; of an own clear the one person.
        clear: the own clear point, of an own clear.
        actor: of a membership event, 16 bytes; zeros for nobody.
        maker: who made a state entry.
        request_field, request_digest, answer: the idempotency entry; empty where there is none.
        time_ms: the commit time.
    """

    kind: RowKind
    operation: MembershipOp | StateChange
    tenant: TenantId
    conversation: ConversationId
    generation: int
    revision: int
    version: int
    head: int
    count: int
    audience: Audience | None
    flags: RowFlags
    history_from: int
    floor: int
    clear: int
    actor: bytes
    policy: bytes
    request_field: bytes
    request_digest: bytes
    maker: str
    people: tuple[UserId, ...]
    answer: bytes
    time_ms: int


def unpack_group_rows(data: bytes, time_ms: int) -> Iterator[GroupRow]:
    """The rows of one entry's field; raises struct.error or ValueError for bytes that are none."""
    at = 0
    while at < len(data):
        kind, operation, tenant, conversation, generation, *numbers = _ROW.unpack_from(data, at)
        revision, version, head, count, audience, flags, history_from, floor, clear, actor, policy, *rest = numbers
        field, digest, maker_length, people_count, answer_length = rest
        at += _ROW.size
        end = at + maker_length + people_count * _ID + answer_length
        if end > len(data):
            raise ValueError("a row of the group log is cut short")
        maker = data[at : at + maker_length].decode()
        at += maker_length
        people = tuple(UserId(data[at + n * _ID : at + (n + 1) * _ID]) for n in range(people_count))
        at += people_count * _ID
        answer = data[at:end]
        row_kind = RowKind(kind)
        if answer and (row_kind is RowKind.MEMBERSHIP or operation == StateChange.CREATED):
            answer = answer[:-_TIME_BYTES] + time_ms.to_bytes(_TIME_BYTES, "big")
        yield GroupRow(
            kind=row_kind,
            operation=MembershipOp(operation) if row_kind is RowKind.MEMBERSHIP else StateChange(operation),
            tenant=TenantId(tenant),
            conversation=ConversationId(conversation),
            generation=generation,
            revision=_u48(revision),
            version=_u48(version),
            head=_u48(head),
            count=count,
            audience=Audience(audience) if audience else None,
            flags=RowFlags(flags),
            history_from=_u48(history_from),
            floor=_u48(floor),
            clear=_u48(clear),
            actor=actor,
            policy=policy,
            request_field=field if any(field) else b"",
            request_digest=digest if any(field) else b"",
            maker=maker,
            people=people,
            answer=answer,
            time_ms=time_ms,
        )
        at = end


def _u48(data: bytes) -> int:
    return int.from_bytes(data, "big")

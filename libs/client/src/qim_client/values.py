"""The words of qim that recur in calls and answers, as frozen values (design.md, "Words").

Times are milliseconds since the epoch. seqs count the messages of a conversation from 1; 0 stands for "none".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from qim_common.enums import LeaverHistory, MemberState, NewcomerPolicy, RejoinHistory
from qim_common.identity import Actor
from qim_common.ids import ConversationId, DeviceId, MembershipOp, UserId, uuid7
from qim_common.records import Audience, RecordType, StateChange

MAX_SEQ: Final = 2**53 - 1
"""seqs stay below 2^53 (storage.md, "Keys per conversation")."""


class MemberRole(IntEnum):
    """The roles in a member table, as on the wire."""

    OWNER = 1
    MEMBER = 2


class Direction(IntEnum):
    """Which way a history is read, as on the wire."""

    OLDER = 1
    NEWER = 2


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A group's settings; the defaults are the service's.

    Attributes:
        last_n: seqs before the join, 1 to 1,000,000,000; only with NewcomerPolicy.LAST_N.
        broadcast_max_members, member_limit: 0 stands for the deployment's value.
        retention_days: 0 keeps everything.
    """

    newcomer: NewcomerPolicy = NewcomerPolicy.SINCE_JOIN
    last_n: int = 0
    rejoin: RejoinHistory = RejoinHistory.LATEST_STAY
    leaver: LeaverHistory = LeaverHistory.UNTIL_LEFT
    broadcast_max_members: int = 0
    member_limit: int = 0
    retention_days: int = 0


@dataclass(frozen=True, slots=True)
class SeqRange:
    """Seqs `first` to `last`, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Stay:
    """One period of one person in one conversation (design.md, "Words").

    Attributes:
        joined_at: J-1; 0 for those who were there from the start.
        history_from: exclusive lower bound of what the stay shows.
        left_at: L, exclusive upper bound; 0 while inside.
        began_version, ended_version: the membership versions; `ended_version` is 0 while inside.
    """

    joined_at: int
    history_from: int
    left_at: int
    state: MemberState
    began_version: int
    ended_version: int
    keeps_earlier: bool
    revoked: bool


@dataclass(frozen=True, slots=True)
class Member:
    """One row of a member list; `left_at` is 0 while inside."""

    user: UserId
    role: MemberRole
    joined_at: int
    state: MemberState
    left_at: int


@dataclass(frozen=True, slots=True)
class MembershipEvent:
    """What a control message says: `people` were changed by `actor` (None: an operator)."""

    op: MembershipOp
    actor: UserId | None
    people: tuple[UserId, ...]


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """One change of a group's members: the version that it made, its seq and whom it changed.

    `op` None: the event lies below the floor and its record was removed, and nobody is named. `actor`
    None: an operator.
    """

    version: int
    op: MembershipOp | None
    seq: int
    time_ms: int
    people: tuple[UserId, ...]
    actor: UserId | None


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One change of a group without a seq, and what holds from then on (design.md, "Words": state entry).

    Attributes:
        revision: the one that the change made.
        head_seq: the newest seq at that moment.
        made_by: `user:<uuid>`, `operator:<name>`, `backend:<name>`, or `retention`.
        settings: None with FLOOR, which says nothing but `group_floor_seq`.
        owner: None while the group is empty, and with FLOOR.
    """

    revision: int
    kind: StateChange
    time_ms: int
    membership_version: int
    head_seq: int
    made_by: str
    settings: GroupSettings | None
    owner: UserId | None
    frozen: bool
    group_floor_seq: int


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. `prev_seq` as in design.md invariant 12; `event` only of control messages."""

    conversation: ConversationId
    seq: int
    generation: int
    membership_version: int
    time_ms: int
    type: RecordType
    sender: UserId
    device: DeviceId
    client_message_id: bytes
    custom_type: str
    body: bytes
    prev_seq: int
    audience: Audience
    event: MembershipEvent | None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to send: to `conversation`, or to `peer` in their direct conversation, exactly one of them.

    Attributes:
        custom_type: at most 128 bytes of UTF-8, never beginning with `qim.`.
        expected_version: committed only if this membership version still holds; 0: any.
        client_message_id: made once; repeating the same object has no second effect.
    """

    actor: Actor
    body: bytes
    conversation: ConversationId | None = None
    peer: UserId | None = None
    custom_type: str = ""
    expected_version: int = 0
    client_message_id: bytes = field(default_factory=uuid7)


@dataclass(frozen=True, slots=True)
class DeviceCursor:
    """How far a device has come in one conversation."""

    conversation: ConversationId
    generation: int
    seq: int

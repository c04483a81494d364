"""What a state block of the dispatch log says (design.md, "Words": state entry). Pure.

Its payload is what the writer's scripts put there: the packed policy of a group, the floor as u48, or of an own clear
the person and the clear point. Creation says nothing but itself.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from qim_common.ids import ConversationId, UserId
from qim_common.records import StateBlock, StateChange

_POLICY: Final = struct.Struct(">B16sIBIBBIHxxx")
_USER_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class PolicyNow:
    """A group's settings, owner and freeze; enums as on the wire, `owner` None while the group is empty."""

    frozen: bool
    owner: UserId | None
    member_limit: int
    newcomer: int
    last_n: int
    rejoin: int
    leaver: int
    broadcast_max_members: int
    retention_days: int


@dataclass(frozen=True, slots=True)
class StateNow:
    """One change without a seq, and what holds from then on.

    Attributes:
        policy: with SETTINGS, OWNER and FROZEN.
        floor: with FLOOR.
        person: with OWN_CLEAR whose it was; nobody else learns of it.
    """

    conversation: ConversationId
    revision: int
    change: StateChange
    time_ms: int
    policy: PolicyNow | None = None
    floor: int = 0
    person: UserId | None = None


def read_state(block: StateBlock, time_ms: int) -> StateNow:
    """The change that a block records. Raises struct.error for a payload that is none."""
    change = block.change
    policy, floor, person = None, 0, None
    if change is StateChange.FLOOR:
        floor = int.from_bytes(block.payload, "big")
    elif change is StateChange.OWN_CLEAR:
        person = UserId(block.payload[:_USER_BYTES])
    elif change is not StateChange.CREATED:
        policy = _policy(block.payload)
    return StateNow(block.conversation, block.revision, change, time_ms, policy, floor, person)


def _policy(payload: bytes) -> PolicyNow:
    frozen, owner, limit, newcomer, last_n, rejoin, leaver, broadcast, retention = _POLICY.unpack(payload)
    return PolicyNow(
        frozen=bool(frozen),
        owner=UserId(owner) if any(owner) else None,
        member_limit=limit,
        newcomer=newcomer,
        last_n=last_n,
        rejoin=rejoin,
        leaver=leaver,
        broadcast_max_members=broadcast,
        retention_days=retention,
    )

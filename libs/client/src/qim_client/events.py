"""The body of a control message (contracts.md, "Ids", Control payload). Pure."""

from __future__ import annotations

import struct

from qim_client.values import MembershipEvent
from qim_common.ids import ID_BYTES, ZERO_ID, MembershipOp, UserId

CUSTOM_TYPE = "qim.membership.v1"
_HEAD = struct.Struct(">B16sH")


def parse_membership_event(custom_type: str, body: bytes) -> MembershipEvent | None:
    """What a control message says; None for a type that this version of the client does not know.

    Raises ValueError when the body is not what the type promises: the service never makes such a one.
    """
    if custom_type != CUSTOM_TYPE:
        return None
    if len(body) < _HEAD.size:
        raise ValueError(f"a membership event has at least {_HEAD.size} bytes, not {len(body)}")
    op, actor, count = _HEAD.unpack_from(body)
    if len(body) != _HEAD.size + count * ID_BYTES:
        raise ValueError(f"a membership event of {count} people has another length than {len(body)} bytes")
    people = tuple(UserId(body[at : at + ID_BYTES]) for at in range(_HEAD.size, len(body), ID_BYTES))
    return MembershipEvent(MembershipOp(op), None if actor == ZERO_ID else UserId(actor), people)

"""The body of a control message (contracts.md, "Ids", Control payload). Pure."""

from __future__ import annotations

from qim_client.values import MembershipEvent
from qim_common.ids import ZERO_ID, UserId, parse_control_body

CUSTOM_TYPE = "qim.membership.v1"


def parse_membership_event(custom_type: str, body: bytes) -> MembershipEvent | None:
    """What a control message says; None for a type that this version of the client does not know.

    Raises ValueError when the body is not what the type promises: the service never makes such a one.
    """
    if custom_type != CUSTOM_TYPE:
        return None
    op, actor, people = parse_control_body(body)
    return MembershipEvent(op, None if actor == ZERO_ID else UserId(actor), people)

"""The status codes of the Lua scripts, mirrored by the first lines of each script."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from qim_common.errors import (
    GroupAlreadyExists,
    GroupFrozen,
    IdempotencyKeyReused,
    MembershipChanged,
    NewOwnerNotMember,
    PermissionDenied,
    QimError,
    RequestTooOld,
)


class Status(IntEnum):
    """What a script answers for a request."""

    OK = 0
    DENIED = 1
    FROZEN = 2
    CHANGED = 3
    REUSED = 4
    TOO_OLD = 5
    NEED_SEGMENT = 6
    EXISTS = 7
    NOT_MEMBER = 8
    QUIET = 9
    """A send is committed, and the low-latency lane has nothing to do for it: it was committed before, or the
    conversation is big (storage.md, "Session")."""


REFUSALS: Mapping[Status, type[QimError]] = {
    Status.DENIED: PermissionDenied,
    Status.FROZEN: GroupFrozen,
    Status.CHANGED: MembershipChanged,
    Status.REUSED: IdempotencyKeyReused,
    Status.TOO_OLD: RequestTooOld,
    Status.EXISTS: GroupAlreadyExists,
    Status.NOT_MEMBER: NewOwnerNotMember,
}
"""The refusals that callers hear of; NEED_SEGMENT is the backend's own business."""


def refusal(status: int) -> QimError:
    """The error for a status; raises KeyError for one that is no refusal."""
    return REFUSALS[Status(status)]()

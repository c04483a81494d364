"""Changing members: what was asked, what is checked, what it made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from qim_common.errors import InvalidArgument, TooManyItems
from qim_common.ids import ConversationId, UserId, parse_id, parse_user

MAX_PEOPLE = 1000
"""Of one AddMembers or RemoveMembers (contracts.md, "Services")."""


class ChangeKind(IntEnum):
    """What a membership change does, as on the wire."""

    ADD = 1
    REMOVE = 2


class RemovedHistory(IntEnum):
    """What those who are removed may read from now on; GROUP_SETTING leaves it to the group, as on the wire."""

    GROUP_SETTING = 0
    UNTIL_LEFT = 1
    NONE = 2


@dataclass(frozen=True, slots=True)
class ChangeAsked:
    """AddMembers or RemoveMembers as it arrived, nothing checked yet."""

    kind: ChangeKind
    tenant_id: int
    request_id: bytes
    group_id: bytes
    user_ids: Sequence[bytes]
    initiator_user_id: bytes = b""
    owner_user_id: bytes = b""
    leaver_history: int = RemovedHistory.GROUP_SETTING


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """A checked change: 1 to 1,000 people in call order; `owner` only with ADD, `leaver_history` only with REMOVE."""

    kind: ChangeKind
    request_id: bytes
    group: ConversationId
    people: tuple[UserId, ...]
    owner: UserId | None
    leaver_history: RemovedHistory


@dataclass(frozen=True, slots=True)
class MembershipVersion:
    """The version after a change; `seq` is 0 when there was nothing to change."""

    group: ConversationId
    version: int
    seq: int
    member_count: int
    changed_count: int
    time_ms: int


def parse_change(asked: ChangeAsked, group: ConversationId) -> MembershipChange:
    """The change that was asked for. Raises InvalidArgument naming the field, and TooManyItems."""
    request_id = parse_id(asked.request_id, "request_id")
    if not asked.user_ids:
        raise InvalidArgument("user_ids", "must name at least one person")
    if len(asked.user_ids) > MAX_PEOPLE:
        raise TooManyItems(message=f"a call changes at most {MAX_PEOPLE} people; split them over several calls")
    people = tuple(parse_user(user, f"user_ids[{at}]") for at, user in enumerate(asked.user_ids))
    owner = parse_user(asked.owner_user_id, "owner_user_id") if asked.owner_user_id else None
    if owner is not None and owner not in people:
        raise InvalidArgument("owner_user_id", "must be one of user_ids")
    try:
        leaver_history = RemovedHistory(asked.leaver_history)
    except ValueError:
        raise InvalidArgument("leaver_history", "must be unset, UNTIL_LEFT or NONE") from None
    return MembershipChange(asked.kind, request_id, group, people, owner, leaver_history)

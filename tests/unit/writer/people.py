"""People and stays for the tables of this folder."""

from __future__ import annotations

from qim_common.enums import MemberState
from qim_common.ids import ConversationId, TenantId, UserId, group_conversation_id
from qim_writer.domain.stays import Person, Stay

TENANT = TenantId(7)
GROUP: ConversationId = group_conversation_id(bytes(range(0x20, 0x30)))
ORDINAL = b"\0\0\1"


def user(number: int) -> UserId:
    """The person of a number from 1; their ids ascend with it."""
    return UserId(number.to_bytes(16, "big"))


ANA, BEN, CARA, DAN, EVE = (user(number) for number in range(1, 6))


def stay(
    joined: int,
    left: int = 0,
    *,
    shows_from: int | None = None,
    keeps: bool = False,
    revoked: bool = False,
    versions: tuple[int, int] = (1, 0),
    removed: bool = False,
) -> Stay:
    """A stay that began with seq `joined` + 1 and, if `left`, ended with it. It shows what is above `shows_from`,
    by default what is above `joined`."""
    ended = MemberState.REMOVED if removed else MemberState.LEFT
    return Stay(
        joined_at=joined,
        history_from=joined if shows_from is None else shows_from,
        left_at=left,
        began_version=versions[0],
        ended_version=versions[1],
        state=ended if left else MemberState.MEMBER,
        keeps_earlier=keeps,
        revoked=revoked,
    )


def person(*stays: Stay, cleared: int = 0) -> Person:
    """Somebody with these stays, oldest first."""
    return Person(stays, cleared, ORDINAL)

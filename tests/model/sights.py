"""What a person should be told about one conversation: what the reference model says, as plain values.

`told_stay` and `told_entry` bring what the service says into the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.model.reference import Conversation, Refused, Stay

from qim_client import values
from qim_client.values import Message
from qim_common.ids import UserId
from qim_common.records import Audience, RecordType

Line = Mapping[int, tuple[Any, ...]]
DENIED = "PERMISSION_DENIED"


@dataclass(frozen=True)
class Sight:
    """All that one person may be told of a conversation. `visible` and `members` are DENIED where they are refused.

    Who is outside hears of nothing after the leave: the version is the one that ended the stay, the revision 0.
    """

    who: UserId
    group: bool
    state: str
    visible: list[int] | str
    earliest: int
    line: Line
    head: int
    delivered: list[int]
    shown: set[int]
    perhaps: set[int]
    unread: int
    read: int
    members: list[UserId] | str
    send: str
    stays: list[tuple[Any, ...]]
    cleared: int
    floor: int
    version: int
    revision: int

    @property
    def head_seen(self) -> int:
        """The newest visible seq; 0: none."""
        return 0 if isinstance(self.visible, str) else max(self.visible, default=0)


def expected_sight(model: Conversation, who: UserId) -> Sight:
    """What the model says about a person."""
    stays = model.stays.get(who, [])
    present = who in model.members
    try:
        visible: list[int] | str = model.visible(model.check_reader(who))
    except Refused as refused:
        visible = str(refused)
    readable = [] if isinstance(visible, str) else visible
    own = {seq for seq in model.delivered(who) if model.own_event(who, seq)}
    return Sight(
        who=who,
        group=not model.pair,
        state=(stays[-1].ended_by or "MEMBER") if stays else "ABSENT",
        visible=visible,
        earliest=0 if isinstance(visible, str) else model.earliest(who),
        line={seq: _entry(model, seq) for seq in range(1, model.head + 1)},
        head=model.head,
        delivered=model.delivered(who),
        shown=set(readable) | {seq for seq in own if seq > model.floor},
        perhaps={seq for seq in own if seq <= model.floor},
        unread=model.unread(who) if stays else 0,
        read=model.read.get(who, 0),
        members=sorted(model.members) if present else DENIED,
        send=DENIED if not present else "GROUP_FROZEN" if model.frozen else "",
        stays=[_stay(stay) for stay in stays],
        cleared=model.cleared.get(who, 0),
        floor=model.floor if present or not stays else min(model.floor, stays[-1].left_at - 1),
        version=model.version if present or not stays else stays[-1].ended,
        revision=model.revision if present else 0,
    )


def _entry(model: Conversation, seq: int) -> tuple[Any, ...]:
    entry = model.line[seq - 1]
    return (entry.sender, entry.version, entry.prev, entry.broadcast, entry.says)


def _stay(stay: Stay) -> tuple[Any, ...]:
    ends = (stay.left_at, stay.ended, stay.ended_by or "MEMBER", stay.revoked)
    return (stay.joined_at, stay.history_from, stay.began, stay.keeps_earlier, *ends)


def told_stay(stay: values.Stay) -> tuple[Any, ...]:
    """A stay as the service tells it, to compare with the model's."""
    ends = (stay.left_at, stay.ended_version, stay.state.name, stay.revoked)
    return (stay.joined_at, stay.history_from, stay.began_version, stay.keeps_earlier, *ends)


def told_entry(message: Message) -> tuple[Any, ...]:
    """A message as the service tells it, to compare with the model's."""
    says: Any = message.body
    if message.type is RecordType.CONTROL:
        assert message.event is not None
        says = (message.event.op.name, message.event.actor, message.event.people)
    broadcast = message.audience is Audience.BROADCAST
    return (message.sender, message.membership_version, message.prev_seq, broadcast, says)

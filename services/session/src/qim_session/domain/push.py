"""Whether a message becomes a push notification for one of its recipients (docs/push.md). Pure.

The rule is `decide`, and nothing else decides. It is asked twice: first with what the session store knows of the
person, which is cheap, and then, for those who are left, with how they stand to the conversation now.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from enum import StrEnum

from qim_common.ids import ConversationId, TenantId, UserId
from qim_session.domain.cursors import Cursor
from qim_session.domain.flags import NO_FLAGS, Flags


@dataclass(frozen=True, slots=True)
class PushedMessage:
    """An ordinary message without its body. `time_ms`: of the commit; `custom_type`: the sender's; `size`: the body's
    bytes."""

    generation: int
    seq: int
    time_ms: int
    sender: UserId
    custom_type: str
    size: int

    @property
    def place(self) -> Cursor:
        """Where it stands on the conversation's line."""
        return Cursor(self.generation, self.seq)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a batch brings to one person in one conversation.

    Attributes:
        message: the newest ordinary message of somebody else that reached the person.
        body: the message's, for those only of whom it turns out that they may read it.
        count: how many such messages the batch has, from 1.
    """

    message: PushedMessage
    body: bytes
    count: int = 1

    def then(self, later: Candidate) -> Candidate:
        """The two as one."""
        return Candidate(later.message, later.body, self.count + later.count)


@dataclass(frozen=True, slots=True)
class PushMarks:
    """What a person has set on a conversation, by reading it (None: nothing) and by flags."""

    read: Cursor | None = None
    flags: Flags = NO_FLAGS


@dataclass(frozen=True, slots=True)
class Standing:
    """How a person stands to a conversation now.

    `member`: in it. `unread`: ordinary messages, design.md invariant 7. `earliest_seq`: the smallest readable one,
    invariant 9.
    """

    member: bool
    unread: int
    earliest_seq: int


class Verdict(StrEnum):
    """What becomes of a message for one person."""

    PUSH = "push"
    MUTED = "muted"
    """The person has muted the conversation."""

    READ = "read"
    """The person has read up to it on some device."""

    HIDDEN_SINCE = "hidden_since"
    """The person has put the conversation away after the message came."""

    GONE = "gone"
    """The person has left the conversation, or was removed, since."""

    NOT_VISIBLE = "not_visible"
    """The person can no longer read it: cleared, or of a stay that counts no more."""


def decide(message: PushedMessage, marks: PushMarks, standing: Standing | None) -> Verdict:
    """Whether a person whom `message` reached, and who did not send it, is told.

    Args:
        standing: None where it is not known, not yet or because nobody asks; that speaks for telling.
    """
    if marks.flags.muted:
        return Verdict.MUTED
    if marks.read is not None and marks.read >= message.place:
        return Verdict.READ
    if marks.flags.hidden and Cursor(marks.flags.generation, marks.flags.hidden_seq) >= message.place:
        return Verdict.HIDDEN_SINCE
    if standing is None:
        return Verdict.PUSH
    if not standing.member:
        return Verdict.GONE
    if standing.unread == 0 or message.seq < standing.earliest_seq:
        return Verdict.NOT_VISIBLE
    return Verdict.PUSH


def told_count(candidate: Candidate, standing: Standing | None) -> int:
    """How many messages a person is told of, from 1: those of the batch, and never more than are unread now.

    Where nobody asked for the unread count, messages that were read or cleared meanwhile are among them.
    """
    return candidate.count if standing is None else max(1, min(candidate.count, standing.unread))


@dataclass(frozen=True, slots=True)
class Notification:
    """One person is to be told of a conversation's newest message; or, without `recipient`, everybody in a big group.

    Attributes:
        recipient: None for a topic: the group is above `projection_fanout_max_members`, and who is subscribed to it is
            the push provider's business.
        message: the newest; its sender is never the recipient, but may be subscribed to a topic.
        count: messages of others that came with this batch, from 1, `message` included; where `unread` is known, never
            more than that.
        unread: the person's unread count of the conversation, from 1; None where it was not asked for.
        muted: the person has muted the conversation; only a rule of one's own tells them nevertheless.
        hidden: the person had hidden the conversation, and this message brings it back.
        body: the first bytes of the body, where the sink wants them and the person may read the message now; None
            otherwise.
    """

    tenant: TenantId
    recipient: UserId | None
    conversation: ConversationId
    message: PushedMessage
    count: int
    unread: int | None = None
    muted: bool = False
    hidden: bool = False
    body: bytes | None = None

    @property
    def id(self) -> str:
        """The same for each repeat: `tenant/conversation/generation/seq/recipient`, of a topic `*` for the last."""
        recipient = "*" if self.recipient is None else uuid.UUID(bytes=self.recipient)
        place = f"{self.message.generation}/{self.message.seq}"
        return f"{self.tenant}/{uuid.UUID(bytes=self.conversation)}/{place}/{recipient}"

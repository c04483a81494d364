"""What the services answer, as frozen values; times and seqs as in `qim_client.values`."""

from __future__ import annotations

from dataclasses import dataclass

from qim_client.values import DeviceCursor, GroupSettings, Member, MembershipChange, Message, SeqRange, StateEntry, Stay
from qim_common.enums import MemberState
from qim_common.errors import QimError
from qim_common.ids import ConversationId, ConversationKind, UserId


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """An answer of PullHistory: messages in reading direction; `next_from_seq` 0 when this was the last page."""

    messages: tuple[Message, ...]
    next_from_seq: int
    earliest_available_seq: int
    head_seq: int
    generation: int


@dataclass(frozen=True, slots=True)
class MessagesFound:
    """An answer of GetMessages; `remaining_seqs` are visible, but did not fit into it."""

    messages: tuple[Message, ...]
    remaining_seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VisibleRange:
    """What a person may read now: `ranges` ascending and disjoint; `stays` oldest first; `head_seq` 0 for nothing."""

    ranges: tuple[SeqRange, ...]
    earliest_available_seq: int
    head_seq: int
    state: MemberState
    stays: tuple[Stay, ...]
    own_clear_seq: int
    group_floor_seq: int
    membership_version: int
    generation: int


@dataclass(frozen=True, slots=True)
class MemberPage:
    """A page of present members; `next_page_token` is empty on the last one."""

    members: tuple[Member, ...]
    next_page_token: str
    membership_version: int
    member_count: int


@dataclass(frozen=True, slots=True)
class MembershipChanges:
    """Changes after a version, oldest first, up to `membership_version`; more while that is below `current_version`."""

    changes: tuple[MembershipChange, ...]
    membership_version: int
    current_version: int


@dataclass(frozen=True, slots=True)
class GroupCreated:
    """A new group."""

    group: ConversationId
    membership_version: int
    member_count: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class FrozenDelivery:
    """The exact version at which an actor would send now."""

    conversation: ConversationId
    membership_version: int
    member_count: int
    generation: int


@dataclass(frozen=True, slots=True)
class Left:
    """The answer of LeaveGroup: the caller's own row, and the version with which the stay ended."""

    group: ConversationId
    member: Member
    membership_version: int


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a message stands once it is committed."""

    conversation: ConversationId
    seq: int
    time_ms: int
    membership_version: int
    generation: int


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """What became of one message of a batch: `sent`, or the `error` that refused it."""

    client_message_id: bytes
    sent: Sent | None
    error: QimError | None

    def result(self) -> Sent:
        """Where the message stands; raises the error that refused it."""
        if self.sent is None:
            raise self.error or AssertionError("an outcome is a success or an error")
        return self.sent


@dataclass(frozen=True, slots=True)
class Conversation:
    """One entry of a person's conversation list. `head_seq` 0: nothing visible; `preview` is that message."""

    conversation: ConversationId
    kind: ConversationKind
    state: MemberState
    head_seq: int
    unread_count: int
    read_seq: int
    stay: Stay
    earliest_available_seq: int
    preview: Message | None
    last_activity_ms: int
    hidden: bool
    muted: bool
    revision: int
    generation: int


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """A page of a conversation list, newest activity first; `next_page_token` is empty on the last one."""

    conversations: tuple[Conversation, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class ReadMark:
    """How far a person has read in a conversation, and what is unread after it."""

    read_seq: int
    unread_count: int


@dataclass(frozen=True, slots=True)
class MailboxEntry:
    """A delivered message, or a stretch of delivered seqs without bodies (`withheld`, design.md invariant 12)."""

    conversation: ConversationId
    message: Message | None
    withheld: SeqRange | None
    generation: int

    @property
    def cursor(self) -> DeviceCursor:
        """What to acknowledge when this entry has arrived."""
        last = self.message.seq if self.message is not None else self.withheld.last if self.withheld else 0
        return DeviceCursor(self.conversation, self.generation, last)


@dataclass(frozen=True, slots=True)
class MailboxPage:
    """What was delivered and not acknowledged, ascending within a conversation."""

    entries: tuple[MailboxEntry, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class MembershipResult:
    """An operator's change: `seq` 0 when there was nothing to change; `changed_count` people were really touched."""

    group: ConversationId
    membership_version: int
    seq: int
    member_count: int
    changed_count: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """A group as operators see it; `owner` None while the group is empty."""

    group: ConversationId
    owner: UserId | None
    membership_version: int
    revision: int
    generation: int
    member_count: int
    settings: GroupSettings
    head_seq: int
    group_floor_seq: int
    frozen: bool
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class GroupRetention:
    """What a run of retention by age does to one group, or would do.

    Attributes:
        group_floor_seq, new_group_floor_seq: the floor before and after; equal where nothing is old enough.
        message_count: how many messages lie between, control messages too.
        archive_partitions: of those at or below the new floor, so many are still there; 0 where there is no archive.
    """

    group: ConversationId
    retention_days: int
    group_floor_seq: int
    new_group_floor_seq: int
    message_count: int
    archive_partitions: int


@dataclass(frozen=True, slots=True)
class RetentionPage:
    """A page of a run of retention; it may be empty while there are more.

    Attributes:
        unavailable_buckets: commit buckets whose instance did not answer; their groups are left out.
        clock_ahead_seconds: above 0 the writer's clock was set forward while it ran, and no floor moves by age.
    """

    groups: tuple[GroupRetention, ...]
    next_page_token: str
    unavailable_buckets: int
    clock_ahead_seconds: int


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """A page of a group's line: membership events and changes without a seq, each in their order.

    With a person: only the events that concern them, no state entries, and what holds for that person: their `stays`
    (oldest first), what they may read now (`visible`, ascending and disjoint) and their own clear point.
    """

    group: GroupDetails
    changes: tuple[MembershipChange, ...]
    state_entries: tuple[StateEntry, ...]
    stays: tuple[Stay, ...]
    visible: tuple[SeqRange, ...]
    own_clear_seq: int
    next_page_token: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether a person may read a seq and whether it was delivered to them, and by which rule.

    Attributes:
        cause: what decided, such as `in_stay` or `own_clear` (group_control.proto, VisibilityExplanation).
        sentence: the decision for a ticket.
        stay: the one that decides; None when there is none.
        settings: the group's now; what a stay shows was fixed when it began and ended.
    """

    visible: bool
    delivered: bool
    cause: str
    sentence: str
    stay: Stay | None
    own_clear_seq: int
    group_floor_seq: int
    settings: GroupSettings

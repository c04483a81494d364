"""Between the wire's messages and the values of the domain."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, TypeVar

from qim.common.v1 import types_pb2
from qim.membership.v1 import membership_pb2
from qim.writer.v1 import group_control_pb2
from qim_common.enums import LeaverHistory, NewcomerPolicy, RejoinHistory
from qim_common.errors import InvalidArgument
from qim_common.ids import ZERO_ID, UserId
from qim_common.records import Record, StateChange
from qim_common.settings_wire import settings_to_wire
from qim_writer.commands.members import MemberRow
from qim_writer.commands.retention_run import RetentionPage
from qim_writer.domain.explain import Explanation
from qim_writer.domain.members import Change
from qim_writer.domain.policy import NOBODY, GroupSettings, Policy
from qim_writer.domain.stays import Stay
from qim_writer.domain.visible import Visible
from qim_writer.storage import ChangeAnswer, Conversation, Facts, GroupSnapshot, StateRecord

_E = TypeVar("_E", bound=IntEnum)


def message_fields(conversation: Conversation, record: Record) -> dict[str, Any]:
    """The fields of a stored message as readers get it, for a message that is built in place."""
    tail = record.tail
    return {
        "conversation_id": conversation.id,
        "seq": record.seq,
        "generation": record.generation,
        "membership_version": record.membership_version,
        "time_ms": record.time_ms,
        "type": tail.type,
        "sender_user_id": tail.sender,
        "sender_device_id": tail.device,
        "client_message_id": tail.client_message_id,
        "custom_type": tail.custom_type,
        "body": tail.body,
        "prev_seq": record.prev,
        "audience": record.audience,
    }


def message_of(conversation: Conversation, record: Record) -> types_pb2.Message:
    """A stored message as readers get it."""
    return types_pb2.Message(**message_fields(conversation, record))


def messages_of(conversation: Conversation, records: Iterable[Record]) -> list[types_pb2.Message]:
    """Stored messages of one conversation."""
    return [message_of(conversation, record) for record in records]


def stay_fields(stay: Stay) -> dict[str, Any]:
    """The fields of a stay, for one that is built in place."""
    return {
        "joined_at_conversation_seq": stay.joined_at,
        "history_from_conversation_seq": stay.history_from,
        "left_at_conversation_seq": stay.left_at,
        "state": stay.state,
        "began_version": stay.began_version,
        "ended_version": stay.ended_version,
        "keeps_earlier": stay.keeps_earlier,
        "revoked": stay.revoked,
    }


def stay_of(stay: Stay) -> types_pb2.Stay:
    """A stay."""
    return types_pb2.Stay(**stay_fields(stay))


def ranges_of(visible: Visible | None) -> list[types_pb2.SeqRange]:
    """What a person may read; None: nothing."""
    return [types_pb2.SeqRange(first_seq=first, last_seq=last) for first, last in visible.ranges] if visible else []


def member_of(user: UserId, stay: Stay, *, owner: bool) -> types_pb2.Member:
    """A row of a member list."""
    role = types_pb2.MEMBER_ROLE_OWNER if owner else types_pb2.MEMBER_ROLE_MEMBER
    return types_pb2.Member(
        user_id=user,
        role=role,
        joined_at_conversation_seq=stay.joined_at,
        state=types_pb2.MemberState.ValueType(stay.state),
        left_at_conversation_seq=stay.left_at,
    )


def members_of(rows: Iterable[MemberRow]) -> list[types_pb2.Member]:
    """Rows of a member list."""
    return [member_of(row.user, row.stay, owner=row.owner) for row in rows]


def change_of(change: Change) -> types_pb2.MembershipChange:
    """A membership change."""
    return types_pb2.MembershipChange(
        version=change.version,
        op=types_pb2.MembershipOp.ValueType(change.op or 0),
        seq=change.seq,
        time_ms=change.time_ms,
        user_ids=change.users,
        actor_user_id=b"" if change.actor == ZERO_ID else change.actor,
    )


def version_of(group: Conversation, answer: ChangeAnswer) -> membership_pb2.MembershipVersion:
    """The answer of a membership change."""
    return membership_pb2.MembershipVersion(
        group_id=group.id,
        version=answer.version,
        seq=answer.seq,
        member_count=answer.count,
        changed_count=answer.changed,
        time_ms=answer.time_ms,
    )


def settings_from(message: types_pb2.GroupSettings) -> GroupSettings:
    """A group's settings as a caller wrote them, unset policies with their defaults; not yet validated.

    Raises InvalidArgument for an enum value that is not known."""
    newcomer = message.newcomer_history
    return GroupSettings(
        member_limit=message.member_limit,
        newcomer=_enum(NewcomerPolicy, newcomer.policy or NewcomerPolicy.SINCE_JOIN, "newcomer_history.policy"),
        last_n=newcomer.last_n,
        rejoin=_enum(RejoinHistory, message.rejoin_history or RejoinHistory.LATEST_STAY, "rejoin_history"),
        leaver=_enum(LeaverHistory, message.leaver_history or LeaverHistory.UNTIL_LEFT, "leaver_history"),
        broadcast_max_members=message.broadcast_max_members,
        retention_days=message.retention_days,
    )


def _enum(cls: type[_E], value: int, field: str) -> _E:
    try:
        return cls(value)
    except ValueError:
        raise InvalidArgument(f"settings.{field}", "is no value of this enum") from None


def leaver_from(value: int) -> LeaverHistory | None:
    """A removal's own leaver_history; None for the group's. Raises InvalidArgument."""
    if not value:
        return None
    try:
        return LeaverHistory(value)
    except ValueError:
        raise InvalidArgument("leaver_history", "is no value of this enum") from None


def group_of(group: Conversation, facts: Facts) -> group_control_pb2.Group:
    """A group as operators see it."""
    owner = facts.policy.owner
    return group_control_pb2.Group(
        group_id=group.id,
        owner_user_id=b"" if owner == NOBODY else owner,
        membership_version=facts.version,
        revision=facts.revision,
        generation=facts.generation,
        member_count=facts.member_count,
        settings=settings_to_wire(facts.policy.settings),
        head_seq=facts.head,
        group_floor_seq=facts.floor,
        frozen=facts.policy.frozen,
        created_at_ms=facts.created_ms,
    )


def group_after(group: Conversation, after: GroupSnapshot) -> group_control_pb2.Group:
    """A group right after a change without a seq."""
    owner = after.policy.owner
    return group_control_pb2.Group(
        group_id=group.id,
        owner_user_id=b"" if owner == NOBODY else owner,
        membership_version=after.version,
        revision=after.revision,
        generation=after.generation,
        member_count=after.count,
        settings=settings_to_wire(after.policy.settings),
        head_seq=after.head,
        group_floor_seq=after.floor,
        frozen=after.policy.frozen,
        created_at_ms=after.created_ms,
    )


def retention_page_of(page: RetentionPage) -> group_control_pb2.ControlRunRetentionResponse:
    """What a run of retention did, or would do."""
    return group_control_pb2.ControlRunRetentionResponse(
        groups=[
            types_pb2.GroupRetention(
                group_id=one.group.id,
                retention_days=one.retention_days,
                group_floor_seq=one.floor,
                new_group_floor_seq=one.new_floor,
                message_count=one.messages,
                archive_partitions=one.archive_buckets,
            )
            for one in page.groups
        ],
        next_page_token=page.next_token,
        unavailable_buckets=page.unavailable,
        clock_ahead_seconds=int(page.clock_ahead),
    )


def explanation_of(found: Explanation, facts: Facts) -> group_control_pb2.VisibilityExplanation:
    """The answer to a complaint."""
    return group_control_pb2.VisibilityExplanation(
        visible=found.visible,
        delivered=found.delivered,
        sentence=found.sentence,
        cause=found.cause.value,
        stay=None if found.stay is None else stay_of(found.stay),
        own_clear_seq=0 if facts.person is None else facts.person.own_clear,
        group_floor_seq=facts.floor,
        settings=settings_to_wire(facts.policy.settings),
    )


def state_change_of(record: StateRecord) -> types_pb2.StateChange:
    """A change without a seq, with what it set."""
    change = types_pb2.StateChange(
        revision=record.revision,
        kind=types_pb2.StateChange.Kind.ValueType(record.change),
        time_ms=record.time_ms,
        membership_version=record.version,
        head_seq=record.head,
        made_by=record.maker,
    )
    if record.change is StateChange.FLOOR:
        change.group_floor_seq = int.from_bytes(record.payload, "big")
    else:
        policy = Policy.unpack(record.payload)
        change.settings.CopyFrom(settings_to_wire(policy.settings))
        change.owner_user_id = b"" if policy.owner == NOBODY else policy.owner
        change.frozen = policy.frozen
    return change

"""Between the client's values and protobuf: the one place that knows both. Pure."""

from __future__ import annotations

from qim.admin.v1 import admin_pb2
from qim.common.v1 import types_pb2
from qim.membership.v1 import membership_pb2
from qim.session.v1 import session_pb2
from qim.writer.v1 import writer_pb2
from qim_client import answers, values
from qim_client.events import parse_membership_event
from qim_common.enums import LeaverHistory, MemberState, NewcomerPolicy, RejoinHistory
from qim_common.errors import from_status
from qim_common.ids import ConversationId, ConversationKind, DeviceId, MembershipOp, UserId
from qim_common.records import Audience, RecordType


def settings_from_wire(settings: types_pb2.GroupSettings) -> values.GroupSettings:
    """A group's settings; what is unset stands for the default."""
    return values.GroupSettings(
        newcomer=NewcomerPolicy(settings.newcomer_history.policy or NewcomerPolicy.SINCE_JOIN),
        last_n=settings.newcomer_history.last_n,
        rejoin=RejoinHistory(settings.rejoin_history or RejoinHistory.LATEST_STAY),
        leaver=LeaverHistory(settings.leaver_history or LeaverHistory.UNTIL_LEFT),
        broadcast_max_members=settings.broadcast_max_members,
        member_limit=settings.member_limit,
        retention_days=settings.retention_days,
    )


def outgoing_to_wire(item: values.Outgoing, actor_index: int = 0) -> writer_pb2.OutgoingMessage:
    """A message to send; `actor_index` points into a frame's actors."""
    return writer_pb2.OutgoingMessage(
        conversation_id=item.conversation or b"",
        client_message_id=item.client_message_id,
        body=item.body,
        custom_type=item.custom_type,
        peer_user_id=item.peer or b"",
        expected_membership_version=item.expected_version,
        actor_index=actor_index,
    )


def sent(answer: writer_pb2.SendMessageResponse | writer_pb2.SendResult) -> answers.Sent:
    """Where a committed message stands."""
    return answers.Sent(
        ConversationId(answer.conversation_id),
        answer.seq,
        answer.time_ms,
        answer.membership_version,
        answer.generation,
    )


def send_outcome(result: writer_pb2.SendResult) -> answers.SendOutcome:
    """What became of one message of a frame."""
    if result.HasField("status") and result.status.code:
        return answers.SendOutcome(result.client_message_id, None, from_status(result.status))
    return answers.SendOutcome(result.client_message_id, sent(result), None)


def message(wire: types_pb2.Message) -> values.Message:
    """A message; of a control message with its event."""
    kind = RecordType(wire.type)
    return values.Message(
        conversation=ConversationId(wire.conversation_id),
        seq=wire.seq,
        generation=wire.generation,
        membership_version=wire.membership_version,
        time_ms=wire.time_ms,
        type=kind,
        sender=UserId(wire.sender_user_id),
        device=DeviceId(wire.sender_device_id),
        client_message_id=wire.client_message_id,
        custom_type=wire.custom_type,
        body=wire.body,
        prev_seq=wire.prev_seq,
        audience=Audience(wire.audience),
        event=parse_membership_event(wire.custom_type, wire.body) if kind is RecordType.CONTROL else None,
    )


def seq_range(wire: types_pb2.SeqRange) -> values.SeqRange:
    """A stretch of seqs."""
    return values.SeqRange(wire.first_seq, wire.last_seq)


def stay(wire: types_pb2.Stay) -> values.Stay:
    """One stay."""
    return values.Stay(
        joined_at=wire.joined_at_conversation_seq,
        history_from=wire.history_from_conversation_seq,
        left_at=wire.left_at_conversation_seq,
        state=MemberState(wire.state),
        began_version=wire.began_version,
        ended_version=wire.ended_version,
        keeps_earlier=wire.keeps_earlier,
        revoked=wire.revoked,
    )


def member(wire: types_pb2.Member) -> values.Member:
    """One row of a member list."""
    return values.Member(
        user=UserId(wire.user_id),
        role=values.MemberRole(wire.role),
        joined_at=wire.joined_at_conversation_seq,
        state=MemberState(wire.state),
        left_at=wire.left_at_conversation_seq,
    )


def member_page(wire: membership_pb2.MemberPage | admin_pb2.ListMembersResponse) -> answers.MemberPage:
    """A page of members."""
    members = tuple(member(item) for item in wire.members)
    return answers.MemberPage(members, wire.next_page_token, wire.membership_version, wire.member_count)


def history_page(wire: writer_pb2.PullHistoryResponse) -> answers.HistoryPage:
    """A page of history."""
    return answers.HistoryPage(
        messages=tuple(message(item) for item in wire.messages),
        next_from_seq=wire.next_from_seq,
        earliest_available_seq=wire.earliest_available_conversation_seq,
        head_seq=wire.head_seq,
        generation=wire.generation,
    )


def messages_found(wire: writer_pb2.GetMessagesResponse) -> answers.MessagesFound:
    """The messages asked for by seq."""
    return answers.MessagesFound(tuple(message(item) for item in wire.messages), tuple(wire.remaining_seqs))


def visible_range(wire: writer_pb2.VisibleRange) -> answers.VisibleRange:
    """What a person may read now."""
    return answers.VisibleRange(
        ranges=tuple(seq_range(item) for item in wire.ranges),
        earliest_available_seq=wire.earliest_available_conversation_seq,
        head_seq=wire.head_seq,
        state=MemberState(wire.state),
        stays=tuple(stay(item) for item in wire.stays),
        own_clear_seq=wire.own_clear_seq,
        group_floor_seq=wire.group_floor_seq,
        membership_version=wire.membership_version,
        generation=wire.generation,
    )


def membership_change(wire: types_pb2.MembershipChange) -> values.MembershipChange:
    """One change of a group's members."""
    return values.MembershipChange(
        version=wire.version,
        op=MembershipOp(wire.op) if wire.op else None,
        seq=wire.seq,
        time_ms=wire.time_ms,
        people=tuple(UserId(user) for user in wire.user_ids),
        actor=UserId(wire.actor_user_id) if any(wire.actor_user_id) else None,
    )


def membership_changes(wire: writer_pb2.MembersSinceResponse) -> answers.MembershipChanges:
    """Changes after a version."""
    changes = tuple(membership_change(item) for item in wire.changes)
    return answers.MembershipChanges(changes, wire.membership_version, wire.current_membership_version)


def group_created(wire: membership_pb2.GroupCreated) -> answers.GroupCreated:
    """A new group."""
    group = ConversationId(wire.group_id)
    return answers.GroupCreated(group, wire.membership_version, wire.member_count, wire.time_ms)


def frozen_delivery(wire: membership_pb2.FrozenDeliveryInput) -> answers.FrozenDelivery:
    """The version at which an actor would send."""
    conversation = ConversationId(wire.conversation_id)
    return answers.FrozenDelivery(conversation, wire.membership_version, wire.member_count, wire.generation)


def left(wire: writer_pb2.MemberListBatch) -> answers.Left:
    """The answer of LeaveGroup, which has exactly one row."""
    return answers.Left(ConversationId(wire.group_id), member(wire.members[0]), wire.membership_version)


def conversation(wire: session_pb2.Conversation) -> answers.Conversation:
    """One entry of a conversation list."""
    return answers.Conversation(
        conversation=ConversationId(wire.conversation_id),
        kind=ConversationKind(wire.kind),
        state=MemberState(wire.state),
        head_seq=wire.head_seq,
        unread_count=wire.unread_count,
        read_seq=wire.read_seq,
        stay=stay(wire.stay),
        earliest_available_seq=wire.earliest_available_conversation_seq,
        preview=message(wire.preview) if wire.HasField("preview") else None,
        last_activity_ms=wire.last_activity_ms,
        hidden=wire.hidden,
        muted=wire.muted,
        revision=wire.revision,
        generation=wire.generation,
    )


def conversation_page(wire: session_pb2.ListConversationsResponse) -> answers.ConversationPage:
    """A page of a conversation list."""
    return answers.ConversationPage(tuple(conversation(item) for item in wire.conversations), wire.next_page_token)


def cursor_to_wire(cursor: values.DeviceCursor) -> session_pb2.DeviceCursor:
    """What a device acknowledges."""
    return session_pb2.DeviceCursor(conversation_id=cursor.conversation, generation=cursor.generation, seq=cursor.seq)


def read_mark(wire: session_pb2.MarkReadResponse) -> answers.ReadMark:
    """How far somebody has read."""
    return answers.ReadMark(wire.read_seq, wire.unread_count)


def mailbox_page(wire: session_pb2.PullMailboxResponse) -> answers.MailboxPage:
    """What was delivered and not acknowledged."""
    return answers.MailboxPage(tuple(mailbox_entry(item) for item in wire.entries), wire.more)


def mailbox_entry(wire: session_pb2.MailboxEntry) -> answers.MailboxEntry:
    """A delivered message, or a stretch without bodies."""
    return answers.MailboxEntry(
        conversation=ConversationId(wire.conversation_id),
        message=message(wire.message) if wire.HasField("message") else None,
        withheld=seq_range(wire.withheld) if wire.HasField("withheld") else None,
        generation=wire.generation,
    )

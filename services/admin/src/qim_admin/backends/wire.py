"""Between the writer's protobuf and the values of the domain. Pure."""

from __future__ import annotations

from qim.common.v1 import types_pb2
from qim.membership.v1 import membership_pb2
from qim.writer.v1 import group_control_pb2
from qim_admin.domain.changes import MembershipVersion
from qim_admin.domain.groups import Group, GroupSettings, MemberPage, MemberRow
from qim_admin.domain.retention import GroupRetention, RetentionPage
from qim_admin.domain.timeline import Explanation, MembershipEvent, StateEntry, Stay, TimelinePage
from qim_common.ids import ConversationId, UserId


def membership_version(wire: membership_pb2.MembershipVersion) -> MembershipVersion:
    """The answer of a membership change."""
    return MembershipVersion(
        group=ConversationId(wire.group_id),
        version=wire.version,
        seq=wire.seq,
        member_count=wire.member_count,
        changed_count=wire.changed_count,
        time_ms=wire.time_ms,
    )


def group(wire: group_control_pb2.Group) -> Group:
    """A group."""
    return Group(
        group=ConversationId(wire.group_id),
        owner=wire.owner_user_id,
        version=wire.membership_version,
        revision=wire.revision,
        generation=wire.generation,
        member_count=wire.member_count,
        settings=_settings(wire.settings),
        head_seq=wire.head_seq,
        floor_seq=wire.group_floor_seq,
        frozen=wire.frozen,
        created_at_ms=wire.created_at_ms,
    )


def member_page(wire: group_control_pb2.ControlListMembersResponse) -> MemberPage:
    """A page of present members."""
    members = tuple(
        MemberRow(
            user=UserId(row.user_id),
            role=row.role,
            joined_at=row.joined_at_conversation_seq,
            state=row.state,
            left_at=row.left_at_conversation_seq,
        )
        for row in wire.members
    )
    return MemberPage(members, wire.next_page_token, wire.membership_version, wire.member_count)


def retention_page(wire: group_control_pb2.ControlRunRetentionResponse) -> RetentionPage:
    """A page of a run of retention."""
    groups = tuple(
        GroupRetention(
            group=ConversationId(one.group_id),
            retention_days=one.retention_days,
            floor_seq=one.group_floor_seq,
            new_floor_seq=one.new_group_floor_seq,
            message_count=one.message_count,
            archive_partitions=one.archive_partitions,
        )
        for one in wire.groups
    )
    return RetentionPage(groups, wire.next_page_token, wire.unavailable_buckets, wire.clock_ahead_seconds)


def timeline_page(wire: group_control_pb2.ControlGroupTimelineResponse) -> TimelinePage:
    """A page of a group's line."""
    return TimelinePage(
        group=group(wire.group),
        events=tuple(_event(item) for item in wire.changes),
        entries=tuple(_entry(item) for item in wire.state_changes),
        stays=tuple(_stay(item) for item in wire.stays),
        visible=tuple((item.first_seq, item.last_seq) for item in wire.visible_ranges),
        own_clear_seq=wire.own_clear_seq,
        next_token=wire.next_page_token,
    )


def explanation(wire: group_control_pb2.VisibilityExplanation) -> Explanation:
    """The answer to a complaint."""
    return Explanation(
        visible=wire.visible,
        delivered=wire.delivered,
        sentence=wire.sentence,
        cause=wire.cause,
        stay=_stay(wire.stay) if wire.HasField("stay") else None,
        own_clear_seq=wire.own_clear_seq,
        floor_seq=wire.group_floor_seq,
        settings=_settings(wire.settings),
    )


def _settings(wire: types_pb2.GroupSettings) -> GroupSettings:
    return GroupSettings(
        newcomer=wire.newcomer_history.policy,
        last_n=wire.newcomer_history.last_n,
        rejoin=wire.rejoin_history,
        leaver=wire.leaver_history,
        broadcast_max_members=wire.broadcast_max_members,
        member_limit=wire.member_limit,
        retention_days=wire.retention_days,
    )


def _stay(wire: types_pb2.Stay) -> Stay:
    return Stay(
        joined_at=wire.joined_at_conversation_seq,
        history_from=wire.history_from_conversation_seq,
        left_at=wire.left_at_conversation_seq,
        state=wire.state,
        began_version=wire.began_version,
        ended_version=wire.ended_version,
        keeps_earlier=wire.keeps_earlier,
        revoked=wire.revoked,
    )


def _event(wire: types_pb2.MembershipChange) -> MembershipEvent:
    people = tuple(UserId(user) for user in wire.user_ids)
    return MembershipEvent(wire.version, wire.op, wire.seq, wire.time_ms, people, wire.actor_user_id)


def _entry(wire: types_pb2.StateChange) -> StateEntry:
    return StateEntry(
        revision=wire.revision,
        kind=wire.kind,
        time_ms=wire.time_ms,
        version=wire.membership_version,
        head_seq=wire.head_seq,
        made_by=wire.made_by,
        settings=_settings(wire.settings) if wire.HasField("settings") else None,
        owner=wire.owner_user_id,
        frozen=wire.frozen,
        floor_seq=wire.group_floor_seq,
    )

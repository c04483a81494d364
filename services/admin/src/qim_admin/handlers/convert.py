"""Between admin.proto and the values of the domain. Pure."""

from __future__ import annotations

from qim.admin.v1 import admin_pb2
from qim.common.v1 import types_pb2
from qim_admin.domain.changes import MembershipVersion
from qim_admin.domain.groups import Group, GroupSettings, MemberRow
from qim_admin.domain.retention import RetentionPage
from qim_admin.domain.timeline import Explanation, MembershipEvent, StateEntry, Stay, TimelinePage
from qim_common.settings_wire import settings_to_wire


def result_of(version: MembershipVersion) -> admin_pb2.MembershipResult:
    """The answer of a membership change."""
    return admin_pb2.MembershipResult(
        group_id=version.group,
        membership_version=version.version,
        seq=version.seq,
        member_count=version.member_count,
        changed_count=version.changed_count,
        time_ms=version.time_ms,
    )


def details_of(group: Group) -> admin_pb2.GroupDetails:
    """A group."""
    return admin_pb2.GroupDetails(
        group_id=group.group,
        owner_user_id=group.owner,
        membership_version=group.version,
        revision=group.revision,
        generation=group.generation,
        member_count=group.member_count,
        settings=settings_to_wire(group.settings),
        head_seq=group.head_seq,
        group_floor_seq=group.floor_seq,
        frozen=group.frozen,
        created_at_ms=group.created_at_ms,
    )


def member_of(row: MemberRow) -> types_pb2.Member:
    """A row of a member list."""
    return types_pb2.Member(
        user_id=row.user,
        role=types_pb2.MemberRole.ValueType(row.role),
        joined_at_conversation_seq=row.joined_at,
        state=types_pb2.MemberState.ValueType(row.state),
        left_at_conversation_seq=row.left_at,
    )


def settings_from(wire: types_pb2.GroupSettings) -> GroupSettings:
    """Settings as a caller wrote them."""
    return GroupSettings(
        newcomer=wire.newcomer_history.policy,
        last_n=wire.newcomer_history.last_n,
        rejoin=wire.rejoin_history,
        leaver=wire.leaver_history,
        broadcast_max_members=wire.broadcast_max_members,
        member_limit=wire.member_limit,
        retention_days=wire.retention_days,
    )


def retention_of(page: RetentionPage) -> admin_pb2.RunRetentionResponse:
    """A page of a run of retention."""
    return admin_pb2.RunRetentionResponse(
        groups=[
            types_pb2.GroupRetention(
                group_id=one.group,
                retention_days=one.retention_days,
                group_floor_seq=one.floor_seq,
                new_group_floor_seq=one.new_floor_seq,
                message_count=one.message_count,
                archive_partitions=one.archive_partitions,
            )
            for one in page.groups
        ],
        next_page_token=page.next_token,
        unavailable_buckets=page.unavailable_buckets,
        clock_ahead_seconds=page.clock_ahead_seconds,
    )


def timeline_of(page: TimelinePage) -> admin_pb2.GroupTimelineResponse:
    """A page of a group's line."""
    return admin_pb2.GroupTimelineResponse(
        changes=[_event_of(event) for event in page.events],
        stays=[_stay_of(stay) for stay in page.stays],
        next_page_token=page.next_token,
        state_changes=[_entry_of(entry) for entry in page.entries],
        group=details_of(page.group),
        visible_ranges=[types_pb2.SeqRange(first_seq=first, last_seq=last) for first, last in page.visible],
        own_clear_seq=page.own_clear_seq,
    )


def explanation_of(found: Explanation) -> admin_pb2.ExplainVisibilityResponse:
    """The answer to a complaint."""
    return admin_pb2.ExplainVisibilityResponse(
        visible=found.visible,
        delivered=found.delivered,
        sentence=found.sentence,
        stay=None if found.stay is None else _stay_of(found.stay),
        own_clear_seq=found.own_clear_seq,
        group_floor_seq=found.floor_seq,
        cause=found.cause,
        settings=settings_to_wire(found.settings),
    )


def _stay_of(stay: Stay) -> types_pb2.Stay:
    return types_pb2.Stay(
        joined_at_conversation_seq=stay.joined_at,
        history_from_conversation_seq=stay.history_from,
        left_at_conversation_seq=stay.left_at,
        state=types_pb2.MemberState.ValueType(stay.state),
        began_version=stay.began_version,
        ended_version=stay.ended_version,
        keeps_earlier=stay.keeps_earlier,
        revoked=stay.revoked,
    )


def _event_of(event: MembershipEvent) -> types_pb2.MembershipChange:
    return types_pb2.MembershipChange(
        version=event.version,
        op=types_pb2.MembershipOp.ValueType(event.op),
        seq=event.seq,
        time_ms=event.time_ms,
        user_ids=event.people,
        actor_user_id=event.actor,
    )


def _entry_of(entry: StateEntry) -> types_pb2.StateChange:
    return types_pb2.StateChange(
        revision=entry.revision,
        kind=types_pb2.StateChange.Kind.ValueType(entry.kind),
        time_ms=entry.time_ms,
        membership_version=entry.version,
        head_seq=entry.head_seq,
        made_by=entry.made_by,
        settings=None if entry.settings is None else settings_to_wire(entry.settings),
        owner_user_id=entry.owner,
        frozen=entry.frozen,
        group_floor_seq=entry.floor_seq,
    )

"""Between the operator API's protobuf and the client's values. Pure."""

from __future__ import annotations

from qim.admin.v1 import admin_pb2
from qim.common.v1 import types_pb2
from qim_client import answers, convert, values
from qim_common.ids import ConversationId, UserId
from qim_common.records import StateChange


def membership_result(wire: admin_pb2.MembershipResult) -> answers.MembershipResult:
    """An operator's change."""
    return answers.MembershipResult(
        group=ConversationId(wire.group_id),
        membership_version=wire.membership_version,
        seq=wire.seq,
        member_count=wire.member_count,
        changed_count=wire.changed_count,
        time_ms=wire.time_ms,
    )


def group_details(wire: admin_pb2.GroupDetails) -> answers.GroupDetails:
    """A group as operators see it."""
    return answers.GroupDetails(
        group=ConversationId(wire.group_id),
        owner=_owner(wire.owner_user_id),
        membership_version=wire.membership_version,
        revision=wire.revision,
        generation=wire.generation,
        member_count=wire.member_count,
        settings=convert.settings_from_wire(wire.settings),
        head_seq=wire.head_seq,
        group_floor_seq=wire.group_floor_seq,
        frozen=wire.frozen,
        created_at_ms=wire.created_at_ms,
    )


def retention_page(wire: admin_pb2.RunRetentionResponse) -> answers.RetentionPage:
    """A page of a run of retention."""
    return answers.RetentionPage(
        groups=tuple(
            answers.GroupRetention(
                group=ConversationId(one.group_id),
                retention_days=one.retention_days,
                group_floor_seq=one.group_floor_seq,
                new_group_floor_seq=one.new_group_floor_seq,
                message_count=one.message_count,
                archive_partitions=one.archive_partitions,
            )
            for one in wire.groups
        ),
        next_page_token=wire.next_page_token,
        unavailable_buckets=wire.unavailable_buckets,
        clock_ahead_seconds=wire.clock_ahead_seconds,
    )


def state_entry(wire: types_pb2.StateChange) -> values.StateEntry:
    """One change without a seq."""
    return values.StateEntry(
        revision=wire.revision,
        kind=StateChange(wire.kind),
        time_ms=wire.time_ms,
        membership_version=wire.membership_version,
        head_seq=wire.head_seq,
        made_by=wire.made_by,
        settings=convert.settings_from_wire(wire.settings) if wire.HasField("settings") else None,
        owner=_owner(wire.owner_user_id),
        frozen=wire.frozen,
        group_floor_seq=wire.group_floor_seq,
    )


def timeline_page(wire: admin_pb2.GroupTimelineResponse) -> answers.TimelinePage:
    """A page of a group's line."""
    return answers.TimelinePage(
        group=group_details(wire.group),
        changes=tuple(convert.membership_change(item) for item in wire.changes),
        state_entries=tuple(state_entry(item) for item in wire.state_changes),
        stays=tuple(convert.stay(item) for item in wire.stays),
        visible=tuple(convert.seq_range(item) for item in wire.visible_ranges),
        own_clear_seq=wire.own_clear_seq,
        next_page_token=wire.next_page_token,
    )


def explanation(wire: admin_pb2.ExplainVisibilityResponse) -> answers.Explanation:
    """The answer to a complaint."""
    return answers.Explanation(
        visible=wire.visible,
        delivered=wire.delivered,
        cause=wire.cause,
        sentence=wire.sentence,
        stay=convert.stay(wire.stay) if wire.HasField("stay") else None,
        own_clear_seq=wire.own_clear_seq,
        group_floor_seq=wire.group_floor_seq,
        settings=convert.settings_from_wire(wire.settings),
    )


def _owner(user: bytes) -> UserId | None:
    return UserId(user) if any(user) else None

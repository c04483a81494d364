"""GroupAdmin over gRPC: protobuf in and out. FindGroups, of a later version, answers UNIMPLEMENTED."""

from __future__ import annotations

from typing import Any

import grpc

from qim.admin.v1 import admin_pb2, admin_pb2_grpc
from qim_admin.commands.groups import GroupCommands
from qim_admin.domain.changes import ChangeAsked, ChangeKind
from qim_admin.handlers import convert
from qim_common.calls import current_call

_Context = grpc.aio.ServicerContext[Any, Any]


class GroupAdminHandler(admin_pb2_grpc.GroupAdminServicer):
    """The operator API."""

    def __init__(self, commands: GroupCommands) -> None:
        self._commands = commands

    async def AddMembers(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.AddMembersRequest, context: _Context
    ) -> admin_pb2.MembershipResult:
        """One event for up to 1,000 people."""
        asked = ChangeAsked(
            kind=ChangeKind.ADD,
            tenant_id=request.tenant_id,
            request_id=request.request_id,
            group_id=request.group_id,
            user_ids=request.user_ids,
            initiator_user_id=request.initiator_user_id,
            owner_user_id=request.owner_user_id,
        )
        return await self._change(asked)

    async def RemoveMembers(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.RemoveMembersRequest, context: _Context
    ) -> admin_pb2.MembershipResult:
        """One event for up to 1,000 people."""
        asked = ChangeAsked(
            kind=ChangeKind.REMOVE,
            tenant_id=request.tenant_id,
            request_id=request.request_id,
            group_id=request.group_id,
            user_ids=request.user_ids,
            initiator_user_id=request.initiator_user_id,
            leaver_history=request.leaver_history,
        )
        return await self._change(asked)

    async def GetGroup(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.GetGroupRequest, context: _Context
    ) -> admin_pb2.GroupDetails:
        """The group as it is now."""
        group = await self._commands.get_group(
            current_call().peer, request.tenant_id, request.group_id, timeout=_remaining()
        )
        return convert.details_of(group)

    async def ListMembers(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.ListMembersRequest, context: _Context
    ) -> admin_pb2.ListMembersResponse:
        """Present members, page after page."""
        page = await self._commands.list_members(
            current_call().peer,
            request.tenant_id,
            request.group_id,
            page_size=request.page_size,
            page_token=request.page_token,
            timeout=_remaining(),
        )
        return admin_pb2.ListMembersResponse(
            members=[convert.member_of(row) for row in page.members],
            next_page_token=page.next_token,
            membership_version=page.version,
            member_count=page.member_count,
        )

    async def GroupTimeline(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.GroupTimelineRequest, context: _Context
    ) -> admin_pb2.GroupTimelineResponse:
        """Membership events and changes without a seq, page after page."""
        page = await self._commands.timeline(
            current_call().peer,
            request.tenant_id,
            request.group_id,
            request.user_id,
            page_size=request.page_size,
            page_token=request.page_token,
            timeout=_remaining(),
        )
        return convert.timeline_of(page)

    async def ExplainVisibility(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.ExplainVisibilityRequest, context: _Context
    ) -> admin_pb2.ExplainVisibilityResponse:
        """Why a person may or may not read a seq."""
        found = await self._commands.explain(
            current_call().peer,
            request.tenant_id,
            request.group_id,
            request.user_id,
            request.seq,
            timeout=_remaining(),
        )
        return convert.explanation_of(found)

    async def UpdateGroupSettings(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.UpdateGroupSettingsRequest, context: _Context
    ) -> admin_pb2.GroupDetails:
        """Replaces all settings."""
        group = await self._commands.update_settings(
            current_call().peer,
            request.tenant_id,
            request.request_id,
            request.group_id,
            convert.settings_from(request.settings),
            timeout=_remaining(),
        )
        return convert.details_of(group)

    async def TransferOwnership(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.TransferOwnershipRequest, context: _Context
    ) -> admin_pb2.GroupDetails:
        """Makes a member the owner."""
        group = await self._commands.transfer_ownership(
            current_call().peer,
            request.tenant_id,
            request.request_id,
            request.group_id,
            request.new_owner_user_id,
            timeout=_remaining(),
        )
        return convert.details_of(group)

    async def ClearGroupHistory(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.ClearGroupHistoryRequest, context: _Context
    ) -> admin_pb2.GroupDetails:
        """Moves the floor up for all."""
        group = await self._commands.clear_history(
            current_call().peer,
            request.tenant_id,
            request.request_id,
            request.group_id,
            request.up_to_seq,
            timeout=_remaining(),
        )
        return convert.details_of(group)

    async def FreezeGroup(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.FreezeGroupRequest, context: _Context
    ) -> admin_pb2.GroupDetails:
        """Freezes or unfreezes."""
        group = await self._commands.freeze(
            current_call().peer,
            request.tenant_id,
            request.request_id,
            request.group_id,
            frozen=request.frozen,
            timeout=_remaining(),
        )
        return convert.details_of(group)

    async def RunRetention(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.RunRetentionRequest, context: _Context
    ) -> admin_pb2.RunRetentionResponse:
        """Retention by age over a tenant's groups, page after page."""
        page = await self._commands.run_retention(
            current_call().peer,
            request.tenant_id,
            dry_run=request.dry_run,
            page_token=request.page_token,
            timeout=_remaining(),
        )
        return convert.retention_of(page)

    async def _change(self, asked: ChangeAsked) -> admin_pb2.MembershipResult:
        version = await self._commands.change_members(current_call().peer, asked, timeout=_remaining())
        return convert.result_of(version)


def _remaining() -> float:
    remaining = current_call().remaining()
    if remaining is None:
        raise RuntimeError("a unary call without a deadline passed the interceptor")
    return remaining

"""GroupAdmin over gRPC: protobuf in and out. Methods that are not here answer UNIMPLEMENTED."""

from __future__ import annotations

from typing import Any

import grpc

from qim.admin.v1 import admin_pb2, admin_pb2_grpc
from qim.common.v1 import types_pb2
from qim_admin.commands.groups import GroupCommands
from qim_admin.domain import ChangeAsked, ChangeKind, Group, MemberRow, MembershipVersion
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
        peer = current_call().peer
        return _details(await self._commands.get_group(peer, request.tenant_id, request.group_id, timeout=_remaining()))

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
            members=[_member(row) for row in page.members],
            next_page_token=page.next_token,
            membership_version=page.version,
            member_count=page.member_count,
        )

    async def _change(self, asked: ChangeAsked) -> admin_pb2.MembershipResult:
        return _result(await self._commands.change_members(current_call().peer, asked, timeout=_remaining()))


def _remaining() -> float:
    remaining = current_call().remaining()
    if remaining is None:
        raise RuntimeError("a unary call without a deadline passed the interceptor")
    return remaining


def _result(version: MembershipVersion) -> admin_pb2.MembershipResult:
    return admin_pb2.MembershipResult(
        group_id=version.group,
        membership_version=version.version,
        seq=version.seq,
        member_count=version.member_count,
        changed_count=version.changed_count,
        time_ms=version.time_ms,
    )


def _details(group: Group) -> admin_pb2.GroupDetails:
    settings = group.settings
    return admin_pb2.GroupDetails(
        group_id=group.group,
        owner_user_id=group.owner,
        membership_version=group.version,
        revision=group.revision,
        generation=group.generation,
        member_count=group.member_count,
        settings=types_pb2.GroupSettings(
            newcomer_history=types_pb2.NewcomerHistory(
                policy=types_pb2.NewcomerHistory.Policy.ValueType(settings.newcomer_policy), last_n=settings.last_n
            ),
            rejoin_history=types_pb2.RejoinHistory.ValueType(settings.rejoin_history),
            leaver_history=types_pb2.LeaverHistory.ValueType(settings.leaver_history),
            broadcast_max_members=settings.broadcast_max_members,
            member_limit=settings.member_limit,
            retention_days=settings.retention_days,
        ),
        head_seq=group.head_seq,
        group_floor_seq=group.floor_seq,
        frozen=group.frozen,
        created_at_ms=group.created_at_ms,
    )


def _member(row: MemberRow) -> types_pb2.Member:
    return types_pb2.Member(
        user_id=row.user,
        role=types_pb2.MemberRole.ValueType(row.role),
        joined_at_conversation_seq=row.joined_at,
        state=types_pb2.MemberState.ValueType(row.state),
        left_at_conversation_seq=row.left_at,
    )

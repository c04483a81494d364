"""`qim.writer.v1.GroupControl`: what the admin service needs of a group. Methods not here answer UNIMPLEMENTED."""

from __future__ import annotations

from typing import Any

import grpc

from qim.writer.v1 import group_control_pb2, group_control_pb2_grpc
from qim_common.calls import require_principal
from qim_writer.commands.groups import get_group
from qim_writer.commands.members import Members
from qim_writer.handlers import convert
from qim_writer.storage import MembershipStore

Context = grpc.aio.ServicerContext[Any, Any]


class GroupControlHandler(group_control_pb2_grpc.GroupControlServicer):
    """Every call carries the principal, whose tenant is the call's."""

    def __init__(self, *, store: MembershipStore, members: Members) -> None:
        self._store = store
        self._members = members

    async def GetGroup(  # noqa: N802
        self, request: group_control_pb2.ControlGetGroupRequest, context: Context
    ) -> group_control_pb2.Group:
        """See the proto."""
        group, facts = await get_group(self._store, require_principal(), request.group_id)
        return convert.group_of(group, facts)

    async def ListMembers(  # noqa: N802
        self, request: group_control_pb2.ControlListMembersRequest, context: Context
    ) -> group_control_pb2.ControlListMembersResponse:
        """See the proto."""
        page = await self._members.list_for(
            require_principal(), request.group_id, request.page_size, request.page_token
        )
        return group_control_pb2.ControlListMembersResponse(
            members=convert.members_of(page.rows),
            next_page_token=page.next_token,
            membership_version=page.version,
            member_count=page.count,
        )

"""`qim.writer.v1.GroupControl`: what the admin service needs of a group. FindGroups answers UNIMPLEMENTED."""

from __future__ import annotations

from typing import Any

import grpc

from qim.writer.v1 import group_control_pb2, group_control_pb2_grpc
from qim_common.calls import require_principal
from qim_common.server.tasks import TaskKeeper
from qim_writer.commands.explain import Explain
from qim_writer.commands.group_state import GroupState
from qim_writer.commands.groups import get_group
from qim_writer.commands.members import Members
from qim_writer.commands.retention_run import RetentionRuns
from qim_writer.domain.policy import Limits
from qim_writer.handlers import convert
from qim_writer.storage import MembershipStore

Context = grpc.aio.ServicerContext[Any, Any]


class GroupControlHandler(group_control_pb2_grpc.GroupControlServicer):
    """Every call carries the principal, whose tenant is the call's."""

    def __init__(
        self,
        *,
        store: MembershipStore,
        members: Members,
        groups: GroupState,
        questions: Explain,
        retention: RetentionRuns,
        limits: Limits,
        tasks: TaskKeeper,
    ) -> None:
        self._store = store
        self._members = members
        self._groups = groups
        self._questions = questions
        self._retention = retention
        self._limits = limits
        self._tasks = tasks

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

    async def UpdateGroupSettings(  # noqa: N802
        self, request: group_control_pb2.ControlUpdateGroupSettingsRequest, context: Context
    ) -> group_control_pb2.Group:
        """See the proto."""
        settings = convert.settings_from(request.settings)
        work = self._groups.update_settings(require_principal(), request.request_id, request.group_id, settings)
        return convert.group_after(*await self._tasks.shield(work))

    async def TransferOwnership(  # noqa: N802
        self, request: group_control_pb2.ControlTransferOwnershipRequest, context: Context
    ) -> group_control_pb2.Group:
        """See the proto."""
        new_owner = request.new_owner_user_id
        work = self._groups.transfer(require_principal(), request.request_id, request.group_id, new_owner)
        return convert.group_after(*await self._tasks.shield(work))

    async def ClearGroupHistory(  # noqa: N802
        self, request: group_control_pb2.ControlClearGroupHistoryRequest, context: Context
    ) -> group_control_pb2.Group:
        """See the proto."""
        work = self._groups.clear_group(require_principal(), request.request_id, request.group_id, request.up_to_seq)
        return convert.group_after(*await self._tasks.shield(work))

    async def FreezeGroup(  # noqa: N802
        self, request: group_control_pb2.ControlFreezeGroupRequest, context: Context
    ) -> group_control_pb2.Group:
        """See the proto."""
        work = self._groups.freeze(require_principal(), request.request_id, request.group_id, frozen=request.frozen)
        return convert.group_after(*await self._tasks.shield(work))

    async def RunRetention(  # noqa: N802
        self, request: group_control_pb2.ControlRunRetentionRequest, context: Context
    ) -> group_control_pb2.ControlRunRetentionResponse:
        """See the proto."""
        work = self._retention.page(require_principal(), request.page_token, dry_run=request.dry_run)
        return convert.retention_page_of(await self._tasks.shield(work))

    async def ExplainVisibility(  # noqa: N802
        self, request: group_control_pb2.ControlExplainVisibilityRequest, context: Context
    ) -> group_control_pb2.VisibilityExplanation:
        """See the proto."""
        found, facts = await self._questions.seq(require_principal(), request.group_id, request.user_id, request.seq)
        return convert.explanation_of(found, facts)

    async def GroupTimeline(  # noqa: N802
        self, request: group_control_pb2.ControlGroupTimelineRequest, context: Context
    ) -> group_control_pb2.ControlGroupTimelineResponse:
        """See the proto."""
        timeline = await self._questions.timeline(
            require_principal(), request.group_id, request.user_id, request.page_size, request.page_token
        )
        return group_control_pb2.ControlGroupTimelineResponse(
            changes=[convert.change_of(change) for change in timeline.changes],
            state_changes=[convert.state_change_of(record) for record in timeline.states],
            stays=[convert.stay_of(stay) for stay in timeline.stays],
            next_page_token=timeline.next_token,
            group=convert.group_of(timeline.group, timeline.facts),
            visible_ranges=convert.ranges_of(timeline.visible),
            own_clear_seq=0 if timeline.facts.person is None else timeline.facts.person.own_clear,
        )

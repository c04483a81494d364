"""The groups, asked of the writer as an internal principal (contracts.md, "Identity").

Nothing is repeated here: the caller's own library does that, with the same ids, and two layers would multiply.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, TypeVar

import grpc

from qim.common.v1 import types_pb2
from qim.membership.v1 import membership_pb2, membership_pb2_grpc
from qim.writer.v1 import group_control_pb2, group_control_pb2_grpc
from qim_admin.backends import wire
from qim_admin.domain.changes import MembershipChange, MembershipVersion
from qim_admin.domain.groups import Group, GroupSettings, MemberPage
from qim_admin.domain.retention import RetentionPage
from qim_admin.domain.timeline import Explanation, TimelinePage
from qim_common.channels import ChannelProvider
from qim_common.errors import BackendUnavailable, RemoteError, from_rpc_error
from qim_common.identity import PRINCIPAL_KEY, Principal
from qim_common.ids import ConversationId, UserId
from qim_common.settings_wire import settings_to_wire

Answer = TypeVar("Answer")
_NO_ANSWER: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class WriterDirectory:
    """`GroupDirectory` over the writer's GroupMembership and GroupControl, with the admin service's certificate."""

    def __init__(self, channels: ChannelProvider) -> None:
        self._channels = channels

    async def change_members(
        self, principal: Principal, change: MembershipChange, *, timeout: float
    ) -> MembershipVersion:
        """Carry out a change (the trait's `admin_change_members`)."""
        request = membership_pb2.AdminMembershipChange(
            request_id=change.request_id,
            group_id=change.group,
            kind=membership_pb2.AdminMembershipChange.Kind.ValueType(change.kind),
            user_ids=change.people,
            leaver_history=types_pb2.LeaverHistory.ValueType(change.leaver_history),
            owner_user_id=change.owner or b"",
        )
        stub = self._channels.stub(membership_pb2_grpc.GroupMembershipStub)
        answer = await _answer(stub.AdminChangeMembers(request, timeout=timeout, metadata=_metadata(principal)))
        return wire.membership_version(answer)

    async def get_group(self, principal: Principal, group: ConversationId, *, timeout: float) -> Group:
        """The group as it is now."""
        request = group_control_pb2.ControlGetGroupRequest(group_id=group)
        answer = self._control().GetGroup(request, timeout=timeout, metadata=_metadata(principal))
        return wire.group(await _answer(answer))

    async def list_members(
        self, principal: Principal, group: ConversationId, *, page_size: int, page_token: str, timeout: float
    ) -> MemberPage:
        """Present members in a stable order."""
        request = group_control_pb2.ControlListMembersRequest(
            group_id=group, page_size=page_size, page_token=page_token
        )
        answer = self._control().ListMembers(request, timeout=timeout, metadata=_metadata(principal))
        return wire.member_page(await _answer(answer))

    async def timeline(
        self,
        principal: Principal,
        group: ConversationId,
        user: UserId | None,
        *,
        page_size: int,
        page_token: str,
        timeout: float,
    ) -> TimelinePage:
        """Membership events and changes without a seq."""
        request = group_control_pb2.ControlGroupTimelineRequest(
            group_id=group, user_id=user or b"", page_size=page_size, page_token=page_token
        )
        answer = self._control().GroupTimeline(request, timeout=timeout, metadata=_metadata(principal))
        return wire.timeline_page(await _answer(answer))

    async def explain(
        self, principal: Principal, group: ConversationId, user: UserId, seq: int, *, timeout: float
    ) -> Explanation:
        """Why a person may or may not read a seq."""
        request = group_control_pb2.ControlExplainVisibilityRequest(group_id=group, user_id=user, seq=seq)
        answer = self._control().ExplainVisibility(request, timeout=timeout, metadata=_metadata(principal))
        return wire.explanation(await _answer(answer))

    async def update_settings(
        self,
        principal: Principal,
        group: ConversationId,
        request_id: bytes,
        settings: GroupSettings,
        *,
        timeout: float,
    ) -> Group:
        """Replace all settings."""
        request = group_control_pb2.ControlUpdateGroupSettingsRequest(
            request_id=request_id, group_id=group, settings=settings_to_wire(settings)
        )
        answer = self._control().UpdateGroupSettings(request, timeout=timeout, metadata=_metadata(principal))
        return wire.group(await _answer(answer))

    async def transfer_ownership(
        self, principal: Principal, group: ConversationId, request_id: bytes, owner: UserId, *, timeout: float
    ) -> Group:
        """Make a member the owner."""
        request = group_control_pb2.ControlTransferOwnershipRequest(
            request_id=request_id, group_id=group, new_owner_user_id=owner
        )
        answer = self._control().TransferOwnership(request, timeout=timeout, metadata=_metadata(principal))
        return wire.group(await _answer(answer))

    async def clear_history(
        self, principal: Principal, group: ConversationId, request_id: bytes, up_to_seq: int, *, timeout: float
    ) -> Group:
        """Move the floor up for all."""
        request = group_control_pb2.ControlClearGroupHistoryRequest(
            request_id=request_id, group_id=group, up_to_seq=up_to_seq
        )
        answer = self._control().ClearGroupHistory(request, timeout=timeout, metadata=_metadata(principal))
        return wire.group(await _answer(answer))

    async def freeze(
        self, principal: Principal, group: ConversationId, request_id: bytes, *, frozen: bool, timeout: float
    ) -> Group:
        """Freeze or unfreeze."""
        request = group_control_pb2.ControlFreezeGroupRequest(request_id=request_id, group_id=group, frozen=frozen)
        answer = self._control().FreezeGroup(request, timeout=timeout, metadata=_metadata(principal))
        return wire.group(await _answer(answer))

    async def run_retention(
        self, principal: Principal, *, dry_run: bool, page_token: str, timeout: float
    ) -> RetentionPage:
        """Retention by age over the tenant's groups."""
        request = group_control_pb2.ControlRunRetentionRequest(dry_run=dry_run, page_token=page_token)
        answer = self._control().RunRetention(request, timeout=timeout, metadata=_metadata(principal))
        return wire.retention_page(await _answer(answer))

    def _control(self) -> group_control_pb2_grpc.GroupControlStub:
        return self._channels.stub(group_control_pb2_grpc.GroupControlStub)


def _metadata(principal: Principal) -> tuple[tuple[str, bytes], ...]:
    return ((PRINCIPAL_KEY, principal.to_message().SerializeToString()),)


async def _answer(call: Awaitable[Answer]) -> Answer:
    try:
        return await call
    except grpc.aio.AioRpcError as failure:
        error = from_rpc_error(failure)
        if isinstance(error, RemoteError) and error.code in _NO_ANSWER:
            error = BackendUnavailable(message="the writer does not answer; retry with the same request id")
        raise error from failure

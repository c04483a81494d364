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
from qim_admin.domain import (
    Group,
    GroupSettings,
    MemberPage,
    MemberRow,
    MembershipChange,
    MembershipVersion,
)
from qim_common.channels import ChannelProvider
from qim_common.errors import BackendUnavailable, RemoteError, from_rpc_error
from qim_common.identity import PRINCIPAL_KEY, Principal
from qim_common.ids import ConversationId, UserId

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
        wire = await _answer(stub.AdminChangeMembers(request, timeout=timeout, metadata=_metadata(principal)))
        return MembershipVersion(
            group=ConversationId(wire.group_id),
            version=wire.version,
            seq=wire.seq,
            member_count=wire.member_count,
            changed_count=wire.changed_count,
            time_ms=wire.time_ms,
        )

    async def get_group(self, principal: Principal, group: ConversationId, *, timeout: float) -> Group:
        """The group as it is now."""
        request = group_control_pb2.ControlGetGroupRequest(group_id=group)
        stub = self._channels.stub(group_control_pb2_grpc.GroupControlStub)
        wire = await _answer(stub.GetGroup(request, timeout=timeout, metadata=_metadata(principal)))
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

    async def list_members(
        self, principal: Principal, group: ConversationId, *, page_size: int, page_token: str, timeout: float
    ) -> MemberPage:
        """Present members in a stable order."""
        request = group_control_pb2.ControlListMembersRequest(
            group_id=group, page_size=page_size, page_token=page_token
        )
        stub = self._channels.stub(group_control_pb2_grpc.GroupControlStub)
        wire = await _answer(stub.ListMembers(request, timeout=timeout, metadata=_metadata(principal)))
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


def _settings(wire: types_pb2.GroupSettings) -> GroupSettings:
    return GroupSettings(
        newcomer_policy=wire.newcomer_history.policy,
        last_n=wire.newcomer_history.last_n,
        rejoin_history=wire.rejoin_history,
        leaver_history=wire.leaver_history,
        broadcast_max_members=wire.broadcast_max_members,
        member_limit=wire.member_limit,
        retention_days=wire.retention_days,
    )

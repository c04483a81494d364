"""What operators do to groups, asked of the writer as the admin service asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from qim.membership.v1 import membership_pb2
from qim.membership.v1.membership_pb2_grpc import GroupMembershipStub
from qim.writer.v1 import group_control_pb2
from qim.writer.v1.group_control_pb2_grpc import GroupControlStub
from qim_common.channels import ChannelProvider
from qim_common.identity import PRINCIPAL_KEY, Principal, PrincipalKind, Role
from qim_common.ids import ConversationId, TenantId, UserId, uuid7
from qim_common.tls import PemFiles
from qim_devkit.suite import Suite

_Kind = membership_pb2.AdminMembershipChange.Kind


class Operators:
    """An operator of one tenant; every call answers the event's seq, or the revision."""

    def __init__(self, channels: ChannelProvider, tenant: TenantId) -> None:
        principal = Principal(PrincipalKind.OPERATOR, "tester", tenant, None)
        self._channels = channels
        self._metadata = ((PRINCIPAL_KEY, principal.to_message().SerializeToString()),)

    async def add(self, group: ConversationId, people: Sequence[UserId]) -> int:
        """Put people into a group."""
        return await self._change(group, people, membership_pb2.AdminMembershipChange.KIND_ADD)

    async def remove(self, group: ConversationId, people: Sequence[UserId]) -> int:
        """Take people out of a group."""
        return await self._change(group, people, membership_pb2.AdminMembershipChange.KIND_REMOVE)

    async def freeze(self, group: ConversationId, *, frozen: bool = True) -> int:
        """Freeze a group, or thaw it."""
        answer = await self._channels.stub(GroupControlStub).FreezeGroup(
            group_control_pb2.ControlFreezeGroupRequest(request_id=uuid7(), group_id=group, frozen=frozen),
            metadata=self._metadata,
            timeout=10.0,
        )
        return answer.revision

    async def _change(self, group: ConversationId, people: Sequence[UserId], kind: _Kind.ValueType) -> int:
        change = membership_pb2.AdminMembershipChange(request_id=uuid7(), group_id=group, kind=kind, user_ids=people)
        answer = await self._channels.stub(GroupMembershipStub).AdminChangeMembers(
            change, metadata=self._metadata, timeout=10.0
        )
        return answer.seq


@asynccontextmanager
async def operators(suite: Suite, tenant: TenantId) -> AsyncIterator[Operators]:
    """The operator of a running suite."""
    files = suite.pki.issue(Role.ADMIN, "test-admin")
    channels = ChannelProvider(suite.addresses["writer"], PemFiles(files.cert, files.key, (files.ca,)))
    try:
        yield Operators(channels, tenant)
    finally:
        await channels.close()

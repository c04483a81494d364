"""`qim.membership.v1.GroupMembership`: the trait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from qim.membership.v1 import membership_pb2, membership_pb2_grpc
from qim_common.calls import require_actor, require_principal
from qim_common.errors import InvalidArgument
from qim_common.ids import MembershipOp
from qim_common.server.tasks import TaskKeeper
from qim_writer.commands.authorize import Authorization
from qim_writer.commands.change_members import AdminChange, MemberChanges
from qim_writer.commands.create_group import CreateGroup, create_group
from qim_writer.commands.members import Members
from qim_writer.domain.hints import CommitHints
from qim_writer.domain.policy import Limits
from qim_writer.handlers import convert
from qim_writer.storage import MembershipStore

Context = grpc.aio.ServicerContext[Any, Any]
_OPS = {
    membership_pb2.AdminMembershipChange.KIND_ADD: MembershipOp.JOIN,
    membership_pb2.AdminMembershipChange.KIND_REMOVE: MembershipOp.REMOVE,
}


class GroupMembershipHandler(membership_pb2_grpc.GroupMembershipServicer):
    """Gateways for the actor; the admin service for AdminChangeMembers; the session service for recipients."""

    def __init__(
        self,
        *,
        store: MembershipStore,
        changes: MemberChanges,
        members: Members,
        authorization: Authorization,
        limits: Limits,
        tasks: TaskKeeper,
        hints: CommitHints | None,
    ) -> None:
        self._store = store
        self._changes = changes
        self._members = members
        self._authorization = authorization
        self._limits = limits
        self._tasks = tasks
        self._hints = hints

    async def CreateGroup(  # noqa: N802
        self, request: membership_pb2.GroupCreateRequest, context: Context
    ) -> membership_pb2.GroupCreated:
        """See the proto."""
        settings = convert.settings_from(request.settings)
        wanted = CreateGroup(request.request_id, request.group_id, request.member_user_ids, settings)
        creation = create_group(self._store, self._limits, require_actor(), wanted, self._hints)
        group, answer = await self._tasks.shield(creation)
        return membership_pb2.GroupCreated(
            group_id=group.id, membership_version=answer.version, member_count=answer.count, time_ms=answer.time_ms
        )

    async def AdminChangeMembers(  # noqa: N802
        self, request: membership_pb2.AdminMembershipChange, context: Context
    ) -> membership_pb2.MembershipVersion:
        """See the proto."""
        op = _OPS.get(request.kind)
        if op is None:
            raise InvalidArgument("kind", "must be ADD or REMOVE")
        change = AdminChange(
            request_id=request.request_id,
            group_id=request.group_id,
            op=op,
            people=request.user_ids,
            owner=request.owner_user_id,
            leaver=convert.leaver_from(request.leaver_history),
        )
        group, answer = await self._tasks.shield(self._changes.by_principal(require_principal(), change))
        return convert.version_of(group, answer)

    async def AuthorizeSend(  # noqa: N802
        self, request: membership_pb2.AuthorizeSendRequest, context: Context
    ) -> membership_pb2.AuthorizeSendResponse:
        """See the proto."""
        await self._authorization.send(require_actor(), request.conversation_id)
        return membership_pb2.AuthorizeSendResponse()

    async def AuthorizeHistory(  # noqa: N802
        self, request: membership_pb2.AuthorizeHistoryRequest, context: Context
    ) -> membership_pb2.AuthorizeHistoryResponse:
        """See the proto."""
        await self._authorization.history(require_actor(), request.conversation_id)
        return membership_pb2.AuthorizeHistoryResponse()

    async def MembersPage(  # noqa: N802
        self, request: membership_pb2.MemberPageRequest, context: Context
    ) -> membership_pb2.MemberPage:
        """See the proto."""
        page = await self._members.page(require_actor(), request.group_id, request.page_size, request.page_token)
        return membership_pb2.MemberPage(
            members=convert.members_of(page.rows),
            next_page_token=page.next_token,
            membership_version=page.version,
            member_count=page.count,
        )

    async def FreezeDelivery(  # noqa: N802
        self, request: membership_pb2.FreezeDeliveryRequest, context: Context
    ) -> membership_pb2.FrozenDeliveryInput:
        """See the proto."""
        conversation, facts = await self._authorization.send(require_actor(), request.conversation_id)
        return membership_pb2.FrozenDeliveryInput(
            conversation_id=conversation.id,
            membership_version=facts.version,
            member_count=facts.member_count,
            generation=facts.generation,
        )

    async def RecipientsForVersion(  # noqa: N802
        self, request: membership_pb2.RecipientsForVersionRequest, context: Context
    ) -> AsyncIterator[membership_pb2.RecipientChunk]:
        """See the proto."""
        shard = request.target_shard if request.HasField("target_shard") else None
        chunks = self._members.recipients(request.tenant_id, request.group_id, request.membership_version, shard)
        async for mailbox_shard, people in chunks:
            yield membership_pb2.RecipientChunk(
                mailbox_shard=mailbox_shard, membership_version=request.membership_version, user_ids=people
            )

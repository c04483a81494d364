"""The client of operators and back ends: GroupAdmin over mTLS with a certificate of the operators' CA."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from qim.admin.v1 import admin_pb2, admin_pb2_grpc
from qim.common.v1 import types_pb2
from qim_client import answers, convert, convert_operators
from qim_client.config import OperatorProfile, TlsFiles
from qim_client.connection import DEFAULT_TIMEOUT, Connection
from qim_client.retry import RetryPolicy
from qim_client.services import client_tls
from qim_client.values import GroupSettings, Member
from qim_common.channels import ChannelProvider
from qim_common.enums import LeaverHistory
from qim_common.ids import ConversationId, TenantId, UserId, uuid7
from qim_common.settings_wire import settings_to_wire

MAX_PEOPLE = 1000
"""Of one AddMembers or RemoveMembers (contracts.md, "Services")."""

MAX_PAGE = 1000


class OperatorClient:
    """Calls in one tenant. Make it inside the event loop, close it at the end.

    Every method takes `timeout` in seconds for all attempts together (None: the client's) and raises the QimError that
    the service answered. A change makes its id once and repeats the call with it; pass `request_id` to repeat it later.

    Parameters:
        admin: `host:port`.
        files: the operator's certificate and key, and the CA of the services.
        tenant: in which the calls act; the certificate has to be bound to it.

    Raises CertificateError if the files cannot be taken.
    """

    def __init__(
        self,
        admin: str,
        files: TlsFiles,
        tenant: TenantId,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.tenant = tenant
        self._channels = ChannelProvider(admin, client_tls(files))
        self._admin = Connection(self._channels, admin_pb2_grpc.GroupAdminStub, timeout=timeout, policy=policy)

    @classmethod
    def from_profile(
        cls,
        profile: OperatorProfile,
        *,
        tenant: TenantId | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        policy: RetryPolicy | None = None,
    ) -> Self:
        """The client of a configuration file's section [operator]; `tenant` None: the file's."""
        return cls(profile.admin, profile.tls, tenant or TenantId(profile.tenant), timeout=timeout, policy=policy)

    async def add_members(
        self,
        group: ConversationId,
        users: Sequence[UserId],
        *,
        initiator: UserId | None = None,
        owner: UserId | None = None,
        request_id: bytes | None = None,
        timeout: float | None = None,
    ) -> answers.MembershipResult:
        """Add 1 to 1,000 people with one event.

        Args:
            initiator: the end user who asked for it; back ends only.
            owner: into an empty group, who of `users` becomes the owner; None: the first.
        """
        request = admin_pb2.AddMembersRequest(
            tenant_id=self.tenant,
            request_id=request_id or uuid7(),
            group_id=group,
            user_ids=users,
            initiator_user_id=initiator or b"",
            owner_user_id=owner or b"",
        )
        answer = await self._admin.call(lambda stub: stub.AddMembers, request, timeout=timeout)
        return convert_operators.membership_result(answer)

    async def remove_members(
        self,
        group: ConversationId,
        users: Sequence[UserId],
        *,
        initiator: UserId | None = None,
        leaver_history: LeaverHistory | None = None,
        request_id: bytes | None = None,
        timeout: float | None = None,
    ) -> answers.MembershipResult:
        """Remove 1 to 1,000 people with one event.

        Args:
            initiator: the end user who asked for it; back ends only.
            leaver_history: what they may read from now on; None: the group's setting.
        """
        request = admin_pb2.RemoveMembersRequest(
            tenant_id=self.tenant,
            request_id=request_id or uuid7(),
            group_id=group,
            user_ids=users,
            initiator_user_id=initiator or b"",
            leaver_history=types_pb2.LeaverHistory.ValueType(leaver_history or 0),
        )
        answer = await self._admin.call(lambda stub: stub.RemoveMembers, request, timeout=timeout)
        return convert_operators.membership_result(answer)

    async def get_group(self, group: ConversationId, *, timeout: float | None = None) -> answers.GroupDetails:
        """The group as it is now."""
        request = admin_pb2.GetGroupRequest(tenant_id=self.tenant, group_id=group)
        answer = await self._admin.call(lambda stub: stub.GetGroup, request, timeout=timeout)
        return convert_operators.group_details(answer)

    async def list_members(
        self, group: ConversationId, *, page_size: int = 100, page_token: str = "", timeout: float | None = None
    ) -> answers.MemberPage:
        """Present members in a stable order, 1 to 1000 of them."""
        request = admin_pb2.ListMembersRequest(
            tenant_id=self.tenant, group_id=group, page_size=page_size, page_token=page_token
        )
        answer = await self._admin.call(lambda stub: stub.ListMembers, request, timeout=timeout)
        return convert.member_page(answer)

    async def members(self, group: ConversationId) -> AsyncIterator[Member]:
        """All present members, page after page."""
        token = ""
        while True:
            page = await self.list_members(group, page_size=MAX_PAGE, page_token=token)
            for member in page.members:
                yield member
            if not (token := page.next_page_token):
                return

    async def update_group_settings(
        self,
        group: ConversationId,
        settings: GroupSettings,
        *,
        request_id: bytes | None = None,
        timeout: float | None = None,
    ) -> answers.GroupDetails:
        """Replace all settings; what stays show was fixed when they began and ended."""
        request = admin_pb2.UpdateGroupSettingsRequest(
            tenant_id=self.tenant,
            request_id=request_id or uuid7(),
            group_id=group,
            settings=settings_to_wire(settings),
        )
        answer = await self._admin.call(lambda stub: stub.UpdateGroupSettings, request, timeout=timeout)
        return convert_operators.group_details(answer)

    async def transfer_ownership(
        self, group: ConversationId, owner: UserId, *, request_id: bytes | None = None, timeout: float | None = None
    ) -> answers.GroupDetails:
        """Make a member the owner."""
        request = admin_pb2.TransferOwnershipRequest(
            tenant_id=self.tenant, request_id=request_id or uuid7(), group_id=group, new_owner_user_id=owner
        )
        answer = await self._admin.call(lambda stub: stub.TransferOwnership, request, timeout=timeout)
        return convert_operators.group_details(answer)

    async def clear_group_history(
        self,
        group: ConversationId,
        *,
        up_to_seq: int = 0,
        request_id: bytes | None = None,
        timeout: float | None = None,
    ) -> answers.GroupDetails:
        """Move the floor up for all, to the head at most; 0: everything."""
        request = admin_pb2.ClearGroupHistoryRequest(
            tenant_id=self.tenant, request_id=request_id or uuid7(), group_id=group, up_to_seq=up_to_seq
        )
        answer = await self._admin.call(lambda stub: stub.ClearGroupHistory, request, timeout=timeout)
        return convert_operators.group_details(answer)

    async def freeze_group(
        self,
        group: ConversationId,
        *,
        frozen: bool = True,
        request_id: bytes | None = None,
        timeout: float | None = None,
    ) -> answers.GroupDetails:
        """Freeze or unfreeze: a frozen group refuses sends, joins and end users' group changes."""
        request = admin_pb2.FreezeGroupRequest(
            tenant_id=self.tenant, request_id=request_id or uuid7(), group_id=group, frozen=frozen
        )
        answer = await self._admin.call(lambda stub: stub.FreezeGroup, request, timeout=timeout)
        return convert_operators.group_details(answer)

    async def run_retention(
        self, *, dry_run: bool = False, page_token: str = "", timeout: float | None = None
    ) -> answers.RetentionPage:
        """Move the floors that retention by age asks for, or with `dry_run` tell which: one page of the groups."""
        request = admin_pb2.RunRetentionRequest(tenant_id=self.tenant, dry_run=dry_run, page_token=page_token)
        answer = await self._admin.call(lambda stub: stub.RunRetention, request, timeout=timeout)
        return convert_operators.retention_page(answer)

    async def retention_pages(self, *, dry_run: bool = False) -> AsyncIterator[answers.RetentionPage]:
        """The whole run, page after page."""
        token = ""
        while True:
            page = await self.run_retention(dry_run=dry_run, page_token=token)
            yield page
            if not (token := page.next_page_token):
                return

    async def explain_visibility(
        self, group: ConversationId, user: UserId, seq: int, *, timeout: float | None = None
    ) -> answers.Explanation:
        """Whether a person may read a seq and whether they received it, and by which rule."""
        request = admin_pb2.ExplainVisibilityRequest(tenant_id=self.tenant, group_id=group, user_id=user, seq=seq)
        answer = await self._admin.call(lambda stub: stub.ExplainVisibility, request, timeout=timeout)
        return convert_operators.explanation(answer)

    async def group_timeline(
        self,
        group: ConversationId,
        *,
        user: UserId | None = None,
        page_size: int = 100,
        page_token: str = "",
        timeout: float | None = None,
    ) -> answers.TimelinePage:
        """Membership events and changes without a seq, 1 to 1000 of each; with `user` what concerns that person.

        A page may be short or empty while there are more.
        """
        request = admin_pb2.GroupTimelineRequest(
            tenant_id=self.tenant, group_id=group, user_id=user or b"", page_size=page_size, page_token=page_token
        )
        answer = await self._admin.call(lambda stub: stub.GroupTimeline, request, timeout=timeout)
        return convert_operators.timeline_page(answer)

    async def timeline_pages(
        self, group: ConversationId, *, user: UserId | None = None
    ) -> AsyncIterator[answers.TimelinePage]:
        """The whole line of a group, page after page; what holds for the group and the person is newest in the last."""
        token = ""
        while True:
            page = await self.group_timeline(group, user=user, page_size=MAX_PAGE, page_token=token)
            yield page
            if not (token := page.next_page_token):
                return

    async def close(self) -> None:
        """Close the channel; calls that still run are cancelled."""
        await self._channels.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

"""The operator API's commands: who may ask, what is asked, and one line in the journal whatever comes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias, TypeVar

from qim_admin.domain.authority import principal_of, require_role
from qim_admin.domain.calls import OperatorCall
from qim_admin.domain.changes import ChangeAsked, ChangeKind, MembershipVersion, parse_change
from qim_admin.domain.groups import Group, GroupSettings, MemberPage, parse_page_size
from qim_admin.domain.retention import RetentionPage
from qim_admin.domain.timeline import Explanation, TimelinePage
from qim_admin.storage import Authority, GroupDirectory, Journal
from qim_common.errors import QimError
from qim_common.identity import Peer, Principal
from qim_common.ids import ConversationId, parse_group, parse_id, parse_tenant, parse_user

Answer = TypeVar("Answer")
_Work: TypeAlias = Callable[[Principal, ConversationId], Awaitable[Answer]]


class GroupCommands:
    """Commands on groups. `timeout` is what is left of the caller's deadline, seconds.

    Every command raises TenantNotAllowed, RoleNotAllowed (`domain.authority.LEAST_ROLE`), InvalidArgument naming the
    field, and what `GroupDirectory` raises.
    """

    def __init__(self, directory: GroupDirectory, authority: Authority, journal: Journal) -> None:
        self._directory = directory
        self._authority = authority
        self._journal = journal

    async def change_members(self, caller: Peer, asked: ChangeAsked, *, timeout: float) -> MembershipVersion:
        """AddMembers and RemoveMembers."""

        async def carry_out(principal: Principal, group: ConversationId) -> MembershipVersion:
            return await self._directory.change_members(principal, parse_change(asked, group), timeout=timeout)

        method = "AddMembers" if asked.kind is ChangeKind.ADD else "RemoveMembers"
        initiator, people = asked.initiator_user_id, len(asked.user_ids)
        call = OperatorCall(method, caller, asked.tenant_id, asked.group_id, initiator, people)
        return await self._recorded(
            call,
            carry_out,
            lambda call, answer: replace(call, version=answer.version, seq=answer.seq, changed=answer.changed_count),
        )

    async def get_group(self, caller: Peer, tenant_id: int, group_id: bytes, *, timeout: float) -> Group:
        """GetGroup."""

        async def read(principal: Principal, group: ConversationId) -> Group:
            return await self._directory.get_group(principal, group, timeout=timeout)

        return await self._recorded(OperatorCall("GetGroup", caller, tenant_id, group_id), read)

    async def list_members(
        self, caller: Peer, tenant_id: int, group_id: bytes, *, page_size: int, page_token: str, timeout: float
    ) -> MemberPage:
        """ListMembers."""

        async def read(principal: Principal, group: ConversationId) -> MemberPage:
            size = parse_page_size(page_size)
            return await self._directory.list_members(
                principal, group, page_size=size, page_token=page_token, timeout=timeout
            )

        return await self._recorded(OperatorCall("ListMembers", caller, tenant_id, group_id), read)

    async def timeline(
        self,
        caller: Peer,
        tenant_id: int,
        group_id: bytes,
        user_id: bytes,
        *,
        page_size: int,
        page_token: str,
        timeout: float,
    ) -> TimelinePage:
        """GroupTimeline; an empty `user_id`: the events of all."""

        async def read(principal: Principal, group: ConversationId) -> TimelinePage:
            user = parse_user(user_id, "user_id") if user_id else None
            size = parse_page_size(page_size)
            return await self._directory.timeline(
                principal, group, user, page_size=size, page_token=page_token, timeout=timeout
            )

        call = OperatorCall("GroupTimeline", caller, tenant_id, group_id, people=int(bool(user_id)))
        return await self._recorded(call, read)

    async def explain(
        self, caller: Peer, tenant_id: int, group_id: bytes, user_id: bytes, seq: int, *, timeout: float
    ) -> Explanation:
        """ExplainVisibility."""

        async def read(principal: Principal, group: ConversationId) -> Explanation:
            user = parse_user(user_id, "user_id")
            return await self._directory.explain(principal, group, user, seq, timeout=timeout)

        call = OperatorCall("ExplainVisibility", caller, tenant_id, group_id, people=1, detail=f"seq {seq}")
        return await self._recorded(call, read)

    async def update_settings(
        self,
        caller: Peer,
        tenant_id: int,
        request_id: bytes,
        group_id: bytes,
        settings: GroupSettings,
        *,
        timeout: float,
    ) -> Group:
        """UpdateGroupSettings: replaces all of them."""

        async def carry_out(principal: Principal, group: ConversationId) -> Group:
            asked = parse_id(request_id, "request_id")
            return await self._directory.update_settings(principal, group, asked, settings, timeout=timeout)

        call = OperatorCall("UpdateGroupSettings", caller, tenant_id, group_id, detail=settings.words())
        return await self._recorded(call, carry_out, _with_revision)

    async def transfer_ownership(
        self, caller: Peer, tenant_id: int, request_id: bytes, group_id: bytes, new_owner: bytes, *, timeout: float
    ) -> Group:
        """TransferOwnership."""

        async def carry_out(principal: Principal, group: ConversationId) -> Group:
            asked = parse_id(request_id, "request_id")
            owner = parse_user(new_owner, "new_owner_user_id")
            return await self._directory.transfer_ownership(principal, group, asked, owner, timeout=timeout)

        call = OperatorCall("TransferOwnership", caller, tenant_id, group_id, people=1)
        return await self._recorded(call, carry_out, _with_revision)

    async def clear_history(
        self, caller: Peer, tenant_id: int, request_id: bytes, group_id: bytes, up_to_seq: int, *, timeout: float
    ) -> Group:
        """ClearGroupHistory; `up_to_seq` 0: everything."""

        async def carry_out(principal: Principal, group: ConversationId) -> Group:
            asked = parse_id(request_id, "request_id")
            return await self._directory.clear_history(principal, group, asked, up_to_seq, timeout=timeout)

        detail = f"up_to_seq {up_to_seq}" if up_to_seq else "everything"
        call = OperatorCall("ClearGroupHistory", caller, tenant_id, group_id, detail=detail)
        return await self._recorded(call, carry_out, _with_revision)

    async def freeze(
        self, caller: Peer, tenant_id: int, request_id: bytes, group_id: bytes, *, frozen: bool, timeout: float
    ) -> Group:
        """FreezeGroup: on or off."""

        async def carry_out(principal: Principal, group: ConversationId) -> Group:
            asked = parse_id(request_id, "request_id")
            return await self._directory.freeze(principal, group, asked, frozen=frozen, timeout=timeout)

        detail = "frozen" if frozen else "unfrozen"
        call = OperatorCall("FreezeGroup", caller, tenant_id, group_id, detail=detail)
        return await self._recorded(call, carry_out, _with_revision)

    async def run_retention(
        self, caller: Peer, tenant_id: int, *, dry_run: bool, page_token: str, timeout: float
    ) -> RetentionPage:
        """RunRetention: one page of the tenant's groups."""

        async def carry_out(principal: Principal) -> RetentionPage:
            return await self._directory.run_retention(
                principal, dry_run=dry_run, page_token=page_token, timeout=timeout
            )

        def complete(call: OperatorCall, page: RetentionPage) -> OperatorCall:
            moved = sum(one.new_floor_seq > one.floor_seq for one in page.groups)
            return replace(call, detail=f"{call.detail}, floors of {moved} of {len(page.groups)} groups")

        detail = "dry run" if dry_run else "run"
        call = OperatorCall("RunRetention", caller, tenant_id, b"", detail=detail, dry_run=dry_run)
        return await self._recorded_of_tenant(call, carry_out, complete)

    async def _recorded(
        self,
        call: OperatorCall,
        work: _Work[Answer],
        complete: Callable[[OperatorCall, Answer], OperatorCall] = lambda call, _: call,
    ) -> Answer:
        async def on_group(principal: Principal) -> Answer:
            return await work(principal, parse_group(call.group_id))

        return await self._recorded_of_tenant(call, on_group, complete)

    async def _recorded_of_tenant(
        self,
        call: OperatorCall,
        work: Callable[[Principal], Awaitable[Answer]],
        complete: Callable[[OperatorCall, Answer], OperatorCall],
    ) -> Answer:
        outcome = call
        try:
            tenant = parse_tenant(call.tenant_id)
            self._authority.require_tenant(call.caller, tenant)
            principal = principal_of(call.caller, tenant, call.initiator)
            roles = self._authority.operator_roles(call.caller)
            require_role(call.method, call.caller, roles, dry_run=call.dry_run)
            answer = await work(principal)
            outcome = replace(complete(call, answer), outcome="OK")
            return answer
        except QimError as error:
            outcome = replace(call, outcome=error.reason or error.code.name)
            raise
        finally:
            self._journal.record(outcome)


def _with_revision(call: OperatorCall, group: Group) -> OperatorCall:
    return replace(call, revision=group.revision)

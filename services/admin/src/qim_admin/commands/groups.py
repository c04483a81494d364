"""The operator API's commands: who may ask, what is asked, and one line in the journal whatever comes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from qim_admin.domain import (
    ChangeAsked,
    ChangeKind,
    Group,
    MemberPage,
    MembershipVersion,
    OperatorCall,
    parse_change,
    parse_page_size,
    principal_of,
    require_changing_role,
)
from qim_admin.storage import Authority, GroupDirectory, Journal
from qim_common.errors import QimError
from qim_common.identity import Peer, Principal
from qim_common.ids import parse_group, parse_tenant

Answer = TypeVar("Answer")


class GroupCommands:
    """Commands on groups. `timeout` is what is left of the caller's deadline, seconds.

    Every command raises TenantNotAllowed, InvalidArgument naming the field, and what `GroupDirectory` raises.
    """

    def __init__(self, directory: GroupDirectory, authority: Authority, journal: Journal) -> None:
        self._directory = directory
        self._authority = authority
        self._journal = journal

    async def change_members(self, caller: Peer, asked: ChangeAsked, *, timeout: float) -> MembershipVersion:
        """AddMembers and RemoveMembers. Raises RoleNotAllowed for an operator who may only look."""

        async def carry_out() -> MembershipVersion:
            principal = self._principal(caller, asked.tenant_id, asked.initiator_user_id)
            require_changing_role(caller, self._authority.operator_roles(caller))
            change = parse_change(asked, parse_group(asked.group_id))
            return await self._directory.change_members(principal, change, timeout=timeout)

        method = "AddMembers" if asked.kind is ChangeKind.ADD else "RemoveMembers"
        call = OperatorCall(
            method, caller, asked.tenant_id, asked.group_id, asked.initiator_user_id, len(asked.user_ids), ""
        )
        return await self._recorded(
            call,
            carry_out,
            lambda call, answer: replace(call, version=answer.version, seq=answer.seq, changed=answer.changed_count),
        )

    async def get_group(self, caller: Peer, tenant_id: int, group_id: bytes, *, timeout: float) -> Group:
        """GetGroup."""

        async def read() -> Group:
            principal = self._principal(caller, tenant_id, b"")
            return await self._directory.get_group(principal, parse_group(group_id), timeout=timeout)

        return await self._recorded(OperatorCall("GetGroup", caller, tenant_id, group_id, b"", 0, ""), read)

    async def list_members(
        self, caller: Peer, tenant_id: int, group_id: bytes, *, page_size: int, page_token: str, timeout: float
    ) -> MemberPage:
        """ListMembers."""

        async def read() -> MemberPage:
            principal = self._principal(caller, tenant_id, b"")
            group = parse_group(group_id)
            size = parse_page_size(page_size)
            return await self._directory.list_members(
                principal, group, page_size=size, page_token=page_token, timeout=timeout
            )

        return await self._recorded(OperatorCall("ListMembers", caller, tenant_id, group_id, b"", 0, ""), read)

    def _principal(self, caller: Peer, tenant_id: int, initiator: bytes) -> Principal:
        tenant = parse_tenant(tenant_id)
        self._authority.require_tenant(caller, tenant)
        return principal_of(caller, tenant, initiator)

    async def _recorded(
        self,
        call: OperatorCall,
        work: Callable[[], Awaitable[Answer]],
        complete: Callable[[OperatorCall, Answer], OperatorCall] = lambda call, _: call,
    ) -> Answer:
        # Until something else is known, the outcome is: cut off by the caller's cancel, or a fault of this service.
        outcome = replace(call, outcome="UNFINISHED")
        try:
            answer = await work()
            outcome = replace(complete(call, answer), outcome="OK")
            return answer
        except QimError as error:
            outcome = replace(call, outcome=error.reason or error.code.name)
            raise
        finally:
            self._journal.record(outcome)

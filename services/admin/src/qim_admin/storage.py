"""What the commands need from outside, as Protocols: the groups (the writer owns them), the bindings, the journal."""

from __future__ import annotations

from typing import Protocol

from qim_admin.domain import Group, MemberPage, MembershipChange, MembershipVersion, OperatorCall
from qim_common.bindings import OperatorRole
from qim_common.identity import Peer, Principal
from qim_common.ids import ConversationId


class GroupDirectory(Protocol):
    """The groups of a principal's tenant. `timeout` is in seconds.

    Every method raises the QimError that the owner of the groups answered, BackendUnavailable where it does not answer:
    a change may have been carried out then, and is repeated with the same request id.
    """

    async def change_members(
        self, principal: Principal, change: MembershipChange, *, timeout: float
    ) -> MembershipVersion:
        """Carry out a change (the trait's `admin_change_members`)."""
        ...

    async def get_group(self, principal: Principal, group: ConversationId, *, timeout: float) -> Group:
        """The group as it is now; raises PermissionDenied where there is none."""
        ...

    async def list_members(
        self, principal: Principal, group: ConversationId, *, page_size: int, page_token: str, timeout: float
    ) -> MemberPage:
        """Present members in a stable order; raises PageTokenInvalid, and PermissionDenied where there is no group."""
        ...


class Authority(Protocol):
    """Who may act where: the bindings file (`qim_common.bindings.Bindings`)."""

    def require_tenant(self, peer: Peer, tenant: int) -> None:
        """Raises TenantNotAllowed unless `peer` may act in `tenant`."""
        ...

    def operator_roles(self, peer: Peer) -> frozenset[OperatorRole]:
        """The roles of an operator; empty for everybody else."""
        ...


class Journal(Protocol):
    """Where the calls of operators and back ends are written down."""

    def record(self, call: OperatorCall) -> None:
        """Write down a call after its outcome is known."""
        ...

"""What the commands need from outside, as Protocols: the groups (the writer owns them), the bindings, the journal."""

from __future__ import annotations

from typing import Protocol

from qim_admin.domain.calls import OperatorCall
from qim_admin.domain.changes import MembershipChange, MembershipVersion
from qim_admin.domain.groups import Group, GroupSettings, MemberPage
from qim_admin.domain.retention import RetentionPage
from qim_admin.domain.timeline import Explanation, TimelinePage
from qim_common.bindings import OperatorRole
from qim_common.identity import Peer, Principal
from qim_common.ids import ConversationId, UserId


class GroupDirectory(Protocol):
    """The groups of a principal's tenant. `timeout` is in seconds.

    Every method raises the QimError that the owner of the groups answered (PermissionDenied where there is no such
    group), BackendUnavailable where it does not answer: a change may have been carried out then, and is repeated with
    the same request id.
    """

    async def change_members(
        self, principal: Principal, change: MembershipChange, *, timeout: float
    ) -> MembershipVersion:
        """Carry out a change (the trait's `admin_change_members`)."""
        ...

    async def get_group(self, principal: Principal, group: ConversationId, *, timeout: float) -> Group:
        """The group as it is now."""
        ...

    async def list_members(
        self, principal: Principal, group: ConversationId, *, page_size: int, page_token: str, timeout: float
    ) -> MemberPage:
        """Present members in a stable order; raises PageTokenInvalid."""
        ...

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
        """Membership events and changes without a seq; with `user` what concerns them. Raises PageTokenInvalid."""
        ...

    async def explain(
        self, principal: Principal, group: ConversationId, user: UserId, seq: int, *, timeout: float
    ) -> Explanation:
        """Whether a person may read a seq and received it, and by which rule; raises InvalidArgument for no seq."""
        ...

    async def update_settings(
        self,
        principal: Principal,
        group: ConversationId,
        request_id: bytes,
        settings: GroupSettings,
        *,
        timeout: float,
    ) -> Group:
        """Replace all settings; raises InvalidArgument naming the one that is out of its range."""
        ...

    async def transfer_ownership(
        self, principal: Principal, group: ConversationId, request_id: bytes, owner: UserId, *, timeout: float
    ) -> Group:
        """Make a member the owner; raises NewOwnerNotMember."""
        ...

    async def clear_history(
        self, principal: Principal, group: ConversationId, request_id: bytes, up_to_seq: int, *, timeout: float
    ) -> Group:
        """Move the floor up for all; `up_to_seq` 0: everything."""
        ...

    async def run_retention(
        self, principal: Principal, *, dry_run: bool, page_token: str, timeout: float
    ) -> RetentionPage:
        """Retention by age over the tenant's groups, done or only told; raises PageTokenInvalid."""
        ...

    async def freeze(
        self, principal: Principal, group: ConversationId, request_id: bytes, *, frozen: bool, timeout: float
    ) -> Group:
        """Freeze or unfreeze."""
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

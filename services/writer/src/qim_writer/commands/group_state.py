"""Settings, ownership, freeze and floor: changes of a group that take no seq and no version.

Each is planned on the group's present policy and committed if that is still the present one; what another change
overtook is planned again. They queue with the membership changes of their group.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from qim_common.errors import GroupFrozen, InvalidArgument, MembershipChanged, PermissionDenied, QimError
from qim_common.idempotency import IdempotencyKey
from qim_common.identity import Actor, Principal
from qim_common.ids import parse_group, parse_id, parse_user
from qim_common.records import StateChange
from qim_writer.commands.callers import Caller, caller_of_actor, caller_of_principal
from qim_writer.commands.change_members import GroupQueues
from qim_writer.commands.history import SEQ_MAX
from qim_writer.commands.trimming import Trimmer
from qim_writer.domain.policy import NOBODY, GroupSettings, Limits, Policy, PolicyChange
from qim_writer.storage import Conversation, GroupSnapshot, GroupStateStore, MembershipStore

PLANS: Final = 4
"""The first plan and three re-plans, as for membership changes."""

_Plan = Callable[[Policy], PolicyChange]


class GroupState:
    """The changes without a seq of this process."""

    def __init__(
        self,
        membership: MembershipStore,
        states: GroupStateStore,
        trimmer: Trimmer,
        limits: Limits,
        queues: GroupQueues | None = None,
    ) -> None:
        """`queues`: those of the membership changes, which are compared with the policy too."""
        self._membership = membership
        self._states = states
        self._trimmer = trimmer
        self._limits = limits
        self._queues = GroupQueues() if queues is None else queues

    async def update_settings(
        self, principal: Principal, request_id: bytes, group_id: bytes, settings: GroupSettings
    ) -> tuple[Conversation, GroupSnapshot]:
        """UpdateGroupSettings: replaces all settings. Stays that are open or closed keep what they show.

        Raises InvalidArgument, PermissionDenied (no such group), MembershipChanged, IdempotencyKeyReused,
        RequestTooOld."""
        group = _group(principal, request_id, group_id)
        caller = caller_of_principal(principal)
        key = caller.key(group.id, request_id, b"update_settings", settings.content())

        async def change() -> GroupSnapshot | None:
            wanted = settings.validated(self._limits)
            policy = await self._policy(group)
            planned = PolicyChange(StateChange.SETTINGS, policy, replace(policy, settings=wanted))
            return await self._states.change_policy(group, planned, caller.maker, key)

        return group, await self._first_answer(group, key, change)

    async def freeze(
        self, principal: Principal, request_id: bytes, group_id: bytes, *, frozen: bool
    ) -> tuple[Conversation, GroupSnapshot]:
        """FreezeGroup: on or off. Raises as `update_settings`."""
        group = _group(principal, request_id, group_id)
        caller = caller_of_principal(principal)
        key = caller.key(group.id, request_id, b"freeze", bytes((frozen,)))

        def plan(policy: Policy) -> PolicyChange:
            return PolicyChange(StateChange.FROZEN, policy, replace(policy, frozen=frozen))

        return group, await self._change(group, caller, key, plan)

    async def transfer(
        self, by: Actor | Principal, request_id: bytes, group_id: bytes, new_owner: bytes
    ) -> tuple[Conversation, GroupSnapshot]:
        """TransferOwnership, by the owner or by an operator.

        Raises InvalidArgument, PermissionDenied (no such group, or the actor is not its owner), NewOwnerNotMember,
        GroupFrozen (end users only), MembershipChanged, IdempotencyKeyReused, RequestTooOld."""
        group = _group(by, request_id, group_id)
        owner = parse_user(new_owner, "new_owner_user_id")
        caller = _caller(by)
        key = caller.key(group.id, request_id, b"transfer", owner)

        def plan(policy: Policy) -> PolicyChange:
            _require_owner(by, policy)
            return PolicyChange(StateChange.OWNER, policy, policy.with_owner(owner), member=owner)

        return group, await self._change(group, caller, key, plan)

    async def clear_group(
        self, by: Actor | Principal, request_id: bytes, group_id: bytes, upto: int
    ) -> tuple[Conversation, GroupSnapshot]:
        """ClearGroupHistory, by the owner or by an operator: the floor first, the records afterwards.

        `upto` is clamped to the head; 0 stands for it. Raises as `transfer`."""
        group = _group(by, request_id, group_id)
        _check_seq(upto)
        caller = _caller(by)
        key = caller.key(group.id, request_id, b"clear_group", struct.pack(">Q", upto))

        async def raise_floor() -> GroupSnapshot | None:
            policy = await self._policy(group)
            _require_owner(by, policy)
            return await self._states.raise_floor(group, upto, policy, caller.maker, key)

        snapshot = await self._first_answer(group, key, raise_floor)
        self._trimmer.floor_moved(group)
        return group, snapshot

    async def _change(self, group: Conversation, caller: Caller, key: IdempotencyKey, plan: _Plan) -> GroupSnapshot:
        async def change() -> GroupSnapshot | None:
            planned = plan(await self._policy(group))
            return await self._states.change_policy(group, planned, caller.maker, key)

        return await self._first_answer(group, key, change)

    async def _first_answer(
        self, group: Conversation, key: IdempotencyKey, attempt: Callable[[], Awaitable[GroupSnapshot | None]]
    ) -> GroupSnapshot:
        """The stored answer of a known id, else what an attempt gives; None of it stands for "overtaken, try again".

        The same request may be carried out elsewhere between the look-up and the attempt's own checks, so a refusal
        counts only if the id is still unknown."""
        async with self._queues.turn(group):
            stored = await self._states.stored_answer(group, key)
            if stored is not None:
                return self._states.snapshot(stored)
            try:
                for _ in range(PLANS):
                    snapshot = await attempt()
                    if snapshot is not None:
                        return snapshot
            except QimError:
                stored = await self._states.stored_answer(group, key)
                if stored is None:
                    raise
                return self._states.snapshot(stored)
        raise MembershipChanged

    async def _policy(self, group: Conversation) -> Policy:
        facts = await self._membership.facts(group, NOBODY)
        if facts is None:
            raise PermissionDenied
        return facts.policy


def _require_owner(by: Actor | Principal, policy: Policy) -> None:
    """End users need to own the group, and it must not be frozen; operators' calls go on."""
    if isinstance(by, Principal):
        return
    if by.user != policy.owner:
        raise PermissionDenied
    if policy.frozen:
        raise GroupFrozen


def _caller(by: Actor | Principal) -> Caller:
    return caller_of_principal(by) if isinstance(by, Principal) else caller_of_actor(by)


def _group(by: Actor | Principal, request_id: bytes, group_id: bytes) -> Conversation:
    parse_id(request_id, "request_id")
    return Conversation(by.tenant, parse_group(group_id))


def _check_seq(upto: int) -> None:
    if upto > SEQ_MAX:
        raise InvalidArgument("up_to_seq", "is no seq")

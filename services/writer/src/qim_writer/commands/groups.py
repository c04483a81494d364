"""A group as operators and back ends see it."""

from __future__ import annotations

from qim_common.errors import PermissionDenied
from qim_common.identity import Principal
from qim_common.ids import parse_group
from qim_writer.domain.policy import NOBODY
from qim_writer.storage import Conversation, Facts, MembershipStore


async def get_group(store: MembershipStore, principal: Principal, group_id: bytes) -> tuple[Conversation, Facts]:
    """The group's facts; `person` is None. Raises InvalidArgument, PermissionDenied (no such group)."""
    group = Conversation(principal.tenant, parse_group(group_id))
    facts = await store.facts(group, NOBODY)
    if facts is None:
        raise PermissionDenied
    return group, facts

"""One group for the tests of the membership store, driven by plans."""

from __future__ import annotations

from tests.support.chat import ANA, BEN, TENANT

from qim_common.enums import LeaverHistory, NewcomerPolicy, RejoinHistory
from qim_common.idempotency import IdempotencyKey
from qim_common.ids import UserId, group_conversation_id, uuid7
from qim_writer.domain.changes import ChangeRequest, plan_change
from qim_writer.domain.policy import GroupSettings, Limits, Policy
from qim_writer.storage import ChangeAnswer, Conversation, MembershipStore

GROUP = Conversation(TENANT, group_conversation_id(bytes(range(16))))
POLICY = Policy(
    GroupSettings(
        member_limit=5000,
        newcomer=NewcomerPolicy.LAST_N,
        last_n=3,
        rejoin=RejoinHistory.ALL_STAYS,
        leaver=LeaverHistory.NONE,
        broadcast_max_members=4,
    ),
    ANA,
)
TAIL = b"\2" + bytes(48) + b"\0body"
LIMITS = Limits()


def key(digest: bytes = b"8 bytes.", field: bytes = b"") -> IdempotencyKey:
    """A request's key, by default a new one."""
    return IdempotencyKey(field or uuid7(), digest, 0)


async def create(store: MembershipStore, *people: UserId, big: bool = False) -> ChangeAnswer:
    return await store.create(GROUP, people or (ANA, BEN), POLICY, key(), big=big)


async def carry_out(
    store: MembershipStore, request: ChangeRequest, request_key: IdempotencyKey | None = None
) -> ChangeAnswer | None:
    """Plans on the present state and applies."""
    request_key = request_key or key()
    facts = await store.plan_facts(GROUP, request.people, request_key)
    assert facts.state is not None
    return await store.apply(GROUP, plan_change(facts.state, request, LIMITS), TAIL, request_key)

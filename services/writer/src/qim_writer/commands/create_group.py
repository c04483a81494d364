"""Creating a group (contract: create_group)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from qim_common.errors import MemberLimitExceeded, QimError, TooManyItems
from qim_common.identity import Actor
from qim_common.ids import UserId, derived_group_id, parse_group, parse_id, parse_user
from qim_writer.commands.callers import caller_of_actor
from qim_writer.domain.changes import distinct, fans_out_lazily
from qim_writer.domain.hints import CommitHints, HintRun
from qim_writer.domain.policy import GroupSettings, Limits, Policy
from qim_writer.storage import ChangeAnswer, Conversation, MembershipStore

PEOPLE_MAX: Final = 1_000
"""People of one call, the owner included (contracts.md, "Services")."""

_OPERATION: Final = b"create_group"


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """A request as it came. An empty `group_id` is derived from tenant, actor and request id."""

    request_id: bytes
    group_id: bytes
    people: Sequence[bytes]
    settings: GroupSettings


async def create_group(
    store: MembershipStore, limits: Limits, actor: Actor, request: CreateGroup, hints: CommitHints | None = None
) -> tuple[Conversation, ChangeAnswer]:
    """Creates the group with the actor as its owner, and everybody or nobody of the invited.

    Raises InvalidArgument, TooManyItems, MemberLimitExceeded, GroupAlreadyExists, IdempotencyKeyReused, RequestTooOld.
    """
    parse_id(request.request_id, "request_id")
    if request.group_id:
        group_id = parse_group(request.group_id)
    else:
        group_id = derived_group_id(actor.tenant, actor.user, request.request_id)
    if len(request.people) > PEOPLE_MAX:
        raise TooManyItems(metadata={"field": "member_user_ids", "most": str(PEOPLE_MAX)})
    invited = [parse_user(user, f"member_user_ids[{index}]") for index, user in enumerate(request.people)]
    people: tuple[UserId, ...] = distinct((actor.user, *invited))
    if len(people) > PEOPLE_MAX:
        raise TooManyItems(metadata={"field": "member_user_ids", "most": str(PEOPLE_MAX)})
    group = Conversation(actor.tenant, group_id)
    key = caller_of_actor(actor).key(
        group_id,
        request.request_id,
        _OPERATION,
        request.settings.content(),
        struct.pack(">H", len(people)),
        *sorted(people),
    )
    try:
        policy = _policy(request.settings, limits, actor.user, len(people))
    except QimError:
        # The deployment's limits may have been others when the same request was carried out.
        known = await store.plan_facts(group, (actor.user,), key)
        if known.answer is None:
            raise
        return group, known.answer
    big = fans_out_lazily(len(people), limits, before=False)
    answer = await store.create(group, people, policy, key, big=big)
    if hints is not None:
        # A repeat tells what was true at the creation, once more.
        created = HintRun(group.tenant, group.id, answer.version, answer.time_ms, broadcast=True)
        hints.changed(replace(created, big=big, became_big=big))
    return group, answer


def _policy(settings: GroupSettings, limits: Limits, owner: UserId, people: int) -> Policy:
    """The new group's policy. Raises InvalidArgument, MemberLimitExceeded."""
    valid = settings.validated(limits)
    if people > valid.member_limit:
        raise MemberLimitExceeded
    return Policy(valid, owner)

"""Answers to complaints: may a person read a seq, did they receive it, by which rule; and a group's timeline."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from qim_common.errors import InvalidArgument, PermissionDenied
from qim_common.identity import Principal
from qim_common.ids import parse_group, parse_user
from qim_common.tokens import TokenSigner
from qim_writer.commands.callers import caller_of_principal
from qim_writer.commands.history import SEQ_MAX
from qim_writer.domain.explain import Explanation, explain
from qim_writer.domain.members import Change
from qim_writer.domain.policy import NOBODY
from qim_writer.domain.stays import Stay
from qim_writer.domain.visible import Visible, visible_range
from qim_writer.storage import Conversation, Facts, GroupStateStore, MembershipStore, MessageStore, StateRecord

PAGE_MAX: Final = 1_000
PEOPLE_MAX: Final = 100_000
"""People named by one page of a timeline: below 2 MiB."""

TIMELINE: Final = "GroupTimeline"
_POSITION: Final = struct.Struct(">QQ")


@dataclass(frozen=True, slots=True)
class Timeline:
    """A page of a group's line: membership events and changes without a seq, each in their order.

    With a person: that person's stays, what they may read, and only the events that concern them."""

    group: Conversation
    facts: Facts
    changes: tuple[Change, ...]
    states: tuple[StateRecord, ...]
    stays: tuple[Stay, ...]
    visible: Visible | None
    next_token: str


class Explain:
    """The operators' questions about visibility."""

    def __init__(
        self, membership: MembershipStore, messages: MessageStore, states: GroupStateStore, tokens: TokenSigner
    ) -> None:
        self._membership = membership
        self._messages = messages
        self._states = states
        self._tokens = tokens

    async def seq(self, principal: Principal, group_id: bytes, user_id: bytes, seq: int) -> tuple[Explanation, Facts]:
        """ExplainVisibility. Raises InvalidArgument, PermissionDenied (no such group)."""
        group = Conversation(principal.tenant, parse_group(group_id))
        user = parse_user(user_id, "user_id")
        if not 1 <= seq <= SEQ_MAX:
            raise InvalidArgument("seq", "must be a seq, from 1")
        facts = await self._membership.facts(group, user)
        if facts is None:
            raise PermissionDenied
        event = await self._messages.event(group, seq)
        return explain(facts.person, facts.line, seq, event), facts

    async def timeline(self, principal: Principal, group_id: bytes, user_id: bytes, size: int, token: str) -> Timeline:
        """GroupTimeline. Raises InvalidArgument, PageTokenInvalid, PermissionDenied (no such group)."""
        group = Conversation(principal.tenant, parse_group(group_id))
        user = parse_user(user_id, "user_id") if user_id else NOBODY
        if not 1 <= size <= PAGE_MAX:
            raise InvalidArgument("page_size", f"must be from 1 to {PAGE_MAX}")
        caller = caller_of_principal(principal).name + user
        seq, revision = 0, 0
        if token:
            seq, revision = _POSITION.unpack(self._tokens.open(TIMELINE, group.tenant, caller, group.id, token))
        facts = await self._membership.facts(group, user)
        if facts is None:
            raise PermissionDenied
        person = facts.person
        # What came after the facts is not told: with ack level archived it may wait for the archive.
        changes = [one for one in await self._messages.events(group, seq, size) if one.version <= facts.version]
        states = [] if user_id else await self._states.state_records(group, revision, size)
        states = [one for one in states if one.revision <= facts.revision]
        next_token = ""
        complete = len(changes)
        changes = _fitting(changes)
        if complete == size or len(changes) < complete or len(states) == size:
            seq = changes[-1].seq if changes else seq
            revision = states[-1].revision if states else revision
            next_token = self._tokens.issue(TIMELINE, group.tenant, caller, group.id, _POSITION.pack(seq, revision))
        if user_id:
            versions = frozenset[int]() if person is None else person.versions
            changes = [change for change in changes if change.version in versions]
        stays = () if person is None else person.stays
        visible = None if person is None else visible_range(person, facts.line)
        return Timeline(group, facts, tuple(changes), tuple(states), stays, visible, next_token)


def _fitting(changes: list[Change]) -> list[Change]:
    """As many of the changes as an answer holds, from the first on, and at least one."""
    people = 0
    for at, change in enumerate(changes):
        people += len(change.users)
        if at and people > PEOPLE_MAX:
            return changes[:at]
    return changes

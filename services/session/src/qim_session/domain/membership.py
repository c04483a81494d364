"""The members of a conversation at a version, moved on by its membership events (storage.md, "Scripts"). Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId, parse_control_body


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """What one membership event did.

    Attributes:
        version: the version that it made, from 2.
        seq: its own number on the conversation's line.
        people: whose stays began (JOIN) or ended with it, at most 1,000.
    """

    version: int
    seq: int
    op: MembershipOp
    people: tuple[UserId, ...]


def read_control_body(version: int, seq: int, body: bytes) -> MembershipChange:
    """The change that a control message records (contracts.md, "Ids"). Raises ValueError when it is malformed."""
    op, _, people = parse_control_body(body)
    return MembershipChange(version, seq, op, people)


@dataclass(slots=True)
class Members:
    """Who is in a conversation at `version`."""

    version: int
    people: set[UserId]

    def apply(self, change: MembershipChange) -> None:
        """Move on by one version. Raises ValueError when `change` is not the next one."""
        if change.version != self.version + 1:
            raise ValueError(f"change {change.version} does not follow version {self.version}")
        if change.op is MembershipOp.JOIN:
            self.people.update(change.people)
        else:
            self.people.difference_update(change.people)
        self.version = change.version


@dataclass(slots=True)
class MembersCache:
    """The members of the conversations that were used last, bounded by the people in all of them together.

    The newest entry stays even if it is larger than the bound alone: a large group would otherwise be loaded for every
    message.
    """

    people_max: int
    _entries: OrderedDict[tuple[TenantId, ConversationId], Members] = field(default_factory=OrderedDict)
    _weights: dict[tuple[TenantId, ConversationId], int] = field(default_factory=dict)
    _people: int = 0

    def get(self, tenant: TenantId, conversation: ConversationId) -> Members | None:
        """The members as they were put in last."""
        members = self._entries.get((tenant, conversation))
        if members is not None:
            self._entries.move_to_end((tenant, conversation))
        return members

    def put(self, tenant: TenantId, conversation: ConversationId, members: Members) -> None:
        """Keep these; also after members have been changed in place, so that they are weighed again."""
        key = (tenant, conversation)
        self._people += len(members.people) - self._weights.get(key, 0)
        self._weights[key] = len(members.people)
        self._entries[key] = members
        self._entries.move_to_end(key)
        while self._people > self.people_max and len(self._entries) > 1:
            dropped, _ = self._entries.popitem(last=False)
            self._people -= self._weights.pop(dropped)

    def clear(self) -> None:
        """Forget everything: what a version was may be another thing from now on."""
        self._entries.clear()
        self._weights.clear()
        self._people = 0

    @property
    def people(self) -> int:
        """How many people all entries hold together."""
        return self._people

    def __len__(self) -> int:
        return len(self._entries)

"""Conversations as their owner answers for them: states, what was delivered, who is in them; as Protocols.

Everything here can raise `BackendUnavailable`, as in `qim_session.storage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, NewType, Protocol

from qim_common.enums import MemberState
from qim_common.ids import ConversationId, TenantId, UserId
from qim_session.domain.cursors import Raised
from qim_session.domain.membership import MembershipChange

NONE_HIDDEN: Final[Mapping[ConversationId, int]] = MappingProxyType({})
"""For `Conversations.states`: the person has hidden none of the conversations."""

STATES_PER_CALL = 500
"""The most conversations of one `Conversations.states`."""

WireMessage = NewType("WireMessage", bytes)
"""A message in its wire form (`qim.common.v1.Message`): the session service passes it on as it is."""

WireEntry = NewType("WireEntry", bytes)
"""An entry of a list in its wire form (`qim.writer.v1.ListEntry`), which the session service completes."""


class ConversationState(NamedTuple):
    """One conversation as one person sees it now; all fields after `entry` are empty when `state` is UNKNOWN.

    `entry`: what a list shows of it. `newest_delivered_seq`: the newest delivered to the person, the leaver's own event
    included; `last_activity_ms`: its commit time. `upper_seq`: how far a read cursor may go. `readable`: the person may
    read some of it, or might if there were anything; false after a revoked leave. `big`: it is above
    `projection_fanout_max_members`. `hidden`: the person hid it, and no ordinary message came since. `joined_at`: the
    newest stay's. `raised`: the generations that began with a loss, usually none.
    """

    conversation: ConversationId
    state: MemberState
    entry: WireEntry = WireEntry(b"")
    unread_count: int = 0
    joined_at: int = 0
    earliest_available_seq: int = 0
    newest_delivered_seq: int = 0
    last_activity_ms: int = 0
    generation: int = 0
    upper_seq: int = 0
    readable: bool = False
    big: bool = False
    hidden: bool = False
    raised: tuple[Raised, ...] = ()


@dataclass(frozen=True, slots=True)
class Withheld:
    """Delivered seqs, both ends included, whose bodies the person may not see now or that are gone."""

    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class DeliveredPage:
    """What was delivered to a person in one conversation after a seq, ascending; `next_after_seq` is exclusive.

    `waiting`: how many ordinary messages were delivered after that seq, also withheld ones; membership events do not
    count.
    `newest_delivered_seq`: 0 for none. `first_time_ms`: the first message's commit time, 0 where none is among them.
    """

    entries: tuple[WireMessage | Withheld, ...]
    next_after_seq: int
    more: bool
    generation: int
    waiting: int = 0
    newest_delivered_seq: int = 0
    first_time_ms: int = 0


class MembershipSource(Protocol):
    """Who is in a conversation at a version, asked of its owner."""

    async def members(self, tenant: TenantId, conversation: ConversationId, version: int) -> set[UserId]:
        """The members at `version`. Raises MembershipVersionExpired when the log that this needs is gone."""
        ...

    async def change(self, tenant: TenantId, group: ConversationId, version: int) -> MembershipChange:
        """The change that made `version` (from 2). Raises MembershipVersionExpired."""
        ...


class Conversations(Protocol):
    """What one person sees of conversations, asked of their owner."""

    async def states(
        self,
        tenant: TenantId,
        user: UserId,
        read: Mapping[ConversationId, int],
        *,
        with_preview: bool,
        hidden: Mapping[ConversationId, int] = NONE_HIDDEN,
    ) -> list[ConversationState]:
        """The states, in the order of `read`: 1 to 500 conversations, each with the person's read cursor.

        `hidden`: those of them that the person has hidden, with the newest delivered seq at that moment.
        """
        ...

    async def delivered(
        self, tenant: TenantId, user: UserId, conversation: ConversationId, *, after_seq: int, limit: int
    ) -> DeliveredPage:
        """Up to `limit` (1 to 1,000) entries after `after_seq`; nothing for somebody who never was a member."""
        ...

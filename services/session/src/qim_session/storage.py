"""What the session service needs of its stores and of the writer, as Protocols (design.md, "Layout").

Everything here can raise `BackendUnavailable`: the store or service does not answer now, and what was written may
have been applied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NewType, Protocol

from qim_common.ids import ConversationId, ConversationKind, DeviceId, TenantId, UserId
from qim_session.domain.cursors import Cursor
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.folding import DispatchEntry
from qim_session.domain.list_pages import ListPosition
from qim_session.domain.membership import MembershipChange
from qim_session.domain.position import Checkpoint, LogBounds, Position

ENTRIES_PER_CALL = 250
"""The most entries of one `ProjectionStore.project` (datastructures.md, Q5): 2 ms of the instance's time."""

STATES_PER_CALL = 500
"""The most conversations of one `Conversations.states`."""

WireMessage = NewType("WireMessage", bytes)
"""A message in its wire form (`qim.common.v1.Message`): the session service passes it on as it is."""

WireStay = NewType("WireStay", bytes)
"""A stay in its wire form (`qim.common.v1.Stay`)."""


class MemberState(IntEnum):
    """How a person stands to a conversation, as on the wire."""

    UNKNOWN = 0
    """The person never was in it."""

    MEMBER = 1
    LEFT = 2
    REMOVED = 3


@dataclass(frozen=True, slots=True)
class ConversationState:
    """One conversation as one person sees it now; all fields after `state` are empty when that is UNKNOWN.

    `head_seq`: the newest visible seq, 0 for none. `newest_delivered_seq`: the newest delivered to the person, the
    leaver's own event included; `last_activity_ms`: its commit time. `upper_seq`: how far a read cursor may go.
    `readable`: the person may read some of it, or might if there were anything; false after a revoked leave.
    """

    conversation: ConversationId
    state: MemberState
    kind: ConversationKind | None = None
    head_seq: int = 0
    unread_count: int = 0
    stay: WireStay = WireStay(b"")
    earliest_available_seq: int = 0
    preview: WireMessage | None = None
    newest_delivered_seq: int = 0
    last_activity_ms: int = 0
    revision: int = 0
    generation: int = 0
    upper_seq: int = 0
    readable: bool = False


@dataclass(frozen=True, slots=True)
class Withheld:
    """Delivered seqs, both ends included, whose bodies the person may not see now or that are gone."""

    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class DeliveredPage:
    """What was delivered to a person in one conversation after a seq, ascending; `next_after_seq` is exclusive."""

    entries: tuple[WireMessage | Withheld, ...]
    next_after_seq: int
    more: bool
    generation: int


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
        self, tenant: TenantId, user: UserId, read: Mapping[ConversationId, int], *, with_preview: bool
    ) -> list[ConversationState]:
        """The states, in the order of `read`: 1 to 500 conversations, each with the person's read cursor."""
        ...

    async def delivered(
        self, tenant: TenantId, user: UserId, conversation: ConversationId, *, after_seq: int, limit: int
    ) -> DeliveredPage:
        """Up to `limit` (1 to 1,000) entries after `after_seq`; nothing for somebody who never was a member."""
        ...


@dataclass(frozen=True, slots=True)
class DispatchRead:
    """The entries found by partition, and the instance's time (ms) before the read: what was not there is not older."""

    entries: dict[int, list[DispatchEntry]]
    time_ms: int


class DispatchLog(Protocol):
    """The dispatch logs of one commit instance, one for each of its partitions (commit buckets)."""

    @property
    def partitions(self) -> Sequence[int]:
        """The commit buckets of the instance, ascending."""
        ...

    async def bounds(self, partitions: Sequence[int]) -> list[LogBounds]:
        """What the logs hold now, in the order asked for."""
        ...

    async def read(self, after: Mapping[int, Position], *, count: int, block_ms: int) -> DispatchRead:
        """The entries after a position, up to `count` a partition; waits up to `block_ms` while there are none."""
        ...


@dataclass(frozen=True, slots=True)
class CheckpointStep:
    """A compare-and-set of a partition's checkpoint; `to` is None to compare only."""

    partition: int
    expected: Checkpoint | None
    to: Checkpoint | None


@dataclass(frozen=True, slots=True)
class Projected:
    """The call was applied; `new` conversations were registered."""

    new: int


@dataclass(frozen=True, slots=True)
class CheckpointMoved:
    """Nothing was applied: another consumer has moved the checkpoint."""


class ProjectionStore(Protocol):
    """One session instance: its people's lists, its checkpoints, its conversations to be registered."""

    async def checkpoints(self, partitions: Sequence[int]) -> list[Checkpoint | None]:
        """The stored checkpoints, in the order asked for. Raises ValueError when one cannot be read."""
        ...

    async def project(
        self, entries: Sequence[ProjectionEntry], step: CheckpointStep | None
    ) -> Projected | CheckpointMoved:
        """Apply up to 250 entries and the step at once; `step` is None for a lane without checkpoints."""
        ...

    async def raise_epoch(self) -> int:
        """Begin a new projection epoch: each person is rebuilt on their next call. Returns the new epoch."""
        ...

    async def pending(self, limit: int) -> tuple[list[ProjectionEntry], int]:
        """The oldest conversations that are not registered yet, at most `limit`, and how many there are in all."""
        ...

    async def pop_pending(self, entries: Sequence[ProjectionEntry]) -> int:
        """Drop the heads that equal `entries`, in order; returns how many."""
        ...


class ConversationSets(Protocol):
    """The authority for which conversations a person has (`user_conversation_state`)."""

    async def register(self, entries: Sequence[ProjectionEntry]) -> None:
        """Write kind and first_seen_at of each; one that is there already stays as it is."""
        ...

    async def of(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        """All conversations that are registered for a person, in no order."""
        ...


class ConversationLists(Protocol):
    """The projected lists."""

    async def page(
        self,
        tenant: TenantId,
        user: UserId,
        *,
        below: ListPosition | None,
        above: ListPosition | None,
        limit: int,
        upward: bool = False,
    ) -> list[ListPosition]:
        """Up to `limit` places strictly between the two (None: no bound), as of one moment.

        Newest first, or `upward` oldest first.
        """
        ...

    async def oldest_first(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        """All conversations of a person, the longest inactive first."""
        ...


class Cursors(Protocol):
    """How far people have read and their devices have received."""

    async def read_seqs(
        self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, int]:
        """The read cursors of all `conversations`, in their order; 0 where nothing was read."""
        ...

    async def advance_read(self, tenant: TenantId, user: UserId, conversation: ConversationId, cursor: Cursor) -> bool:
        """Move a read cursor, forward only; whether it moved."""
        ...

    async def device(
        self, tenant: TenantId, user: UserId, device: DeviceId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, Cursor]:
        """The device's cursors; conversations without one are left out."""
        ...

    async def advance_device(
        self, tenant: TenantId, user: UserId, device: DeviceId, cursors: Mapping[ConversationId, Cursor]
    ) -> int:
        """Move up to 1,000 cursors, forward only; returns how many moved."""
        ...

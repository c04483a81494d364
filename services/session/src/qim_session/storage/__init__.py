"""What the session service needs of its stores and of the writer, as Protocols (design.md, "Layout").

Everything here can raise `BackendUnavailable`: the store or service does not answer now, and what was written may
have been applied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, NewType, Protocol

from qim_common.identity import Actor
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId
from qim_session.domain.cursors import Cursor
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.flags import Flags
from qim_session.domain.folding import DispatchEntry
from qim_session.domain.membership import MembershipChange
from qim_session.domain.position import Checkpoint, LogBounds, Position

ENTRIES_PER_CALL = 250
"""The most entries of one `ProjectionStore.project` (datastructures.md, Q5): 2 ms of the instance's time."""

NONE_HIDDEN: Final[Mapping[ConversationId, int]] = MappingProxyType({})
"""For `Conversations.states`: the person has hidden none of the conversations."""

STATES_PER_CALL = 500
"""The most conversations of one `Conversations.states`."""

WireMessage = NewType("WireMessage", bytes)
"""A message in its wire form (`qim.common.v1.Message`): the session service passes it on as it is."""

WireEntry = NewType("WireEntry", bytes)
"""An entry of a list in its wire form (`qim.writer.v1.ListEntry`), which the session service completes."""


class MemberState(IntEnum):
    """How a person stands to a conversation, as on the wire."""

    UNKNOWN = 0
    """The person never was in it."""

    MEMBER = 1
    LEFT = 2
    REMOVED = 3


class ConversationState(NamedTuple):
    """One conversation as one person sees it now; all fields after `entry` are empty when `state` is UNKNOWN.

    `entry`: what a list shows of it. `newest_delivered_seq`: the newest delivered to the person, the leaver's own event
    included; `last_activity_ms`: its commit time. `upper_seq`: how far a read cursor may go. `readable`: the person may
    read some of it, or might if there were anything; false after a revoked leave. `big`: it is above
    `projection_fanout_max_members`. `hidden`: the person hid it, and no ordinary message came since. `joined_at`: the
    newest stay's.
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


@dataclass(frozen=True, slots=True)
class Withheld:
    """Delivered seqs, both ends included, whose bodies the person may not see now or that are gone."""

    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class DeliveredPage:
    """What was delivered to a person in one conversation after a seq, ascending; `next_after_seq` is exclusive.

    `waiting`: how many seqs of the person's stays lie after that seq, at least as many as were delivered.
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
    """A compare-and-set of a partition's checkpoint; `to` is None to compare only.

    `progress_ms` is stored with it: the commit time below which everything of the partition is in the lists.
    """

    partition: int
    expected: Checkpoint | None
    to: Checkpoint | None
    progress_ms: int = 0


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far a partition is that had nothing new, valid as long as its checkpoint is `expected`."""

    partition: int
    expected: Checkpoint | None
    progress_ms: int


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

    async def settle(self, steps: Sequence[PartitionProgress]) -> set[int]:
        """Store progress where the checkpoint is as expected; returns the partitions where it is not."""
        ...

    async def progress(self) -> dict[int, int]:
        """Partition to progress (ms), of all that have one."""
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


class Marks(NamedTuple):
    """What a person has set on one conversation, by reading it and by its flags."""

    read_seq: int
    flags: Flags


class Cursors(Protocol):
    """How far people have read and their devices have received."""

    async def marks(
        self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, Marks]:
        """Read cursors and flags of all `conversations`, in their order."""
        ...

    async def read_seqs(
        self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, int]:
        """The read cursors of all `conversations`, in their order; 0 where nothing was read."""
        ...

    async def advance_read(self, actor: Actor, conversation: ConversationId, cursor: Cursor) -> bool:
        """Move a read cursor, forward only, and tell the person's other devices where it moved; whether it did."""
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

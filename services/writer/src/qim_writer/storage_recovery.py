"""What a recovery asks of the instance that it rebuilds, as Protocols (storage.md, "Backends": fence).

Every method raises `BackendUnavailable` when the instance does not answer: the recovery ends, and is run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from qim_common.positions import Position
from qim_writer.domain.refold import Refold, RowEffects
from qim_writer.domain.remade_messages import MessageBatch
from qim_writer.storage import Conversation


@dataclass(frozen=True, slots=True)
class RebuiltLine:
    """What a conversation's state says beside its rows.

    Attributes:
        head: the newest seq.
        trimmed: the records up to here are gone for good.
        newest: the newest seq that reached everybody; 0 for none.
        newest_ms: its commit time where its record is gone, else 0.
        sample_ms: the time of the newest sample of `msgts`.
        gone_buckets: so many seq buckets, the first ones, are deleted from the archive.
    """

    head: int
    trimmed: int
    newest: int
    newest_ms: int
    sample_ms: int
    gone_buckets: int


class RebuildTarget(Protocol):
    """Where a conversation is rebuilt: keys that were not there before."""

    async def add_rows(self, conversation: Conversation, effects: Sequence[RowEffects], entries_from_ms: int) -> None:
        """What rows add to the conversation's logs, and their idempotency entries from that time on."""
        ...

    async def add_messages(self, conversation: Conversation, batch: MessageBatch) -> None:
        """What messages add."""
        ...

    async def add_state(self, conversation: Conversation, folded: Refold, line: RebuiltLine) -> None:
        """The state itself, at last: everybody's stays, members, counters, and the membership log's entries."""
        ...

    async def forget(self, conversation: Conversation) -> None:
        """Remove what was added of a conversation so far, whose state was not; idempotency entries stay."""
        ...


@dataclass(frozen=True, slots=True)
class InstanceSurvey:
    """An instance before its recovery.

    Attributes:
        known: whether it has a fingerprint.
        differences: what its fingerprint says other than the configuration.
        fenced: why nothing may use it; empty: it is not fenced.
        recovery: the log identity that a recovery under way gives it; empty: there is none.
        rebuilding: whether that one has begun to remove what was there.
        log_id, replaces: the present log identity and former ones, empty without a fingerprint.
        waiting: messages and state entries of its logs that are not archived, as far as it has counted them.
        users: connections of processes that write to it.
        now_ms: its clock.
    """

    known: bool
    differences: tuple[str, ...]
    fenced: str
    recovery: str
    rebuilding: bool
    log_id: str
    replaces: tuple[str, ...]
    waiting: int
    users: int
    now_ms: int


class RecoverableInstance(RebuildTarget, Protocol):
    """One commit instance that is recovered."""

    async def lock(self, token: str) -> bool:
        """Take or keep the right to recover it, for half a minute; False: another one has it."""
        ...

    async def unlock(self, token: str) -> None:
        """Give it up."""
        ...

    async def survey(self) -> InstanceSurvey:
        """What is there. Nothing is changed by it: also the fence's judgement is noted nowhere."""
        ...

    async def begin(self, recovery: str, why: str) -> None:
        """Fence it for a recovery, so that nothing uses it before the end."""
        ...

    async def abandon(self) -> None:
        """Undo `begin`, where nothing was removed yet."""
        ...

    async def disconnect_users(self) -> None:
        """End the connections of processes that write to it; they come back and find it fenced."""
        ...

    async def wipe(self) -> int:
        """Remove every key of the instance's commit buckets, and no other; how many they were."""
        ...

    async def raise_generations(self, recovery: str) -> int:
        """Raise the generation of every conversation where it stands, once for each recovery; how many there are."""
        ...

    async def add_bucket(self, bucket: int, base: Position, entries_low_ms: int) -> None:
        """Give a bucket its dispatch log, which goes on after `base` and holds nothing, and its idempotency stamps: ids
        from before `entries_low_ms` that are not there are too old."""
        ...

    async def finish(self, log_id: str, replaces: Sequence[str]) -> None:
        """Give the instance its fingerprint, and lift the fence. Raises RecoveryRefused where the right to recover it,
        which `lock` took last, is another's now: nothing is changed then."""
        ...

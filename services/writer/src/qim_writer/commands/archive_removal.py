"""Deleting what the archive has at or below a floor: whole seq buckets, after the records in Redis.

Nothing goes that a recovery still needs (docs/recovery.md). So a removal waits until the archive has whatever moved the
floor; the head is noted first, because a recovery reads on from it and would take a deleted bucket for the end of the
line; and records stay as long as requests have answers, which are made from them again.

What is deleted is noted behind the deletion, so a bucket may be deleted twice and is never forgotten. The rest of the
bucket in which the floor lies stays until the floor has passed it; nobody reads it (design.md invariant 6).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from qim_writer.domain.answers_window import WINDOW_MS
from qim_writer.domain.seq_buckets import last_seq, seq_bucket, whole_buckets
from qim_writer.storage import Conversation
from qim_writer.storage_archive import ArchiveHead, ArchiveRemovals, MessageArchive, RemovalState

BUCKETS_AT_ONCE: Final = 100
"""So many are deleted between two notes: what is done again where a removal breaks off."""


class ArchiveRemoval:
    """The archive's part in the removal of what lies below a floor. `clock`: seconds since the epoch."""

    def __init__(
        self, archive: MessageArchive, removals: ArchiveRemovals, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._archive = archive
        self._removals = removals
        self._clock = clock

    async def remove(self, conversation: Conversation) -> bool:
        """Delete all whole buckets at or below the floor that nothing needs any more; whether the rest of the removal
        waits for the archiver, so that it goes on soon.

        Buckets that stay because their records are young, or because the newest message that reached everybody is in
        one, are found again later (`GroupStateStore.untrimmed_groups`). Raises BackendUnavailable; what was done so far
        is noted."""
        while True:
            state = await self._removals.removed(conversation)
            due = _due(state)
            if state.gone >= due:
                return state.trimmed < state.floor
            if not state.archived:
                return True
            upto = await first_buckets(state.gone, due, lambda bucket: self._is_old(conversation, bucket))
            if upto == state.gone:
                return state.trimmed < state.floor
            await self._archive.advance_heads([(conversation, ArchiveHead(state.generation, state.archived_seq))])
            for start in range(state.gone, upto, BUCKETS_AT_ONCE):
                end = min(upto, start + BUCKETS_AT_ONCE)
                await self._archive.remove_buckets(conversation, range(start, end))
                await self._removals.removed(conversation, end)

    async def _is_old(self, conversation: Conversation, bucket: int) -> bool:
        """Whether no request that is in it has an answer any more. Everything up to the floor is in the archive: what
        is not there was deleted by a removal that broke off, or that is going on beside this one."""
        newest = await self._archive.records(conversation, [last_seq(bucket)])
        return not newest or newest[0].time_ms < int(self._clock() * 1000) - WINDOW_MS


def _due(state: RemovalState) -> int:
    """How many buckets may go. The one with the newest message that reached everybody stays, wherever the floor is:
    its record tells when that was."""
    due = whole_buckets(state.floor)
    return min(due, seq_bucket(state.newest)) if state.newest else due


async def first_buckets(low: int, high: int, passed: Callable[[int], Awaitable[bool]]) -> int:
    """The number from `low` to `high` of buckets that have passed, where the first `low` have, and none has behind one
    that has not."""
    middle = high - 1  # Most often all have passed.
    while low < high:
        if await passed(middle):
            low = middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    return low

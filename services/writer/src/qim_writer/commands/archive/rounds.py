"""From the dispatch logs of one commit instance into the archive, in rounds.

A round reads what came after `arch`, announces how far it will go, puts the conversations that were created in the
index, writes the rows of the group log, then the messages, each conversation's in order, and then notes on the instance
how far the archive is. Everything may be repeated: a round
that failed, whose outcome is unknown, or that died with its process is read again from `arch` and written again, each
row with the timestamp that it had. `arch` moves by compare-and-set, so that two archivers at once do no harm.

Because a round's rows of the group log are written before its messages, whatever message with version V is in the
archive, the rows up to V are. Under load a round finds what has come during the one before: batches grow with the lag.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from qim_common.backoff import Backoff
from qim_common.errors import QimError
from qim_common.positions import Position
from qim_common.telemetry.metrics import ArchiverMetrics
from qim_common.telemetry.standing import Standing
from qim_writer.commands.archive.holding import Holding
from qim_writer.domain.archive_rounds import BucketRound, ConversationRound, UnreadableEntry, gather, patience
from qim_writer.storage import Conversation
from qim_writer.storage_archive import (
    ArchiveHead,
    ArchivePosition,
    ArchivePositions,
    ArchiveRow,
    GroupLog,
    MessageArchive,
)
from qim_writer.storage_outbox import Outbox, OutboxRead

ROUND_BYTES: Final = 16 * 1024 * 1024
"""Of entries in one round, about."""

CONVERSATIONS_AT_ONCE: Final = 64
"""Each has one batch on its way."""

LARGE_AT_ONCE: Final = 16
"""Records of one conversation that are too large for the log, up to 64 KiB each, in memory at the same time: a round's
entries tell nothing of their size."""

HEADS_SECONDS: Final = 5.0
"""How far the index of conversations is behind; what it says is a lower bound."""

_REFUSED_SECONDS: Final = 10.0
"""So often a bucket that could not be archived is tried again: what refused it may have been mended."""

_NOTHING_YET: Final = ArchiveHead(0, 0)
"""The head of a conversation that is created in this round: a lower bound, as every head of the index."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Archive:
    """Where a round goes."""

    messages: MessageArchive
    group_log: GroupLog
    positions: ArchivePositions


@dataclass(frozen=True, slots=True)
class _Round:
    """One round over all buckets of an instance that have something."""

    buckets: list[BucketRound]
    log_id: str
    oldest_ms: int
    server_ms: int
    read_at: float
    complete: bool
    life: int


class Archiver:
    """Rounds of one instance, while this process holds its lease.

    Args:
        linger_seconds: how long an archiver that has caught up lets entries gather.
    """

    def __init__(
        self,
        outbox: Outbox,
        archive: Archive,
        holding: Holding,
        metrics: ArchiverMetrics,
        *,
        linger_seconds: float,
    ) -> None:
        self._outbox = outbox
        self._archive = archive
        self._holding = holding
        self._metrics = metrics
        self._linger = linger_seconds
        self._clock = asyncio.get_running_loop().time
        self._room = asyncio.Semaphore(CONVERSATIONS_AT_ONCE)
        self._behind: dict[Conversation, ArchiveHead] = {}
        self._heads_due = 0.0
        self._stopping = False
        self._ended = asyncio.Event()
        self._refused: dict[int, str] = {}
        self._told: dict[int, str] = {}
        self._name = f"instance {outbox.instance}"
        self._failing = Standing(_log, "it is archived again")
        self._not_archived = Standing(_log, "it is archived again", level=logging.ERROR)
        self._tell_refused(all_looked_at=True)

    async def run(self) -> None:
        """Works until cancelled, or until `drain`."""
        backoff = Backoff()
        try:
            while not self._stopping:
                await self._holding.wait()
                try:
                    await self._work(backoff)
                    continue
                except QimError as error:
                    self._failing.holds(self._name, f"rounds are tried again: {error}")
                except Exception as error:  # noqa: BLE001  whatever it is, nothing is skipped and it is tried again
                    self._failing.holds(self._name, f"rounds fail and are tried again: {error}", error)
                self._metrics.failures.inc()
                await backoff.sleep()
        finally:
            self._ended.set()

    async def drain(self, seconds: float) -> None:
        """Lets the round that is under way end, for at most so many seconds, and writes the index."""
        self._stopping = True
        if self._holding.held:
            try:
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
                    await self._write_heads()
            except (TimeoutError, QimError) as error:
                _log.warning("instance %d: left to the next archiver: %s", self._outbox.instance, error)

    async def catch_up(self) -> tuple[int, dict[int, str]]:
        """One pass up to the ends of the logs, with the lease or without it: for a recovery, when nobody writes to the
        instance any more. How many messages and state entries were archived, and by bucket why one could not be."""
        self._refused = {}
        taken, complete = 0, False
        while not complete:
            state = await self._outbox.state()
            self._refused = state.refused | self._refused
            after = {bucket: at for bucket, at in state.archived.items() if bucket not in self._refused}
            found = self._gather(await self._outbox.read(after, max_bytes=ROUND_BYTES), after)
            if found.buckets and not await self._round(found):
                taken += sum(one.recorded for one in found.buckets)
            complete = found.complete and not found.buckets
        await self._write_heads()
        return taken, dict(self._refused)

    async def _work(self, backoff: Backoff) -> None:
        """Rounds from where the archive is, until the lease is lost, another archiver was faster, or it is time to try
        the buckets again that were refused."""
        state = await self._outbox.state()
        self._refused = dict(state.refused)
        after = dict(state.archived)
        again = self._clock() + _REFUSED_SECONDS
        ahead: asyncio.Task[OutboxRead] | None = None
        try:
            while self._holding.held and not self._stopping:
                begun = self._clock()
                read = await (ahead or self._outbox.read(after, max_bytes=ROUND_BYTES))
                ahead = None
                if read.log_id != state.log_id:
                    return
                found = self._gather(read, after)
                if found.buckets:
                    upto = self._served(after | {one.bucket: one.upto for one in found.buckets})
                    if not read.complete:
                        # The next round's entries come while this one is written.
                        ahead = asyncio.create_task(self._outbox.read(upto, max_bytes=ROUND_BYTES))
                    if await self._round(found):
                        return
                    after = self._served(upto)
                self._tell_refused(all_looked_at=found.complete)
                if self._refused and self._clock() >= again:
                    return
                backoff.reset()
                await self._beside()
                self._failing.over(self._name)
                if found.complete:
                    await asyncio.sleep(max(self._linger * patience(found.buckets) - (self._clock() - begun), 0.0))
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.wait([ahead])

    def _gather(self, read: OutboxRead, after: dict[int, Position]) -> _Round:
        """What was read, as rows. A bucket whose entry cannot be read is left out from then on: nothing is skipped."""
        buckets, oldest = [], read.server_ms
        for bucket, entries in read.entries.items():
            if bucket not in after:
                continue
            oldest = min(oldest, entries[0].position.ms)
            try:
                buckets.append(gather(bucket, after[bucket], entries))
            except UnreadableEntry as error:
                self._refused[bucket] = str(error)
                if error.readable:
                    buckets.append(gather(bucket, after[bucket], entries[: error.readable]))
        for bucket in read.unreadable.keys() & after.keys() - self._refused.keys():
            self._refused[bucket] = read.unreadable[bucket]
        return _Round(buckets, read.log_id, oldest, read.server_ms, self._clock(), read.complete, read.life)

    def _served(self, after: dict[int, Position]) -> dict[int, Position]:
        return {bucket: at for bucket, at in after.items() if bucket not in self._refused}

    async def _round(self, found: _Round) -> bool:
        """Writes and notes it; whether another archiver was faster. Where that fails by what no waiting mends (a row
        that Cassandra refuses, a key of another type), each bucket is tried alone, and one that fails is left out."""
        try:
            return await self._write(found)
        except QimError:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the other buckets go on
            self._metrics.failures.inc()
            if len(found.buckets) == 1:
                self._refused[found.buckets[0].bucket] = f"a round failed: {type(error).__name__}: {error}"
                return False
        moved = False
        for one in found.buckets:
            moved = await self._round(replace(found, buckets=[one])) or moved
        return moved

    async def _write(self, found: _Round) -> bool:
        begun = self._clock()
        instance = self._outbox.instance
        announced = {one.bucket: ArchivePosition(found.log_id, one.upto) for one in found.buckets}
        await self._archive.positions.announce(instance, announced)
        # From here on an instance without these entries is fenced; one that lost them before was not.
        await self._outbox.confirm(found.life)
        conversations = [each for one in found.buckets for each in one.conversations.values()]
        created = [(_conversation(each), _NOTHING_YET) for each in conversations if each.created]
        if created:
            # First, so that a recovery finds whatever this round leaves behind if it does not come to its end.
            await self._archive.messages.advance_heads(created)
        rows = [row for one in found.buckets for row in one.group_rows]
        if rows:
            await self._archive.group_log.append(rows)
        await self._write_messages(conversations)
        moved = await self._outbox.note(found.buckets)
        now = self._clock()
        self._metrics.archived_after_seconds.observe(
            max((found.server_ms - found.oldest_ms) / 1000 + now - found.read_at, 0.0)
        )
        self._metrics.round_seconds.observe(now - begun)
        self._metrics.messages.inc(sum(len(each.rows) for each in conversations))
        self._metrics.group_rows.inc(len(rows))
        for each in conversations:
            if each.head:
                self._behind[_conversation(each)] = _head(each)
        if moved:
            _log.info("instance %d: %d buckets were archived by another archiver", instance, len(moved))
        return bool(moved)

    async def _write_messages(self, conversations: Sequence[ConversationRound]) -> None:
        outcomes = await asyncio.gather(
            *(self._write_conversation(each) for each in conversations if each.rows), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _write_conversation(self, each: ConversationRound) -> None:
        async with self._room:
            conversation = _conversation(each)
            for piece in each.pieces(LARGE_AT_ONCE):
                rows = await self._complete(conversation, piece)
                if rows:
                    await self._archive.messages.append(conversation, rows)

    async def _complete(self, conversation: Conversation, rows: Sequence[ArchiveRow]) -> Sequence[ArchiveRow]:
        """The rows with the records that the log was too small for."""
        large = [row.seq for row in rows if not row.record]
        if not large:
            return rows
        read = dict(zip(large, await self._outbox.records(conversation, large), strict=True))
        filled = (row if row.record else row._replace(record=read[row.seq] or b"") for row in rows)
        # One that is gone was archived by another archiver: no other record leaves Redis.
        return [row for row in filled if row.record]

    async def _beside(self) -> None:
        """What is done now and then between two rounds."""
        now = self._clock()
        if now >= self._heads_due:
            self._heads_due = now + HEADS_SECONDS
            await self._write_heads()

    async def _write_heads(self) -> None:
        heads, self._behind = self._behind, {}
        if not heads:
            return
        try:
            await self._archive.messages.advance_heads(list(heads.items()))
        except BaseException:
            self._behind = heads | self._behind
            raise

    def _tell_refused(self, *, all_looked_at: bool) -> None:
        """Buckets that were refused before are told of until all were looked at anew."""
        self._told = dict(self._refused) if all_looked_at else self._told | self._refused
        self._metrics.buckets_refused.labels(str(self._outbox.instance)).set(len(self._told))
        for bucket, why in self._told.items():
            self._not_archived.holds(f"bucket {bucket}", f"not archived any more: {why}")
        self._not_archived.only({f"bucket {bucket}" for bucket in self._told})


def _conversation(each: ConversationRound) -> Conversation:
    return Conversation(each.tenant, each.conversation)


def _head(each: ConversationRound) -> ArchiveHead:
    return ArchiveHead(each.generation, each.head)

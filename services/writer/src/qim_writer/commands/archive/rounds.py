"""From the dispatch logs of one commit instance into the archive, in rounds.

A round reads what came after `arch`, announces how far it will go, writes the rows of the group log, then the messages,
each conversation's in order, and then notes on the instance how far the archive is. Everything may be repeated: a round
that failed, whose outcome is unknown, or that died with its process is read again from `arch` and written again, each
row with the timestamp that it had. `arch` moves by compare-and-set, so that two archivers at once do no harm.

Because a round's rows of the group log are written before its messages, whatever message with version V is in the
archive, the rows up to V are. Under load a round finds what has come during the one before: batches grow with the lag.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from qim_common.backoff import Backoff
from qim_common.errors import QimError
from qim_common.positions import Position
from qim_common.telemetry.metrics import ArchiverMetrics
from qim_writer.commands.archive.holding import Holding
from qim_writer.domain.archive_rounds import BucketRound, ConversationRound, gather
from qim_writer.storage import Conversation
from qim_writer.storage_archive import ArchiveHead, ArchivePosition, ArchivePositions, GroupLog, MessageArchive
from qim_writer.storage_outbox import Outbox, OutboxRead

ROUND_BYTES: Final = 16 * 1024 * 1024
"""Of entries in one round, about."""

CONVERSATIONS_AT_ONCE: Final = 64
"""Each has one batch on its way."""

HEADS_SECONDS: Final = 5.0
"""How far the index of conversations is behind; what it says is a lower bound."""

_BACKLOG_SECONDS: Final = 2.0

_MANY_MESSAGES: Final = 1000
_SMALL_BATCH: Final = 40
"""Messages of a busy round, and of one conversation in it: a batch costs the nodes as much as tens of rows do."""

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
        self._heads_due = self._backlog_due = 0.0
        self._stopping = False
        self._ended = asyncio.Event()
        self._refused: dict[int, str] = {}
        self._oldest: tuple[int, int, float] | None = None
        label = str(outbox.instance)
        metrics.lag_seconds.labels(label).set_function(self.lag_seconds)
        self._backlog = metrics.backlog_messages.labels(label)
        self._refusals = metrics.buckets_refused.labels(label)

    def lag_seconds(self) -> float:
        """The age of the oldest entry that was read and is not archived yet; 0 where there is none."""
        if self._oldest is None:
            return 0.0
        oldest_ms, server_ms, read_at = self._oldest
        return max((server_ms - oldest_ms) / 1000 + self._clock() - read_at, 0.0)

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
                    _log.warning("instance %d: a round is tried again: %s", self._outbox.instance, error)
                except Exception:  # noqa: BLE001  whatever it is, nothing is skipped and it is tried again
                    _log.exception("instance %d: a round failed", self._outbox.instance)
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
            lost = dict.fromkeys(state.trimmed, "its dispatch log has lost entries that were not archived")
            self._refused = lost | self._refused
            after = {bucket: at for bucket, at in state.archived.items() if bucket not in self._refused}
            found = self._gather(await self._outbox.read(after, max_bytes=ROUND_BYTES), after)
            if found.buckets and not await self._round(found):
                taken += sum(one.recorded for one in found.buckets)
            complete = found.complete and not found.buckets
        await self._write_heads()
        return taken, dict(self._refused)

    async def _work(self, backoff: Backoff) -> None:
        """Rounds from where the archive is, until the lease is lost or another archiver was faster."""
        state = await self._outbox.state()
        self._refused = dict.fromkeys(state.trimmed, "its dispatch log has lost entries that were not archived")
        self._tell_refused()
        self._oldest = None
        after = {bucket: position for bucket, position in state.archived.items() if bucket not in self._refused}
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
                    upto = after | {one.bucket: one.upto for one in found.buckets}
                    if not read.complete:
                        # The next round's entries come while this one is written.
                        ahead = asyncio.create_task(self._outbox.read(upto, max_bytes=ROUND_BYTES))
                    if await self._round(found):
                        return
                    after = upto
                backoff.reset()
                await self._beside()
                if found.complete:
                    await asyncio.sleep(max(self._linger * patience(found.buckets) - (self._clock() - begun), 0.0))
        finally:
            self._oldest = None
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
            except ValueError as error:
                self._refused[bucket] = str(error)
                del after[bucket]
                self._tell_refused()
        if buckets:
            self._oldest = oldest, read.server_ms, self._clock()
        return _Round(buckets, read.log_id, oldest, read.server_ms, read.complete, read.life)

    async def _round(self, found: _Round) -> bool:
        """Writes and notes it; whether another archiver was faster."""
        begun = self._clock()
        instance = self._outbox.instance
        announced = {one.bucket: ArchivePosition(found.log_id, one.upto) for one in found.buckets}
        await self._archive.positions.announce(instance, announced)
        # From here on an instance without these entries is fenced; one that lost them before was not.
        await self._outbox.confirm(found.life)
        rows = [row for one in found.buckets for row in one.group_rows]
        if rows:
            await self._archive.group_log.append(rows)
        conversations = [each for one in found.buckets for each in one.conversations.values()]
        await self._write_messages(conversations)
        created = [(_conversation(each), _head(each)) for each in conversations if each.created]
        if created:
            await self._archive.messages.advance_heads(created)
        moved = await self._outbox.note(found.buckets)
        now = self._clock()
        self._metrics.archived_after_seconds.observe(max(self.lag_seconds(), 0.0))
        self._metrics.round_seconds.observe(now - begun)
        self._metrics.messages.inc(sum(len(each.rows) for each in conversations))
        self._metrics.group_rows.inc(len(rows))
        self._oldest = None
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
            if each.too_large:
                records = await self._outbox.records(conversation, [each.rows[at].seq for at in each.too_large])
                for at, record in zip(each.too_large, records, strict=True):
                    each.rows[at] = each.rows[at]._replace(record=record or b"")
                # One that is gone was archived by another archiver: no other record leaves Redis.
                each.rows[:] = [row for row in each.rows if row.record]
            if each.rows:
                await self._archive.messages.append(conversation, each.rows)

    async def _beside(self) -> None:
        """What is done now and then between two rounds."""
        now = self._clock()
        if now >= self._heads_due:
            self._heads_due = now + HEADS_SECONDS
            await self._write_heads()
        if now >= self._backlog_due:
            self._backlog_due = now + _BACKLOG_SECONDS
            self._backlog.set(await self._outbox.backlog())

    async def _write_heads(self) -> None:
        heads, self._behind = self._behind, {}
        if not heads:
            return
        try:
            await self._archive.messages.advance_heads(list(heads.items()))
        except BaseException:
            self._behind = heads | self._behind
            raise

    def _tell_refused(self) -> None:
        self._refusals.set(len(self._refused))
        for bucket, why in self._refused.items():
            _log.error("bucket %d is not archived any more: %s", bucket, why)


def patience(buckets: Sequence[BucketRound]) -> int:
    """How many times as long as usual entries gather after this round: twice where many conversations had few messages
    each and together many, so that the nodes get fewer and larger batches. Pure."""
    conversations = sum(len(one.conversations) for one in buckets)
    messages = sum(one.recorded for one in buckets)
    return 2 if messages >= _MANY_MESSAGES and messages < conversations * _SMALL_BATCH else 1


def _conversation(each: ConversationRound) -> Conversation:
    return Conversation(each.tenant, each.conversation)


def _head(each: ConversationRound) -> ArchiveHead:
    return ArchiveHead(each.generation, each.head)

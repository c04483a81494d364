"""Group commit: whatever waits for one instance, up to 256 sends, is one script call; two calls are in flight.

While one call is in the instance's fsync, the next is being written, and what arrives meanwhile gathers into the call
after that; so the batch grows with the load and nothing waits for a timer. The sends of one conversation are committed
in the order of their submission: calls are pipelined on one connection. A call that the instance did not execute
(NOSCRIPT after a restart or a flush, or a sender segment that the hint missed) stops new calls until all in flight are
answered, and its sends go again in their old order. A new hint stops new calls too, so that all calls in flight carry
the same one. One inaccuracy is accepted: of two calls in flight, the first can meet NOSCRIPT and the second not, if
another client loads the script between them; sends of one conversation in both are then committed in the other order,
each exactly once.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from qim_common.errors import ArchiveBacklogFull, BackendUnavailable, MembershipChanged, Overloaded, QimError
from qim_common.redis import Instance, NoScript
from qim_common.telemetry.metrics import writer_metrics
from qim_writer.backends.redis.place import Place
from qim_writer.backends.redis.send_calls import Call, Run, Waiting
from qim_writer.backends.redis.status import Status, refusal
from qim_writer.backends.redis.store import SEND, RedisStore
from qim_writer.domain.hints import CommitHints
from qim_writer.storage import Send

CALL_SENDS: Final = 256
CALL_BYTES: Final = 1024 * 1024
"""Of the records in one call; the send that passes it is still taken. A call of large messages would hold the instance,
and everybody who waits for it, for as long as its bytes take to be written and synced."""

CALLS_IN_FLIGHT: Final = 2
QUEUE_SENDS: Final = 32_768
"""Sends that may wait for one instance; more are OVERLOADED at once."""

QUEUE_BYTES: Final = 128 * 1024 * 1024
"""Of their records, likewise."""

_ANSWER: Final = struct.Struct(">BHIHIHII")
_OK: Final = int(Status.OK)
_COMMITTED: Final = (_OK, int(Status.QUIET))
"""Plain numbers: each message is compared with them."""


_log = logging.getLogger(__name__)


class _Recorded:
    """A send that is committed and waits for the archive; satisfies `Waiter`. `hints` hears of its run afterwards."""

    __slots__ = ("_answer", "_hints", "_send")

    def __init__(self, send: Send, answer: tuple[int, int, int, int], hints: CommitHints | None) -> None:
        self._send = send
        self._answer = answer
        self._hints = hints

    @property
    def expired(self) -> bool:
        # The hint of the run goes whoever still waits.
        return self._hints is None and self._send.sink.expired

    def archived(self) -> None:
        send, (_, time_ms, version, _) = self._send, self._answer
        if not send.sink.expired:
            send.sink.committed(send.index, *self._answer)
        if self._hints is not None:
            self._hints.sent(send.conversation.tenant, send.conversation.id, version, time_ms)

    def failed(self, error: QimError) -> None:
        if not self._send.sink.expired:
            self._send.sink.refused(self._send.index, error)


class GroupCommit:
    """The commit path of one instance. All methods belong to the event loop's thread."""

    def __init__(self, store: RedisStore, instance: Instance, hints: CommitHints | None) -> None:
        self._store = store
        self._instance = instance
        self._hints = hints
        position = store.instances.index(instance)
        self._call = store.lanes[position].call if store.lanes else instance.call
        self._waits = store.waits[position] if store.waits else None
        self._backlog = store.backlog
        self._position = position
        self._queue: deque[Waiting] = deque()
        self._queued_bytes = 0
        self._number = 0
        self._in_flight = 0
        self._stalled = False
        self._woken = False
        self._loop = asyncio.get_running_loop()
        self._metrics = writer_metrics()

    @property
    def waiting(self) -> int:
        """How many sends wait for a call."""
        return len(self._queue)

    def submit(self, send: Send, place: Place) -> None:
        """Hands one send over; its sink hears of the outcome."""
        if len(self._queue) >= QUEUE_SENDS or self._queued_bytes >= QUEUE_BYTES:
            send.sink.refused(send.index, Overloaded())
            return
        if self._backlog is not None and self._backlog.full(self._position):
            self._metrics.outbox_refusals.inc()
            send.sink.refused(send.index, ArchiveBacklogFull())
            return
        self._number += 1
        self._queue.append(Waiting(self._number, place, send))
        self._queued_bytes += len(send.tail)
        if not self._woken:
            # At the end of this turn of the loop, so that frames that arrived together share a call.
            self._woken = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._woken = False
        while self._queue and not self._stalled and self._in_flight < CALLS_IN_FLIGHT:
            call = self._take()
            if not call.answers_for:
                continue
            self._in_flight += 1
            self._metrics.commit_batch_size.observe(len(call.answers_for))
            started = self._loop.time()
            reply = self._call("EVALSHA", SEND.sha1, len(call.keys), *call.keys, *call.args)
            reply.add_done_callback(partial(self._answered, call, started))

    def _take(self) -> Call:
        """Up to 256 sends, of about 1 MiB, as one call; those of one conversation together and in order."""
        runs: dict[Place, Run] = {}
        queue = self._queue
        taken, size = 0, 0
        while queue and taken < CALL_SENDS and size < CALL_BYTES:
            waiting = queue.popleft()
            send, place = waiting.send, waiting.place
            self._queued_bytes -= len(send.tail)
            if send.sink.expired:
                continue
            taken += 1
            size += len(send.tail)
            run = runs.get(place)
            if run is None:
                run = runs[place] = Run(place)
            run.sends.append(waiting)
            run.senders.setdefault(send.sender, len(run.senders) + 1)
            if send.people and not run.people:
                tenant = send.conversation.tenant
                run.people = b"".join(user + self._store.shard(tenant, user) for user in send.people)
        by_bucket: dict[int, list[Run]] = {}
        for place, run in runs.items():
            by_bucket.setdefault(place.bucket, []).append(run)
        buckets = [self._store.buckets[bucket] for bucket in by_bucket]
        return Call(list(by_bucket.values()), buckets, self._store.retention_ms)

    def _answered(self, call: Call, started: float, done: asyncio.Future[Any]) -> None:
        self._in_flight -= 1
        error = done.exception()
        if error is None:
            self._metrics.commit_seconds.observe(self._loop.time() - started)
            self._settle(call, done.result())
        elif isinstance(error, NoScript):
            self._again(call.answers_for)
            self._reload()
        else:
            known: QimError
            if isinstance(error, QimError):
                known = error
            else:
                _log.error("the send script failed", exc_info=error)
                known = BackendUnavailable()
            for waiting in call.answers_for:
                waiting.send.sink.refused(waiting.send.index, known)
        if self._stalled and not self._in_flight:
            self._stalled = False
        self._pump()

    def _settle(self, call: Call, reply: bytes) -> None:
        again: list[Waiting] = []
        committed = 0
        hints = self._hints
        hinted: Place | None = None
        waits = self._waits
        for waiting, answer in zip(call.answers_for, _ANSWER.iter_unpack(reply), strict=True):
            status, seq_high, seq_low, time_high, time_low, version_high, version_low, generation = answer
            send = waiting.send
            if status in _COMMITTED:
                seq = seq_high << 32 | seq_low
                committed += 1
                if seq >> 16 > waiting.place.segment:
                    waiting.place.saw_head(seq)
                    # Calls with the old hint come first: they may have to go again.
                    self._stalled = True
                time_ms, version = time_high << 32 | time_low, version_high << 32 | version_low
                # Once a run: what a call commits in one conversation has one time and one version.
                hint = waiting.place is not hinted and status == _OK and hints is not None
                if hint:
                    hinted = waiting.place
                if waits is not None:
                    recorded = _Recorded(send, (seq, time_ms, version, generation), hints if hint else None)
                    waits.add(waiting.place, seq, 0, recorded)
                    continue
                send.sink.committed(send.index, seq, time_ms, version, generation)
                if hint and hints is not None:
                    hints.sent(send.conversation.tenant, send.conversation.id, version, time_ms)
            elif status == Status.NEED_SEGMENT:
                waiting.place.saw_head(seq_high << 32 | seq_low)
                again.append(waiting)
            elif status == Status.CHANGED:
                present = version_high << 32 | version_low
                send.sink.refused(send.index, MembershipChanged(metadata={"membership_version": str(present)}))
            else:
                send.sink.refused(send.index, refusal(status))
        self._metrics.messages_committed.inc(committed)
        if again:
            self._again(again)

    def _again(self, sends: Sequence[Waiting]) -> None:
        """Puts sends that were not executed back in their old order and waits for what is in flight."""
        self._stalled = True
        self._queued_bytes += sum(len(waiting.send.tail) for waiting in sends)
        self._queue = deque(sorted((*sends, *self._queue), key=lambda waiting: waiting.number))

    def _reload(self) -> None:
        self._in_flight += 1
        loaded = self._instance.call("SCRIPT", "LOAD", SEND.source)
        loaded.add_done_callback(self._loaded)

    def _loaded(self, done: asyncio.Future[Any]) -> None:
        self._in_flight -= 1
        error = done.exception()
        if error is not None:
            # The instance is down or refuses the script: the sends meet the same when they go again.
            _log.warning("the send script was not loaded: %s", error)
        if not self._in_flight:
            self._stalled = False
        self._pump()


class RedisCommitLog:
    """The commit path over all instances. `hints` hears of every run that was committed; None: there is no lane."""

    def __init__(self, store: RedisStore, hints: CommitHints | None = None) -> None:
        self._store = store
        self._commits = tuple(GroupCommit(store, instance, hints) for instance in store.instances)
        writer_metrics().commit_waiting.set_function(lambda: sum(commit.waiting for commit in self._commits))

    def submit(self, sends: Sequence[Send]) -> None:
        """See `qim_writer.storage.CommitLog`."""
        for send in sends:
            place = self._store.place(send.conversation.tenant, send.conversation.id)
            self._commits[place.instance].submit(send, place)

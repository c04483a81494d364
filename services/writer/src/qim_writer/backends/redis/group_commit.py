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

from qim_common.errors import BackendUnavailable, MembershipChanged, Overloaded, QimError
from qim_common.keys import BucketKeys
from qim_common.redis import Argument, Instance, NoScript
from qim_common.telemetry.metrics import writer_metrics
from qim_writer.backends.redis.status import Status, refusal
from qim_writer.backends.redis.store import SEND, Place, RedisStore
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
_RUN: Final = struct.Struct(">BHHI")
_MESSAGE: Final = struct.Struct(">HHIHI")
_COUNT: Final = struct.Struct(">H")
_LOW_32: Final = 0xFFFFFFFF
_OK: Final = int(Status.OK)
_COMMITTED: Final = (_OK, int(Status.QUIET))
"""Plain numbers: each message is compared with them."""

_NAMES_PEER: Final = 32_768

_log = logging.getLogger(__name__)


class _Run:
    """The sends of one conversation in one call."""

    __slots__ = ("people", "place", "senders", "sends")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.sends: list[_Waiting] = []
        self.senders: dict[bytes, int] = {}
        self.people: bytes = b""


class _Waiting:
    """A send in the queue, numbered in the order of submission."""

    __slots__ = ("number", "place", "send")

    def __init__(self, number: int, place: Place, send: Send) -> None:
        self.number = number
        self.place = place
        self.send = send


class _Call:
    """One script call: its keys, arguments and the sends in the order of its answers."""

    __slots__ = ("answers_for", "args", "keys")

    def __init__(self, runs: Sequence[Sequence[_Run]], buckets: Sequence[BucketKeys], retention_ms: int) -> None:
        keys: list[Argument] = []
        args: list[Argument] = []
        plan = [_COUNT.pack(len(runs))]
        order: list[_Waiting] = []
        for bucket, of_bucket in zip(buckets, runs, strict=True):
            keys += (bucket.meta, bucket.dispatch, bucket.memlog, *bucket.idem)
            plan.append(_COUNT.pack(len(of_bucket)))
            for run in of_bucket:
                place, sends = run.place, run.sends
                keys += place.keys_of_send()
                args.append(place.scope)
                if run.people:
                    keys.append(place.keys.grpmem)
                    args.append(run.people)
                args += run.senders
                plan.append(_RUN.pack(bool(run.people), len(sends), len(run.senders), place.segment))
                for waiting in sends:
                    send = waiting.send
                    expected, time_ms = send.expected_version, send.key.time_ms
                    plan.append(
                        _MESSAGE.pack(
                            run.senders[send.sender] + (_NAMES_PEER if send.people else 0),
                            expected >> 32,
                            expected & _LOW_32,
                            time_ms >> 32,
                            time_ms & _LOW_32,
                        )
                    )
                args += [waiting.send.key.field for waiting in sends]
                args += [waiting.send.key.digest for waiting in sends]
                args += [waiting.send.tail for waiting in sends]
                order += sends
        self.keys = keys
        self.args: list[Argument] = [b"".join(plan), retention_ms, *args]
        self.answers_for = order


class GroupCommit:
    """The commit path of one instance. All methods belong to the event loop's thread."""

    def __init__(self, store: RedisStore, instance: Instance, hints: CommitHints | None) -> None:
        self._store = store
        self._instance = instance
        self._hints = hints
        self._queue: deque[_Waiting] = deque()
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
        self._number += 1
        self._queue.append(_Waiting(self._number, place, send))
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
            reply = self._instance.call("EVALSHA", SEND.sha1, len(call.keys), *call.keys, *call.args)
            reply.add_done_callback(partial(self._answered, call, started))

    def _take(self) -> _Call:
        """Up to 256 sends, of about 1 MiB, as one call; those of one conversation together and in order."""
        runs: dict[Place, _Run] = {}
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
                run = runs[place] = _Run(place)
            run.sends.append(waiting)
            run.senders.setdefault(send.sender, len(run.senders) + 1)
            if send.people and not run.people:
                tenant = send.conversation.tenant
                run.people = b"".join(user + self._store.shard(tenant, user) for user in send.people)
        by_bucket: dict[int, list[_Run]] = {}
        for place, run in runs.items():
            by_bucket.setdefault(place.bucket, []).append(run)
        buckets = [self._store.buckets[bucket] for bucket in by_bucket]
        return _Call(list(by_bucket.values()), buckets, self._store.retention_ms)

    def _answered(self, call: _Call, started: float, done: asyncio.Future[Any]) -> None:
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

    def _settle(self, call: _Call, reply: bytes) -> None:
        again: list[_Waiting] = []
        committed = 0
        hints = self._hints
        hinted: Place | None = None
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
                send.sink.committed(send.index, seq, time_ms, version, generation)
                # Once a run: what a call commits in one conversation has one time and one version.
                if waiting.place is not hinted and status == _OK and hints is not None:
                    hinted = waiting.place
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

    def _again(self, sends: Sequence[_Waiting]) -> None:
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

"""Sends on CQL alone: what waits for one conversation is one run, and the runs of a conversation follow one another.

A run is five steps, and no two of them are atomic: read members, first answers and head; judge; take the seqs with one
conditional write; write the answers; write the messages. A writer that dies after the third leaves seqs without
messages. The answers go before the messages: a retry that finds its answer writes the message again where it is
missing, so that it has one seq. docs/decisions/0018 lists what this cannot promise.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from qim_common.cassandra import BATCH_MAX_ROWS, CassandraRequests
from qim_common.errors import BackendUnavailable, Overloaded, QimError
from qim_common.records import RECORD_VERSION, Audience
from qim_common.telemetry.metrics import writer_metrics
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.backends.scylla.conversations import Conversations, now_ms
from qim_writer.backends.scylla.judging import Verdicts, judge
from qim_writer.backends.scylla.people import People
from qim_writer.backends.scylla.requests import Answer, Requests
from qim_writer.storage import Conversation, Send
from qim_writer.storage_archive import ArchiveRow

RUN_SENDS: Final = BATCH_MAX_ROWS
RUN_BYTES: Final = 1024 * 1024
"""Of the records of one run; the send that passes it is still taken."""

QUEUE_SENDS: Final = 32_768
"""Sends that may wait in this process; more are OVERLOADED at once."""

QUEUE_BYTES: Final = 128 * 1024 * 1024
"""Of their records, likewise."""

VERSION: Final = 1
"""The membership version of everything: there are no changes."""

DIRECT_POLICY: Final = bytes(37)

_HEADER: Final = struct.Struct(">BBHIHIHII")

_log = logging.getLogger(__name__)


def record_of(seq: int, time_ms: int, tail: bytes) -> bytes:
    """A record as `msgrec` has it (qim_common.records); every message is ordinary, so the one before is `prev`."""
    low, prev = 0xFFFFFFFF, seq - 1
    numbers = (0, VERSION, time_ms >> 32, time_ms & low, prev >> 32, prev & low, 0)
    return _HEADER.pack(RECORD_VERSION, Audience.BROADCAST, *numbers) + tail


class ScyllaCommitLog:
    """See `qim_writer.storage.CommitLog`. All methods belong to the event loop's thread."""

    def __init__(self, session: CassandraRequests, archive: CassandraArchive) -> None:
        self._conversations = Conversations(session)
        self._people = People(session)
        self._requests = Requests(session)
        self._archive = archive
        self._queues: dict[Conversation, deque[Send]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._waiting_bytes = 0
        self._metrics = writer_metrics()
        self._metrics.commit_waiting.set_function(lambda: self._waiting)

    def submit(self, sends: Sequence[Send]) -> None:
        """See the Protocol."""
        for send in sends:
            if self._waiting >= QUEUE_SENDS or self._waiting_bytes >= QUEUE_BYTES:
                send.sink.refused(send.index, Overloaded())
                continue
            self._waiting += 1
            self._waiting_bytes += len(send.tail)
            queue = self._queues.get(send.conversation)
            if queue is None:
                queue = self._queues[send.conversation] = deque()
                worker = asyncio.create_task(self._work(send.conversation, queue), name="scylla commit")
                self._workers.add(worker)
                worker.add_done_callback(self._workers.discard)
            queue.append(send)

    async def close(self) -> None:
        """Wait for what is under way."""
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self, conversation: Conversation, queue: deque[Send]) -> None:
        """Commits the runs of one conversation until nothing waits for it."""
        while queue:
            if run := self._take(queue):
                await self._commit(conversation, run)
        del self._queues[conversation]

    def _take(self, queue: deque[Send]) -> list[Send]:
        run: list[Send] = []
        size = 0
        while queue and len(run) < RUN_SENDS and size < RUN_BYTES:
            send = queue.popleft()
            self._waiting -= 1
            self._waiting_bytes -= len(send.tail)
            if not send.sink.expired:
                run.append(send)
                size += len(send.tail)
        return run

    async def _commit(self, conversation: Conversation, run: Sequence[Send]) -> None:
        started = asyncio.get_running_loop().time()
        self._metrics.commit_batch_size.observe(len(run))
        answered: set[int] = set()
        try:
            await self._carry_out(conversation, run, answered)
        except QimError as error:
            _refuse((send for send in run if id(send) not in answered), error)
        except Exception:  # noqa: BLE001  whatever it is, every send has an answer
            _log.exception("a run of sends failed")
            _refuse((send for send in run if id(send) not in answered), BackendUnavailable())
        self._metrics.commit_seconds.observe(asyncio.get_running_loop().time() - started)

    async def _carry_out(self, conversation: Conversation, run: Sequence[Send], answered: set[int]) -> None:
        """Answers every send of the run, noting which; what raises leaves the rest without an answer."""
        now = now_ms()
        row, members, answers = await asyncio.gather(
            self._conversations.find(conversation),
            self._people.among(conversation, (send.sender for send in run)),
            self._requests.find(conversation, (send.key.field for send in run), now),
        )
        people = next((send.people for send in run if send.people), ())
        if people and not members.issuperset(send.sender for send in run):
            # The id of a direct conversation is made of its two people: a send that names the peer proves both.
            row = row or await self._conversations.create(conversation, DIRECT_POLICY, len(people), None, big=False)
            await self._people.enter(conversation, people, row.created_ms)
            members = set(people)
        verdicts = judge(run, answers, members if row is not None else (), now)
        for send, error in verdicts.refused:
            answered.add(id(send))
            send.sink.refused(send.index, error)
        await self._repeat(conversation, verdicts, answered)
        if row is None or not verdicts.accepted:
            return
        taken = await self._conversations.allocate(conversation, row.line, len(verdicts.accepted))
        numbered = list(enumerate(verdicts.accepted, taken.first))
        await self._requests.store(
            conversation,
            [(send.key.field, Answer(send.key.digest, seq, taken.time_ms)) for seq, send in numbered],
        )
        await self._write(conversation, [(send, seq, taken.time_ms) for seq, send in numbered])
        for place, (seq, send) in enumerate(numbered):
            for each in (send, *verdicts.twins.get(place, ())):
                answered.add(id(each))
                each.sink.committed(each.index, seq, taken.time_ms, VERSION, 0)
        self._metrics.messages_committed.inc(len(numbered))

    async def _repeat(self, conversation: Conversation, verdicts: Verdicts, answered: set[int]) -> None:
        """First answers again; a message that its writer did not come to write is written first."""
        if not verdicts.repeated:
            return
        seqs = [answer.seq for _, answer in verdicts.repeated]
        there = {record.seq for record in await self._archive.records(conversation, seqs)}
        await self._write(
            conversation,
            [(send, answer.seq, answer.time_ms) for send, answer in verdicts.repeated if answer.seq not in there],
        )
        for send, answer in verdicts.repeated:
            answered.add(id(send))
            send.sink.committed(send.index, answer.seq, answer.time_ms, VERSION, 0)

    async def _write(self, conversation: Conversation, messages: Sequence[tuple[Send, int, int]]) -> None:
        rows = [ArchiveRow(seq, record_of(seq, time_ms, send.tail)) for send, seq, time_ms in messages]
        await self._archive.append(conversation, rows)


def _refuse(sends: Iterable[Send], error: QimError) -> None:
    for send in sends:
        send.sink.refused(send.index, error)

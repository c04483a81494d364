"""The rows of conversations: created once, moved by conditional writes, and nothing else.

A conditional write is a round of Paxos: tens of milliseconds on small machines, one conversation at a time.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import dataclass
from typing import Final

from qim_common.cassandra import CassandraRequests, CassandraUnavailable, OutcomeUnknown, Statement, signed_tenant
from qim_common.errors import GroupAlreadyExists, IdempotencyKeyReused
from qim_common.idempotency import IdempotencyKey
from qim_writer.backends.scylla.lines import RUN_ID_BYTES, Fate, Line, fate
from qim_writer.storage import Conversation

ATTEMPTS: Final = 32
"""Of one run to take its seqs, while other writers take theirs."""

_PAUSE_SECONDS: Final = 0.1
"""At most, before another attempt: at random, so that two writers do not meet again and again."""

_FIND: Final = Statement(
    "scylla_conversation",
    "SELECT policy, member_count, big, created_ms, request_field, request_digest, head_seq, time_ms, runs "
    "FROM scylla_conversations WHERE tenant_id = ? AND conversation_id = ?",
)
_CREATE: Final = Statement(
    "scylla_create",
    "INSERT INTO scylla_conversations (tenant_id, conversation_id, policy, member_count, big, created_ms, "
    "request_field, request_digest, head_seq, time_ms, runs) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?) IF NOT EXISTS",
    idempotent=False,
)
_MOVE: Final = Statement(
    "scylla_allocate",
    "UPDATE scylla_conversations SET head_seq = ?, time_ms = ?, runs = ? "
    "WHERE tenant_id = ? AND conversation_id = ? IF head_seq = ?",
    idempotent=False,
)
STATEMENTS: Final = (_FIND, _CREATE, _MOVE)


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """One conversation. `policy` is packed; the request is the one that created a group, empty for a direct one."""

    policy: bytes
    member_count: int
    big: bool
    created_ms: int
    request_field: bytes
    request_digest: bytes
    line: Line


@dataclass(frozen=True, slots=True)
class Allocated:
    """The seqs from `first` on belong to one run, whose commit time is `time_ms`."""

    first: int
    time_ms: int


def now_ms() -> int:
    """This machine's clock: there is no server whose clock all writers share."""
    return int(time.time() * 1000)


class Conversations:
    """The table `scylla_conversations`."""

    def __init__(self, session: CassandraRequests) -> None:
        self._session = session

    async def find(self, conversation: Conversation, *, serial: bool = False) -> ConversationRow | None:
        """The row; `serial` sees, and ends, a conditional write that is under way."""
        key = (signed_tenant(conversation.tenant), conversation.id)
        rows = await self._session.execute(_FIND, key, serial=serial)
        if not rows:
            return None
        policy, count, big, created_ms, field, digest, head, time_ms, runs = rows[0]
        line = Line.read(head, time_ms, runs)
        return ConversationRow(policy, count, big, created_ms, field or b"", digest or b"", line)

    async def create(
        self, conversation: Conversation, policy: bytes, people: int, key: IdempotencyKey | None, *, big: bool
    ) -> ConversationRow:
        """The new row, or the one that the same request has made; without a key, whoever made it.

        Raises GroupAlreadyExists, IdempotencyKeyReused, CassandraUnavailable."""
        created_ms = now_ms()
        field, digest = (key.field, key.digest) if key else (b"", b"")
        place = (signed_tenant(conversation.tenant), conversation.id)
        try:
            rows = await self._session.execute(
                _CREATE, (*place, policy, people, big, created_ms, field, digest, created_ms, b"")
            )
            if rows[0][0]:
                return ConversationRow(policy, people, big, created_ms, field, digest, Line(0, created_ms))
        except OutcomeUnknown:
            # The read at SERIAL decides it: what it does not see has not happened, and the caller repeats the call.
            pass
        row = await self.find(conversation, serial=True)
        if row is None:
            raise CassandraUnavailable("scylla_create: not carried out")
        if row.request_field != field:
            raise GroupAlreadyExists
        if row.request_digest != digest:
            raise IdempotencyKeyReused
        return row

    async def allocate(self, conversation: Conversation, line: Line, count: int) -> Allocated:
        """Take `count` seqs after the head of `line`, or after a newer one where other writers took theirs meanwhile.

        Raises CassandraUnavailable: none are taken; OutcomeUnknown: they may be, and then stay without messages."""
        run = os.urandom(RUN_ID_BYTES)
        now = now_ms()  # once: a write that is made again, because its answer was lost, is the same write
        place = (signed_tenant(conversation.tenant), conversation.id)
        for _ in range(ATTEMPTS):
            after = line.after(run, count, now)
            unknown = False
            try:
                rows = await self._session.execute(
                    _MOVE, (after.head, after.time_ms, after.packed_runs, *place, line.head)
                )
                if rows[0][0]:
                    return Allocated(line.head + 1, after.time_ms)
            except OutcomeUnknown:
                unknown = True
            row = await self.find(conversation, serial=unknown)
            if row is None:
                raise CassandraUnavailable("scylla_allocate: the conversation is gone")
            match fate(run, line, row.line):
                case Fate.APPLIED:
                    return Allocated(line.head + 1, after.time_ms)
                case Fate.UNKNOWN:
                    raise OutcomeUnknown("scylla_allocate: too many other runs came since")
                case Fate.NOT_APPLIED:
                    line = row.line
            await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311  no secret
        raise CassandraUnavailable("scylla_allocate: other writers were always faster")

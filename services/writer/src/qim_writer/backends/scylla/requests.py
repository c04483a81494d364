"""The first answers of sends (contracts.md, "Idempotency"), by the day of the commit.

Two days are read: an answer is found for at least 24 hours, by this machine's clock. Reading them and taking seqs are
two steps, so two writers that get the same id at once both commit it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from qim_common.cassandra import CassandraRequests, Statement, signed_tenant
from qim_writer.storage import Conversation

MS_PER_DAY: Final = 86_400_000
SKEW_MS: Final = 600_000
"""By so much an id's time may be ahead of or behind this clock (contracts.md)."""

_FIND: Final = Statement(
    "scylla_requests",
    "SELECT field, digest, seq, time_ms FROM scylla_requests "
    "WHERE tenant_id = ? AND conversation_id = ? AND day = ? AND field IN ?",
)
_STORE: Final = Statement(
    "scylla_store_requests",
    "INSERT INTO scylla_requests (tenant_id, conversation_id, day, field, digest, seq, time_ms) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)",
)
STATEMENTS: Final = (_FIND, _STORE)


class Answer(NamedTuple):
    """The first answer of a send, and the digest of its content."""

    digest: bytes
    seq: int
    time_ms: int


def kept_since_ms(now_ms: int) -> int:
    """The start of the older of the two days that are read."""
    return (now_ms // MS_PER_DAY - 1) * MS_PER_DAY


def too_old(id_ms: int, now_ms: int) -> bool:
    """Whether an id of this time (0: it tells none) may have an answer that is no longer read."""
    return 0 < id_ms < kept_since_ms(now_ms) - SKEW_MS


class Requests:
    """The table `scylla_requests`."""

    def __init__(self, session: CassandraRequests) -> None:
        self._session = session

    async def find(self, conversation: Conversation, fields: Iterable[bytes], now_ms: int) -> dict[bytes, Answer]:
        """The answers of those fields that have one."""
        tenant, today = signed_tenant(conversation.tenant), now_ms // MS_PER_DAY
        wanted = sorted(set(fields))
        older, newer = await asyncio.gather(
            *(self._session.execute(_FIND, (tenant, conversation.id, day, wanted)) for day in (today - 1, today))
        )
        # Where both days have one, the older was the first.
        return {field: Answer(*answer) for field, *answer in (*newer, *older)}

    async def store(self, conversation: Conversation, answers: Sequence[tuple[bytes, Answer]]) -> None:
        """Write the answers of one run, at most BATCH_MAX_ROWS, all of one commit time."""
        tenant = signed_tenant(conversation.tenant)
        await self._session.batch(
            _STORE,
            [(tenant, conversation.id, answer.time_ms // MS_PER_DAY, field, *answer) for field, answer in answers],
        )

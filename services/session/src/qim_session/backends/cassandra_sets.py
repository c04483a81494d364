"""The conversation sets in Cassandra: the authority of the backend tiered (storage.md, "Session")."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from qim_common.cassandra import (
    BATCH_MAX_ROWS,
    CassandraRequests,
    Statement,
    Value,
    earliest_wins,
    signed_tenant,
)
from qim_common.ids import ConversationId, TenantId, UserId, kind_of
from qim_session.domain.entries import ProjectionEntry

_REGISTER: Final = Statement(
    "register_conversation",
    "INSERT INTO user_conversation_state (tenant_id, user_id, conversation_id, kind, first_seen_at) "
    "VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?",
)
_OF: Final = Statement(
    "conversations_of", "SELECT conversation_id FROM user_conversation_state WHERE tenant_id = ? AND user_id = ?"
)
STATEMENTS: Final = (_REGISTER, _OF)


class CassandraConversationSets:
    """The `ConversationSets` of the backend tiered: the table `user_conversation_state`."""

    def __init__(self, requests: CassandraRequests) -> None:
        self._requests = requests

    async def register(self, entries: Sequence[ProjectionEntry]) -> None:
        """As `ConversationSets.register`, without a read or a condition: of several moments the earliest stays."""
        people: dict[tuple[int, bytes], list[Sequence[Value]]] = {}
        for entry in entries:
            tenant = signed_tenant(entry.tenant)
            row = (
                *(tenant, entry.user, entry.conversation),
                *(kind_of(entry.conversation), entry.time_ms, earliest_wins(entry.time_ms)),
            )
            people.setdefault((tenant, entry.user), []).append(row)
        # All run to their end, so that one failure leaves no write behind that nobody waits for.
        outcomes = await asyncio.gather(
            *(
                self._requests.batch(_REGISTER, rows[at : at + BATCH_MAX_ROWS])
                for rows in people.values()
                for at in range(0, len(rows), BATCH_MAX_ROWS)
            ),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def of(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        """As `ConversationSets.of`."""
        rows = await self._requests.execute(_OF, (signed_tenant(tenant), user))
        return [ConversationId(conversation) for (conversation,) in rows]

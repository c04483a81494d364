"""Who is in a conversation, and what each person has: rows that are written once.

`user_conversation_state` is the session service's table (storage.md, "Session"); here the writer registers directly,
because there is no log from which anybody else could.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from qim_common.cassandra import BATCH_MAX_ROWS, CassandraRequests, Statement, earliest_wins, signed_tenant
from qim_common.ids import UserId, kind_of
from qim_writer.storage import Conversation

_AT_ONCE: Final = 100
"""People who are registered at once."""

_ADD: Final = Statement(
    "scylla_add_members", "INSERT INTO scylla_members (tenant_id, conversation_id, user_id) VALUES (?, ?, ?)"
)
_AMONG: Final = Statement(
    "scylla_members_among",
    "SELECT user_id FROM scylla_members WHERE tenant_id = ? AND conversation_id = ? AND user_id IN ?",
)
_ALL: Final = Statement(
    "scylla_members", "SELECT user_id FROM scylla_members WHERE tenant_id = ? AND conversation_id = ?"
)
_REGISTER: Final = Statement(
    "scylla_register",
    "INSERT INTO user_conversation_state (tenant_id, user_id, conversation_id, kind, first_seen_at) "
    "VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?",
)
STATEMENTS: Final = (_ADD, _AMONG, _ALL, _REGISTER)


class People:
    """The tables `scylla_members` and `user_conversation_state`."""

    def __init__(self, session: CassandraRequests) -> None:
        self._session = session

    async def enter(self, conversation: Conversation, people: Sequence[UserId], time_ms: int) -> None:
        """Write everybody's rows; again without another effect. Members first: a set never names a conversation that
        refuses the person for good."""
        tenant = signed_tenant(conversation.tenant)
        for at in range(0, len(people), BATCH_MAX_ROWS):
            part = people[at : at + BATCH_MAX_ROWS]
            await self._session.batch(_ADD, [(tenant, conversation.id, user) for user in part])
        kind, timestamp = kind_of(conversation.id), earliest_wins(time_ms)
        for at in range(0, len(people), _AT_ONCE):
            outcomes = await asyncio.gather(
                *(
                    self._session.execute(_REGISTER, (tenant, user, conversation.id, kind, time_ms, timestamp))
                    for user in people[at : at + _AT_ONCE]
                ),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    async def among(self, conversation: Conversation, users: Iterable[UserId]) -> set[UserId]:
        """Those of the users who are members."""
        named = sorted(set(users))
        rows = await self._session.execute(_AMONG, (signed_tenant(conversation.tenant), conversation.id, named))
        return {UserId(user) for (user,) in rows}

    async def all(self, conversation: Conversation) -> list[UserId]:
        """Every member, ascending; at most 1,000."""
        rows = await self._session.execute(_ALL, (signed_tenant(conversation.tenant), conversation.id))
        return [UserId(user) for (user,) in rows]

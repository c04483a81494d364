"""Changes without a seq: there are none. A group's only entry is its creation."""

from __future__ import annotations

from typing import NoReturn

from qim_common.cassandra import CassandraRequests
from qim_common.idempotency import IdempotencyKey
from qim_common.ids import UserId
from qim_common.records import StateChange
from qim_writer.backends.scylla.conversations import Conversations
from qim_writer.backends.scylla.unsupported import unsupported
from qim_writer.domain.policy import Policy, PolicyChange
from qim_writer.storage import AgeCut, Conversation, GroupSnapshot, StateRecord, maker_of_user


class ScyllaGroupStateStore:
    """See `qim_writer.storage.GroupStateStore`. What would change something raises UnsupportedByBackend, already where
    the first answer of a known id is asked for: before anything is told of the group."""

    def __init__(self, session: CassandraRequests) -> None:
        self._conversations = Conversations(session)

    async def stored_answer(self, conversation: Conversation, key: IdempotencyKey) -> bytes | None:
        """Raises UnsupportedByBackend."""
        _refuse()

    async def change_policy(
        self, group: Conversation, change: PolicyChange, maker: str, key: IdempotencyKey
    ) -> GroupSnapshot | None:
        """Raises UnsupportedByBackend."""
        _refuse()

    async def raise_floor(
        self, group: Conversation, upto: int, policy: Policy, maker: str, key: IdempotencyKey | None
    ) -> GroupSnapshot | None:
        """Raises UnsupportedByBackend."""
        _refuse()

    async def clear_own(self, conversation: Conversation, user: UserId, upto: int, key: IdempotencyKey) -> int:
        """Raises UnsupportedByBackend."""
        _refuse()

    def snapshot(self, answer: bytes) -> GroupSnapshot:
        """Raises UnsupportedByBackend."""
        _refuse()

    def clear_point(self, answer: bytes) -> int:
        """Raises UnsupportedByBackend."""
        _refuse()

    async def state_records(self, group: Conversation, after_revision: int, limit: int) -> list[StateRecord]:
        """See the Protocol: the creation."""
        row = await self._conversations.find(group)
        if row is None or after_revision:
            return []
        maker = maker_of_user(Policy.unpack(row.policy).owner)
        return [StateRecord(1, StateChange.CREATED, row.created_ms, 1, 0, maker, row.policy)]

    async def trim(self, conversation: Conversation) -> bool:
        """Nothing lies below a floor."""
        return False

    async def retained_groups(self, bucket: int) -> list[Conversation]:
        """None: a creation with a retention is refused."""
        return []

    async def untrimmed_groups(self, bucket: int) -> list[Conversation]:
        """None."""
        return []

    async def age_cut(self, group: Conversation, time_ms: int) -> AgeCut | None:
        """None: nothing is removed by age."""
        return None


def _refuse() -> NoReturn:
    raise unsupported("changes of settings, owner, freeze, floor and own clear points")

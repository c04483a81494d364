"""The writer's commands in-process on the shared Valkey, without a trimmer: no record below a floor is removed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest_asyncio
from tests.support.chat import OPERATOR, Chat, acting
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.ids import ConversationId, UserId, uuid7
from qim_common.keys import SENDER_SEGMENT
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.group_state import RedisGroupStateStore
from qim_writer.commands.change_members import GroupQueues, MemberChanges
from qim_writer.commands.clear_history import OwnClear
from qim_writer.commands.delivered import DeliveredPages
from qim_writer.commands.group_state import GroupState
from qim_writer.commands.states import ConversationQuery, ConversationState, PersonStates
from qim_writer.commands.trimming import Trimmer
from qim_writer.domain.policy import GroupSettings, Limits
from qim_writer.storage import GroupSnapshot


@dataclass
class Room:
    """People who chat, and the commands that change a group without a seq."""

    chat: Chat
    groups: GroupState
    own_clear: OwnClear
    persons: PersonStates
    stores: RedisStores
    states: RedisGroupStateStore

    def another_writer(self, limits: Limits | None = None) -> GroupState:
        """The same commands as a second writer process has them, with queues of its own."""
        trimmer = Trimmer(self.states, buckets=self.stores.buckets)
        return GroupState(self.stores.membership, self.states, trimmer, limits or self.chat.limits)

    async def preset_column(self, group: ConversationId, sender: UserId, head: int) -> None:
        """The sender column as if one person had written everything up to the head; the records are left out."""
        facts = await self.stores.membership.facts(self.chat.of(group), sender)
        assert facts is not None
        assert facts.person is not None
        keys = self.stores.keys(group)
        for first in range(0, head, SENDER_SEGMENT):
            column = facts.person.ordinal * min(SENDER_SEGMENT, head - first)
            await self.stores.call("SET", keys.msgsnd(first // SENDER_SEGMENT), column)
        await self.stores.call("SET", keys.msgcseq, head)

    async def transfer(
        self, group: ConversationId, to: UserId, by: UserId | None = None, *, request_id: bytes = b""
    ) -> GroupSnapshot:
        """TransferOwnership, by an operator or an end user."""
        who = acting(by) if by else OPERATOR
        return (await self.groups.transfer(who, request_id or uuid7(), group, to))[1]

    async def floor(
        self, group: ConversationId, upto: int, by: UserId | None = None, *, request_id: bytes = b""
    ) -> GroupSnapshot:
        """ClearGroupHistory, by an operator or an end user."""
        who = acting(by) if by else OPERATOR
        return (await self.groups.clear_group(who, request_id or uuid7(), group, upto))[1]

    async def freeze(self, group: ConversationId, *, frozen: bool = True) -> GroupSnapshot:
        """FreezeGroup."""
        return (await self.groups.freeze(OPERATOR, uuid7(), group, frozen=frozen))[1]

    async def set(self, group: ConversationId, settings: GroupSettings, *, request_id: bytes = b"") -> GroupSnapshot:
        """UpdateGroupSettings."""
        return (await self.groups.update_settings(OPERATOR, request_id or uuid7(), group, settings))[1]

    async def clear(self, person: UserId, group: ConversationId, upto: int, *, request_id: bytes = b"") -> int:
        """ClearHistory."""
        return await self.own_clear(acting(person), request_id or uuid7(), group, upto)

    async def state(
        self, person: UserId, group: ConversationId, *, read: int = 0, hidden: int | None = None
    ) -> ConversationState:
        """ConversationStates of one conversation."""
        query = ConversationQuery(group, read, hidden)
        ((_, state),) = await self.persons.conversations(self.chat.tenant, person, [query], with_preview=True)
        assert state is not None
        return state

    async def named(self, person: UserId, group: ConversationId) -> list[int]:
        """GetMessages of the first twenty seqs."""
        found = await self.chat.history.named(acting(person), group, range(1, 21))
        return [record.seq for record in found.messages]

    async def bodies(self, person: UserId, group: ConversationId) -> list[int]:
        """The seqs that the person's mailbox returns with their bodies."""
        reader = DeliveredPages(self.stores.membership, self.stores.messages)
        page = await reader.page(self.chat.tenant, person, group, 0, 1000)
        return [entry.seq for entry in page.entries if hasattr(entry, "seq")]


@pytest_asyncio.fixture
async def room(valkey_session: ValkeyServer) -> AsyncIterator[Room]:
    """An empty server."""
    async with redis_stores(valkey_session) as stores:
        limits = Limits(broadcast_max_members=5, fanout_max_members=8)
        chat = Chat(stores, limits=limits)
        states = RedisGroupStateStore(stores.store)
        queues = GroupQueues()
        chat.changes = MemberChanges(stores.membership, limits, queues)
        groups = GroupState(stores.membership, states, Trimmer(states, buckets=stores.buckets), limits, queues)
        persons = PersonStates(stores.membership, stores.messages)
        yield Room(chat, groups, OwnClear(stores.membership, states), persons, stores, states)

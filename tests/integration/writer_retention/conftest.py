"""Groups whose messages are as old as a test says, and the rounds that look at their age."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from tests.support.chat import ANA, BEN, Chat
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.ids import ConversationId, uuid7
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.group_state import RedisGroupStateStore
from qim_writer.commands.delivered import DeliveredPages
from qim_writer.commands.group_state import GroupState
from qim_writer.commands.retention_run import RetentionRuns
from qim_writer.commands.states import PersonStates
from qim_writer.commands.trimming import MS_PER_DAY, Retention, Trimmer
from qim_writer.domain.policy import GroupSettings

NOW_MS = 1_800_000_000_000
"""When the tests play; long after the true present, as far as they know."""

DAYS = 7
_TIME = slice(8, 14)
_SAMPLE_SEQS = 1_000
_SAMPLE_MS = 3_600_000
_BUCKETS = 4


@dataclass
class Clock:
    """An injected clock: `ms` is what it says, `elapsed` goes on whatever it is set to."""

    ms: int = NOW_MS
    elapsed_ms: int = 0

    def seconds(self) -> float:
        """The wall clock."""
        return self.ms / 1000

    def elapsed(self) -> float:
        """The clock that nobody sets."""
        return self.elapsed_ms / 1000

    def wait(self, ms: int) -> None:
        """Time goes by."""
        self.ms += ms
        self.elapsed_ms += ms


@dataclass
class Keeper:
    """A writer's part in retention: its settings, its rounds and its removals."""

    chat: Chat
    stores: RedisStores
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.states = RedisGroupStateStore(self.stores.store)
        self.trimmer = Trimmer(self.states, _BUCKETS)
        self.groups = GroupState(self.stores.membership, self.states, self.trimmer, self.chat.limits)
        self.people = PersonStates(self.stores.membership, self.stores.messages)
        self.delivered = DeliveredPages(self.stores.membership, self.stores.messages)
        self.retention = Retention(
            self.states,
            self.trimmer,
            _BUCKETS,
            interval_seconds=3600,
            clock=self.clock.seconds,
            elapsed=self.clock.elapsed,
        )
        self.runs = RetentionRuns(self.states, self.retention, None, self.chat.tokens, _BUCKETS)

    async def create(self, *, days: int = DAYS, **settings: Any) -> ConversationId:
        """Ana's group with Ben, whose messages are kept so many days (0: for ever)."""
        return await self.chat.create(ANA, BEN, retention_days=days, **settings)

    async def keep_for(self, group: ConversationId, days: int) -> None:
        """An operator changes how long messages are kept."""
        settings = GroupSettings(member_limit=self.chat.limits.member_limit, retention_days=days)
        await self.groups.update_settings(self.chat.operator, uuid7(), group, settings)

    async def floor(self, group: ConversationId) -> int:
        """The group's floor."""
        facts = await self.stores.membership.facts(self.chat.of(group), ANA)
        assert facts is not None
        return facts.floor

    async def stored(self, group: ConversationId) -> list[int]:
        """The seqs that have a record."""
        return sorted(int(seq) for seq in await self.stores.call("HKEYS", self.stores.keys(group).msgrec))

    async def trim(self, group: ConversationId) -> None:
        """The whole removal."""
        while await self.states.trim(self.chat.of(group)):
            pass

    async def write(self, group: ConversationId, times: Sequence[int]) -> None:
        """Messages by Ana that were committed at these times (ms, ascending); the first in the group."""
        for start in range(0, len(times), 200):
            await self.chat.send_many(len(times[start : start + 200]), ANA, group)
        await self.date(group, times)

    async def date(self, group: ConversationId, times: Sequence[int]) -> None:
        """Every seq from 1 gets its time, and the samples are those that the commit would have taken."""
        keys = self.stores.keys(group)
        sampled = 0
        await self.stores.call("DEL", keys.msgts)
        for seq, time in enumerate(times, 1):
            record = await self.stores.call("HGET", keys.msgrec, seq)
            dated = record[: _TIME.start] + struct.pack(">Q", time)[2:] + record[_TIME.stop :]
            await self.stores.call("HSET", keys.msgrec, seq, dated)
            if seq % _SAMPLE_SEQS == 0 or time - sampled >= _SAMPLE_MS:
                await self.stores.call("ZADD", keys.msgts, time, seq)
                sampled = time
        assert [record.time_ms for record in await self.records(group, len(times))] == list(times)

    async def records(self, group: ConversationId, head: int) -> list[Any]:
        """The records up to the head."""
        return await self.stores.messages.records(self.chat.of(group), range(1, head + 1))


def ago(days: float, ms: int = 0) -> int:
    """So long before the present, in ms since the epoch."""
    return NOW_MS - int(days * MS_PER_DAY) - ms


@pytest_asyncio.fixture
async def stores(valkey_session: ValkeyServer) -> AsyncIterator[RedisStores]:
    """Stores on an empty server."""
    async with redis_stores(valkey_session, buckets=_BUCKETS) as opened:
        yield opened


@pytest.fixture
def chat(stores: RedisStores) -> Chat:
    """The writer's commands."""
    return Chat(stores)


@pytest.fixture
def keeper(chat: Chat, stores: RedisStores) -> Keeper:
    """The first writer."""
    return Keeper(chat, stores)

"""Unread over long spans, counted from the sender column, against a look at every seq (design.md invariant 7)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pytest
import pytest_asyncio
from tests.support.chat import ANA, BEN, TENANT, Chat, acting
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.ids import ConversationId, uuid7
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.group_state import RedisGroupStateStore
from qim_writer.commands.clear_history import OwnClear
from qim_writer.commands.states import ConversationQuery, PersonStates
from qim_writer.domain.visible import UnreadSpan

pytestmark = pytest.mark.server

HEAD = 200_000
SEGMENT = 65_536
CONTROL = b"\0\0\0"
SENDERS: Sequence[Sequence[bytes]] = (
    # Taking turns; many; and ordinals that also stand across the borders of others.
    (b"\0\0\1", b"\0\0\2"),
    tuple(number.to_bytes(3, "big") for number in range(1, 300)),
    (b"\1\1\1", b"\0\1\1", b"\1\1\0", b"\0\0\1", b"\1\0\0", b"\0\1\0", b"\1\0\1"),
)


@pytest_asyncio.fixture
async def stores(valkey_session: ValkeyServer) -> AsyncIterator[RedisStores]:
    """Stores on an empty server."""
    async with redis_stores(valkey_session) as opened:
        yield opened


@dataclass
class Column:
    """A sender column that was written in advance: who sent each seq, from 1."""

    senders: list[bytes]
    _upto: dict[bytes, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, senders: Sequence[bytes], seed: int) -> Column:
        """At random, one in fifty a control message."""
        chance = random.Random(seed)  # noqa: S311  no secret
        return cls([CONTROL if chance.random() < 0.02 else chance.choice(senders) for _ in range(HEAD)])

    async def store(self, stores: RedisStores, group: ConversationId) -> None:
        """Put it under the keys of a conversation."""
        keys = stores.keys(group)
        for segment in range(HEAD // SEGMENT + 1):
            part = self.senders[segment * SEGMENT : (segment + 1) * SEGMENT]
            await stores.call("SET", keys.msgsnd(segment), b"".join(part))
        control = [seq for seq, sender in enumerate(self.senders, 1) if sender == CONTROL]
        for start in range(0, len(control), 1000):
            pairs = [part for seq in control[start : start + 1000] for part in (seq, b"%d" % seq)]
            await stores.call("ZADD", keys.msgctl, *pairs)
        await stores.call("SET", keys.msgcseq, HEAD)

    def unread(self, lower: int, upper: int, own: bytes) -> int:
        """Every seq was looked at; `_upto` remembers how many counted before each."""
        if own not in self._upto:
            counted = (sender not in (CONTROL, own) for sender in self.senders)
            self._upto[own] = list(accumulate(counted, initial=0))
        return max(self._upto[own][upper] - self._upto[own][lower], 0)


def edges(chance: random.Random) -> list[tuple[int, int]]:
    """Spans of all lengths, those around the borders of segments and calls included."""
    borders = [0, 1, SEGMENT // 2, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT, 3 * SEGMENT, HEAD - 1, HEAD]
    spans = [(lower, upper) for lower in borders for upper in borders]
    return spans + [(chance.randrange(HEAD), chance.randrange(HEAD)) for _ in range(40)]


@pytest.mark.parametrize("senders", SENDERS, ids=["two", "three hundred", "overlapping"])
async def test_any_span_is_counted_exactly(stores: RedisStores, senders: Sequence[bytes]) -> None:
    group = await Chat(stores).create(ANA)
    column = Column.of(senders, len(senders))
    await column.store(stores, group)
    spans = edges(random.Random(5))  # noqa: S311  no secret
    for own in senders[:3]:
        asked = [(group, UnreadSpan(lower, upper), own) for lower, upper in spans]
        assert await stores.messages.unread(TENANT, asked) == [
            column.unread(lower, upper, own) for lower, upper in spans
        ]


async def test_clearing_rejoining_and_a_floor_move_the_lower_bound(stores: RedisStores) -> None:
    chat = Chat(stores)
    states = RedisGroupStateStore(stores.store)
    people = PersonStates(stores.membership, stores.messages)
    group = await chat.create(ANA, BEN)
    facts = await stores.membership.facts(chat.of(group), BEN)
    assert facts is not None
    assert facts.person is not None
    own = facts.person.ordinal
    column = Column.of((b"\0\0\1", b"\0\0\2"), 9)
    await column.store(stores, group)

    async def unread(read: int) -> int:
        ((_, state),) = await people.conversations(TENANT, BEN, [ConversationQuery(group, read)], with_preview=False)
        assert state is not None
        return state.unread

    assert await unread(0) == column.unread(0, HEAD, own)
    await OwnClear(stores.membership, states)(acting(BEN), uuid7(), group, 50_000)
    assert [await unread(read) for read in (0, 70_000)] == [column.unread(at, HEAD, own) for at in (50_000, 70_000)]
    assert await states.raise_floor(chat.of(group), 90_000, facts.policy, "test", None) is not None
    while await states.trim(chat.of(group)):
        pass
    assert [await unread(read) for read in (0, 95_000)] == [column.unread(at, HEAD, own) for at in (90_000, 95_000)]
    await chat.leave(BEN, group)
    assert await unread(0) == column.unread(90_000, HEAD, own), "up to the leave"
    await chat.add(group, BEN)
    assert await unread(0) == 0, "what came before the new stay does not count"
    await chat.send_many(200, ANA, group)
    await chat.send_many(100, BEN, group)
    assert [await unread(read) for read in (0, HEAD + 102)] == [200, 100]

"""Frozen versions read page by page while members come and go in between, against an oracle that remembers each version
as a set (design.md invariant 3)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from tests.support.chat import TENANT, Chat, user
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.errors import MembershipVersionExpired
from qim_common.ids import ConversationId, MembershipOp, UserId
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis import membership

pytestmark = pytest.mark.server

OWNER = user(1)
EVERYBODY = [user(number) for number in range(2, 90)]
BUCKETS = 8


@pytest_asyncio.fixture
async def stores(valkey_session: ValkeyServer) -> AsyncIterator[RedisStores]:
    """Stores on an empty server, with so few shards that each has many people."""
    async with redis_stores(valkey_session, buckets=BUCKETS) as opened:
        yield opened


@pytest.fixture
def chat(stores: RedisStores) -> Chat:
    """The writer's commands."""
    return Chat(stores)


@dataclass
class Oracle:
    """A group, and each of its versions as a set."""

    chat: Chat
    group: ConversationId
    versions: list[frozenset[UserId]] = field(default_factory=lambda: [frozenset({OWNER})])

    @property
    def now(self) -> frozenset[UserId]:
        """The present members."""
        return self.versions[-1]

    async def change(self, chance: random.Random, most: int = 12) -> None:
        """Some people join, are removed, or one leaves."""
        op = chance.choice((MembershipOp.JOIN, MembershipOp.REMOVE, MembershipOp.LEAVE))
        people = chance.sample(EVERYBODY, chance.randint(1, most))
        if op is MembershipOp.JOIN:
            await self.chat.add(self.group, *people)
            after = self.now | set(people)
        elif op is MembershipOp.REMOVE:
            await self.chat.remove(self.group, *people)
            after = self.now - set(people)
        else:
            people = [person for person in people if person in self.now][:1]
            for person in people:
                await self.chat.leave(person, self.group)
            after = self.now - set(people)
        if after != self.now:
            self.versions.append(after)

    def entries(self, version: int, shard: int | None) -> list[bytes]:
        """What a reader of the version, or of one shard of it, must get."""
        shards = {person: self.chat.stores.store.shard(TENANT, person) for person in self.versions[version - 1]}  # type: ignore[attr-defined]
        found = sorted(shards[person] + person for person in shards)
        return [entry for entry in found if shard is None or int.from_bytes(entry[:2], "big") == shard]


@dataclass
class Reading:
    """One reader, somewhere in the middle of a version."""

    version: int
    shard: int | None
    pages: AsyncIterator[list[bytes]]
    found: list[bytes] = field(default_factory=list)

    async def turn(self) -> bool:
        """Reads one page; False after the last one."""
        try:
            page = await anext(self.pages)
        except StopAsyncIteration:
            return False
        assert page == sorted(page)
        self.found += page
        return True


@pytest.mark.parametrize("seed", range(30))
async def test_readers_get_the_members_at_their_version(
    chat: Chat, stores: RedisStores, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311  no secret
    monkeypatch.setattr(membership, "PAGE", chance.choice((1, 3, 7, 20)))
    monkeypatch.setattr(membership, "_CHANGES_PER_READ", chance.choice((1, 4, 100)))
    oracle = Oracle(chat, await chat.create(OWNER))
    readers: list[Reading] = []
    finished = 0
    for _ in range(60):
        for _ in range(chance.choice((0, 1, 1, 4))):
            await oracle.change(chance)
        if len(readers) < 4:
            version = chance.randint(max(1, len(oracle.versions) - chance.choice((0, 3, 100))), len(oracle.versions))
            shard = chance.choice((None, None, chance.randrange(BUCKETS)))
            pages = stores.membership.members_at(chat.of(oracle.group), version, shard)
            readers.append(Reading(version, shard, pages))
        reader = chance.choice(readers)
        if not await reader.turn():
            assert reader.found == oracle.entries(reader.version, reader.shard), f"seed {seed}"
            readers.remove(reader)
            finished += 1
    for reader in readers:
        while await reader.turn():
            await oracle.change(chance)
        assert reader.found == oracle.entries(reader.version, reader.shard), f"seed {seed}"
    assert finished + len(readers) > 0


async def test_hundreds_of_changes_between_two_pages(
    chat: Chat, stores: RedisStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(1)  # noqa: S311  no secret
    monkeypatch.setattr(membership, "PAGE", 10)
    oracle = Oracle(chat, await chat.create(OWNER))
    await chat.add(oracle.group, *EVERYBODY[:60])
    oracle.versions.append(oracle.now | set(EVERYBODY[:60]))
    reader = Reading(2, None, stores.membership.members_at(chat.of(oracle.group), 2, None))
    more, turns = True, 0
    while more:
        for _ in range(130 if turns in (0, 2) else 2):
            await oracle.change(chance, most=3)
        more = await reader.turn()
        turns += 1
    assert reader.found == oracle.entries(2, None)


async def test_a_reader_is_told_when_the_changes_it_needs_have_gone(
    chat: Chat, stores: RedisStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "PAGE", 5)
    group = await chat.create(OWNER)
    await chat.add(group, *EVERYBODY[:30])
    reader = Reading(2, None, stores.membership.members_at(chat.of(group), 2, None))
    assert await reader.turn()
    await chat.remove(group, EVERYBODY[40], EVERYBODY[0])
    await stores.forget_dispatch(group)
    await chat.add(group, EVERYBODY[41])
    await chat.add(group, EVERYBODY[42])
    with pytest.raises(MembershipVersionExpired):
        await reader.turn()
    assert reader.found == Oracle(chat, group, [frozenset({OWNER, *EVERYBODY[:30]})]).entries(1, None)[:5]

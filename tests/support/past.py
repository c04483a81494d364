"""A random past of a few conversations, which is remembered: every request with its first answer, to be repeated on
other stores, and every key, to be compared."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.chat import Chat, acting, user
from tests.support.redis_stores import RedisStores

from qim_common.enums import LeaverHistory, NewcomerPolicy, RejoinHistory
from qim_common.errors import PermissionDenied
from qim_common.ids import ConversationId, UserId, uuid7
from qim_common.keys import ConversationKeys
from qim_writer.backends.redis.group_state import RedisGroupStateStore
from qim_writer.backends.tiered import TieredMessageStore
from qim_writer.commands.clear_history import OwnClear
from qim_writer.commands.group_state import GroupState
from qim_writer.commands.history import Direction
from qim_writer.commands.states import ConversationQuery, PersonStates
from qim_writer.commands.trimming import Trimmer
from qim_writer.domain.policy import GroupSettings, Limits
from qim_writer.domain.seq_buckets import SEQS_PER_BUCKET
from qim_writer.storage_archive import MessageArchive

PEOPLE = tuple(user(number) for number in range(1, 13))
LIMITS = Limits(broadcast_max_members=4, fanout_max_members=6)


class World:
    """The writer's commands on one Valkey with an archive."""

    def __init__(self, stores: RedisStores, archive: MessageArchive, tenant: Any) -> None:
        self.stores = RedisStores(
            stores.membership,
            TieredMessageStore(stores.store, archive),
            stores.commits,
            stores.buckets,
            stores.store,
        )
        self.chat = Chat(self.stores, limits=LIMITS, tenant=tenant)
        self.states = RedisGroupStateStore(stores.store, archive_bucket=SEQS_PER_BUCKET)
        self.trimmer = Trimmer(self.states, stores.buckets)
        self.groups = GroupState(stores.membership, self.states, self.trimmer, LIMITS)
        self.clear = OwnClear(stores.membership, self.states)
        self.persons = PersonStates(stores.membership, self.stores.messages)


Deed = Callable[[World], Awaitable[Any]]


@dataclass
class Past:
    """What happened, in its order. `answers` are the first ones; `members` who was in a group after each version."""

    random: random.Random
    deeds: list[Deed] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    conversations: set[ConversationId] = field(default_factory=set)
    inside: dict[ConversationId, list[UserId]] = field(default_factory=dict)
    outside: dict[ConversationId, list[UserId]] = field(default_factory=dict)
    owners: dict[ConversationId, UserId] = field(default_factory=dict)
    frozen: set[ConversationId] = field(default_factory=set)

    async def do(self, world: World, deed: Deed) -> Any:
        """Carry one out, and remember it."""
        answer = await deed(world)
        self.deeds.append(deed)
        self.answers.append(answer)
        return answer

    async def begin(self, world: World) -> ConversationId:
        """A new group."""
        people = self.random.sample(PEOPLE, self.random.randint(1, 8))
        request, settings = uuid7(), self._settings()
        group: ConversationId
        group, _ = await self.do(
            world,
            lambda w: w.chat.create_with_answer(people[0], *people[1:], request_id=request, settings=settings),
        )
        self.conversations.add(group)
        self.inside[group], self.outside[group] = people, []
        self.owners[group] = people[0]
        return group

    async def step(self, world: World) -> None:
        """One thing happens."""
        group = self.random.choice(list(self.inside))
        choices: list[Callable[[World, ConversationId], Awaitable[None]]] = [
            *[self.send] * 5,
            *[self.come] * 3,
            *[self.go] * 3,
            self.direct,
            self.settle,
            self.freeze,
            self.transfer,
            self.raise_floor,
            self.clear_own,
        ]
        await self.random.choice(choices)(world, group)

    async def send(self, world: World, group: ConversationId, most: int = 30) -> None:
        """Messages of some members."""
        if group in self.frozen or not self.inside[group]:
            return
        batch: list[tuple[UserId, bytes, dict[str, Any]]] = [
            (
                self.random.choice(self.inside[group]),
                bytes(group),
                {
                    "message_id": uuid7() if self.random.random() < 0.8 else self.random.randbytes(16),
                    "body": self.random.randbytes(self.random.choice((0, 3, 200, 5_000))),
                    "custom_type": self.random.choice(("", "note")),
                },
            )
            for _ in range(self.random.randint(1, most))
        ]
        await self.do(world, lambda w: w.chat.outcomes(*batch))

    async def direct(self, world: World, _: ConversationId) -> None:
        """Messages between two, or to oneself."""
        one, other = self.random.choice(PEOPLE), self.random.choice(PEOPLE)
        batch: list[tuple[UserId, bytes, dict[str, Any]]] = [
            (one, b"", {"peer": other, "message_id": uuid7(), "body": b"%d" % n})
            for n in range(self.random.randint(1, 4))
        ]
        await self.do(world, lambda w: w.chat.outcomes(*batch))

    async def come(self, world: World, group: ConversationId) -> None:
        """People join, some of them again."""
        absent = [person for person in PEOPLE if person not in self.inside[group]]
        if group in self.frozen or not absent:
            return
        people = self.random.sample(absent, self.random.randint(1, min(3, len(absent))))
        request = uuid7()
        await self.do(world, lambda w: w.chat.add(group, *people, request_id=request))
        if not self.inside[group]:
            self.owners[group] = people[0]
        self.inside[group] = self.inside[group] + people

    async def go(self, world: World, group: ConversationId) -> None:
        """People leave or are removed; the owner as the last one."""
        present = self.inside[group]
        if not present:
            return
        others = [person for person in present if person != self.owners[group]] or present
        request = uuid7()
        if self.random.random() < 0.4:
            gone = [self.random.choice(others)]
            await self.do(world, lambda w: w.chat.leave(gone[0], group, request_id=request))
        else:
            gone = self.random.sample(others, self.random.randint(1, min(2, len(others))))
            how = self.random.choice((None, LeaverHistory.NONE, LeaverHistory.UNTIL_LEFT))
            await self.do(world, lambda w: w.chat.remove(group, *gone, request_id=request, leaver=how))
        self.inside[group] = [person for person in present if person not in gone]
        self.outside[group] = [*self.outside[group], *gone]

    async def settle(self, world: World, group: ConversationId) -> None:
        """Other settings."""
        request, settings = uuid7(), self._settings()
        await self.do(world, lambda w: w.groups.update_settings(w.chat.operator, request, group, settings))

    async def freeze(self, world: World, group: ConversationId) -> None:
        """Frozen, or not any more."""
        request, frozen = uuid7(), group not in self.frozen
        await self.do(world, lambda w: w.groups.freeze(w.chat.operator, request, group, frozen=frozen))
        self.frozen ^= {group}

    async def transfer(self, world: World, group: ConversationId) -> None:
        """Another owner."""
        others = [person for person in self.inside[group] if person != self.owners[group]]
        if not others:
            return
        request, owner = uuid7(), self.random.choice(others)
        await self.do(world, lambda w: w.groups.transfer(w.chat.operator, request, group, owner))
        self.owners[group] = owner

    async def raise_floor(self, world: World, group: ConversationId) -> None:
        """The floor rises to somewhere."""
        head = await world.chat.head(group)
        if not head or self.random.random() < 0.5:
            return
        request, upto = uuid7(), self.random.randint(1, head)
        await self.do(world, lambda w: w.groups.clear_group(w.chat.operator, request, group, upto))

    async def trim(self, world: World) -> None:
        """What lies below the floors goes. Not before it is archived: the archiver reads large bodies from Redis."""
        for group in self.inside:
            while await world.states.trim(world.chat.of(group)):
                pass

    async def clear_own(self, world: World, group: ConversationId) -> None:
        """Somebody clears what they see."""
        if not self.inside[group]:
            return
        person, request = self.random.choice(self.inside[group]), uuid7()
        upto = self.random.randint(1, max(await world.chat.head(group), 1))
        before = await world.stores.membership.facts(world.chat.of(group), person)
        try:
            await self.do(world, lambda w: w.clear(acting(person, w.chat.tenant), request, bytes(group), upto))
        except PermissionDenied:
            return
        after = await world.stores.membership.facts(world.chat.of(group), person)
        if before is not None and after is not None and before.revision == after.revision:
            # What had no effect is not in the archive (docs/recovery.md).
            self.deeds.pop()
            self.answers.pop()

    def _settings(self) -> GroupSettings:
        newcomer = self.random.choice(list(NewcomerPolicy))
        return GroupSettings(
            member_limit=self.random.randint(20, 1000),
            newcomer=newcomer,
            last_n=self.random.randint(1, 30) if newcomer is NewcomerPolicy.LAST_N else 0,
            rejoin=self.random.choice(list(RejoinHistory)),
            leaver=self.random.choice(list(LeaverHistory)),
            broadcast_max_members=self.random.choice((0, 2, 3)),
            retention_days=self.random.choice((0, 0, 30)),
        )

    async def repeated(self, world: World) -> list[Any]:
        """What every request is answered when it is repeated."""
        return [await deed(world) for deed in self.deeds]


async def sights(world: World, conversations: set[ConversationId]) -> dict[str, Any]:
    """Everything that anybody is answered about these conversations."""
    found: dict[str, Any] = {}
    chat = world.chat
    for conversation in sorted(conversations):
        place = chat.of(conversation)
        for person in PEOPLE:
            facts = await world.stores.membership.facts(place, person)
            found[f"facts {conversation.hex()} {person.hex()}"] = facts
            if facts is None or facts.person is None:
                continue
            for version in range(1, facts.version + 1):
                name = f"members {conversation.hex()} {version}"
                if conversation[0] == 2 and name not in found:
                    found[name] = sorted(await chat.at(conversation, version))
            for cursor in (0, facts.head // 2):
                states = await world.persons.conversations(
                    chat.tenant, person, [ConversationQuery(conversation, cursor, 0)], with_preview=True
                )
                found[f"state {conversation.hex()} {person.hex()} {cursor}"] = states
            try:
                page = await chat.history.page(acting(person, chat.tenant), conversation, 1, Direction.NEWER, 1000)
                found[f"history {conversation.hex()} {person.hex()}"] = page
            except PermissionDenied as error:
                found[f"history {conversation.hex()} {person.hex()}"] = repr(error)
        if conversation[0] == 2:
            found[f"log {conversation.hex()}"] = await world.states.state_records(place, 0, 10_000)
            found[f"events {conversation.hex()}"] = await world.stores.messages.events(place, 0, 10_000)
    return found


async def keys_of(world: World, conversation: ConversationId) -> dict[str, Any]:
    """A conversation's keys as they must come back; what is only somewhere else, or sampled otherwise, is left out."""
    stores, k = world.stores, world.stores.keys(conversation, world.chat.tenant)
    meta = await stores.hash(k.grpmeta)
    for name in (b"ts", b"chgat", b"trimmed", b"gone", b"gonetime", b"evicted", b"agone", b"aseq", b"arev"):
        meta.pop(name, None)
    trimmed = int(meta[b"floor"])
    return {
        "grpmeta": meta,
        "grpcur": await stores.hash(k.grpcur),
        "grpstays": await stores.hash(k.grpstays),
        "grpmem": await stores.call("ZRANGE", k.grpmem, 0, -1),
        "grpchg": await stores.call("XRANGE", k.grpchg, "-", "+"),
        "grplog": await stores.call("XRANGE", k.grplog, "-", "+"),
        "msgcseq": int(await stores.call("GET", k.msgcseq) or 0),
        "msgctl": await stores.call("ZRANGE", k.msgctl, 0, -1, "WITHSCORES"),
        "msgsnd": await _column(stores, k, trimmed),
    }


async def _column(stores: RedisStores, k: ConversationKeys, floor: int) -> list[bytes]:
    """The sender column, of what lies above the floor."""
    found = []
    head = int(await stores.call("GET", k.msgcseq) or 0)
    for segment in range(floor // 65_536, head // 65_536 + 1):
        column: bytes = await stores.call("GET", k.msgsnd(segment)) or b""
        found.append(column[max(floor - segment * 65_536, 0) * 3 :])
    return found

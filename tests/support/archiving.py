"""Random life in a few conversations, and a comparison of the archive with what Redis holds, byte for byte."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.chat import ANA, Chat, user
from tests.support.redis_stores import RedisStores

from qim_common.cassandra import CassandraSession, Statement, signed_tenant
from qim_common.errors import QimError
from qim_common.ids import ConversationId, UserId
from qim_common.positions import Position
from qim_common.redis import verify_topology
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.backends.cassandra.group_log import CassandraGroupLog
from qim_writer.backends.redis.outbox import RedisOutbox
from qim_writer.domain.seq_buckets import seq_bucket

SIZES: Final = (0, 1, 20, 200, 2_000, 3_990, 4_010, 20_000)
_STORED: Final = Statement(
    "test_stored", "SELECT seq, record FROM messages WHERE tenant_id = ? AND conversation_id = ? AND seq_bucket = ?"
)


@dataclass
class Life:
    """People who write, come and go in groups and direct conversations of one tenant."""

    chat: Chat
    random: random.Random
    groups: dict[ConversationId, list[UserId]] = field(default_factory=dict)
    conversations: set[ConversationId] = field(default_factory=set)
    strangers: int = 100

    async def begin(self, groups: int) -> None:
        """New groups of four."""
        for _ in range(groups):
            people = [self._stranger() for _ in range(4)]
            group = await self.chat.create(people[0], *people[1:])
            self.groups[group] = people
            self.conversations.add(group)

    async def send(self, calls: int, messages: int = 20) -> None:
        """Batches of messages of all sizes into groups and between pairs."""
        for _ in range(calls):
            batch: list[tuple[UserId, bytes, dict[str, Any]]] = []
            for _ in range(self.random.randint(1, messages)):
                group = self.random.choice(list(self.groups))
                sender = self.random.choice(self.groups[group])
                body = self.random.randbytes(self.random.choice(SIZES))
                if self.random.random() < 0.1:
                    batch.append((sender, b"", {"peer": ANA, "body": body}))
                else:
                    batch.append((sender, bytes(group), {"body": body, "custom_type": self.random.choice(["", "x"])}))
            for outcome in await self.chat.outcomes(*batch):
                if isinstance(outcome, QimError):
                    raise outcome

    async def change(self, most: int = 8) -> None:
        """Somebody comes or goes, also more at once than a dispatch entry carries."""
        group = self.random.choice(list(self.groups))
        people = self.groups[group]
        if self.random.random() < 0.6 or len(people) < 3:
            several = [self._stranger() for _ in range(self.random.choice((1, 2, most)))]
            await self.chat.add(group, *several)
            people += several
        else:
            gone = self.random.sample(people[1:], self.random.randint(1, min(len(people) - 1, most)))
            await self.chat.remove(group, *gone)
            self.groups[group] = [person for person in people if person not in gone]

    async def go_on(self, steps: int) -> None:
        """Some of everything."""
        for _ in range(steps):
            await self.send(self.random.randint(1, 3))
            await self.change(most=self.random.choice((3, 300)))

    def _stranger(self) -> UserId:
        self.strangers += 1
        return user(self.strangers)


async def with_archive(stores: RedisStores) -> RedisOutbox:
    """From now on the stores have an archive; their outbox."""
    await stores.begin_archive()
    instance = stores.store.instances[0]
    await verify_topology([instance], stores.store.topology)
    return RedisOutbox(instance, stores.store.topology)


async def all_conversations(stores: RedisStores) -> list[tuple[int, ConversationId]]:
    """Tenant and id of everything that has a head or was created."""
    keys = await stores.call("KEYS", "*:grpmeta")
    parts = [key.decode().split(":") for key in keys]
    return sorted((int(tenant), ConversationId(bytes.fromhex(conversation))) for tenant, _, conversation, _ in parts)


async def differences(stores: RedisStores, session: CassandraSession, installation: str, chat: Chat) -> list[str]:
    """What the archive holds of the tenant otherwise than Redis, in words; empty where everything is archived.

    Records byte for byte, the rows of the group log, the head in the index at most the true one, the archived head and
    revision on the instance, and the counters of the outbox."""
    found: list[str] = []
    archive = CassandraArchive(session, installation_id=installation, buckets=stores.buckets)
    log = CassandraGroupLog(session)
    for _, conversation in await all_conversations(stores):
        place = chat.of(conversation)
        keys = stores.keys(conversation, chat.tenant)
        name = conversation.hex()[:8]
        held = {int(seq): record for seq, record in (await stores.hash(keys.msgrec)).items()}
        head = int(await stores.call("GET", keys.msgcseq) or 0)
        stored: dict[int, bytes] = {}
        for bucket in range(seq_bucket(max(head, 1)) + 1):
            stored |= dict(await session.execute(_STORED, (signed_tenant(chat.tenant), conversation, bucket)))
        if stored != held:
            odd = sorted(seq for seq in stored.keys() | held.keys() if stored.get(seq) != held.get(seq))
            found.append(f"{name}: {len(odd)} of {head} records differ, first {odd[:5]}")
        meta = await stores.hash(keys.grpmeta)
        noted = (int(meta.get(b"aseq", 0)), int(meta.get(b"arev", 0)))
        if noted != (head, int(meta[b"revision"])):
            found.append(f"{name}: archived head and revision {noted}, head {head}, revision {int(meta[b'revision'])}")
        rows = [row async for page in log.rows(place) for row in page]
        if rows != await stores.group_rows(conversation, chat.tenant):
            found.append(f"{name}: {len(rows)} rows of the group log at revision {meta[b'revision']!r}")
        index = await archive.head(place)
        if index is None or index.seq > head:
            found.append(f"{name}: the index says {index}, the head is {head}")
    return found + await unfinished(stores)


async def unfinished(stores: RedisStores) -> list[str]:
    """Buckets whose log is not archived to its end, or whose counters say so."""
    found = []
    for bucket in stores.store.buckets:
        recorded, archived, arch = await stores.call("HMGET", bucket.meta, "rec", "arcd", "arch")
        newest = await stores.call("XREVRANGE", bucket.dispatch, "+", "-", "COUNT", 1)
        end = Position.parse(newest[0][0]) if newest else Position(0, 0)
        if Position.parse(arch) != end or int(recorded or 0) != int(archived or 0):
            found.append(f"bucket {bucket.bucket}: arch {arch}, end {end}, {recorded} recorded, {archived} archived")
    return found

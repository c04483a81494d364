"""The Redis instances of a writer, and where each conversation's keys live."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any, Literal

from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.keys import BucketKeys
from qim_common.redis import Argument, Instance, Script, load_script, submit
from qim_common.telemetry.metrics import writer_metrics
from qim_common.topology import Topology
from qim_writer.backends.redis.archive_waits import ArchiveWaits
from qim_writer.backends.redis.backlog import Backlog
from qim_writer.backends.redis.place import Place
from qim_writer.backends.redis.replication import ReplicatedLane
from qim_writer.backends.redis.status import Status

_KEPT_CONVERSATIONS = 200_000
_SHARD = struct.Struct(">H")

SEND = load_script("qim_writer", "send")
CREATE_GROUP = load_script("qim_writer", "create_group")
CHANGE_MEMBERS = load_script("qim_writer", "change_members")
PLAN_FACTS = load_script("qim_writer", "plan_facts")
CONVERSATION_FACTS = load_script("qim_writer", "conversation_facts")
MEMBERS_PAGE = load_script("qim_writer", "members_page")
COUNT_UNREAD = load_script("qim_writer", "count_unread")
STORED_ANSWER = load_script("qim_writer", "stored_answer")
CHANGE_POLICY = load_script("qim_writer", "change_policy")
RAISE_FLOOR = load_script("qim_writer", "raise_floor")
CLEAR_OWN = load_script("qim_writer", "clear_own")
TRIM_RECORDS = load_script("qim_writer", "trim_records")
RETENTION_FLOOR = load_script("qim_writer", "retention_floor")
NOTE_GONE = load_script("qim_writer", "note_gone")
SCRIPTS: tuple[Script, ...] = (
    SEND,
    CREATE_GROUP,
    CHANGE_MEMBERS,
    PLAN_FACTS,
    CONVERSATION_FACTS,
    MEMBERS_PAGE,
    COUNT_UNREAD,
    STORED_ANSWER,
    CHANGE_POLICY,
    RAISE_FLOOR,
    CLEAR_OWN,
    TRIM_RECORDS,
    RETENTION_FLOOR,
    NOTE_GONE,
)


AckLevel = Literal["log", "replicated", "archived"]
"""What an acknowledgement survives (storage.md, "Backends")."""


class RedisStore:
    """Instances, key placement and acknowledgement, shared by the parts of the backend.

    Args:
        instances: in the order of the topology.
        retention_ms: of the dispatch log.
        ack_level: when a commit is answered.
        replicas: how many have to confirm, with `replicated` only.
        outbox_max: messages and state entries of an instance that may wait for the archive; None: there is none.

    Attributes:
        lanes: with `replicated`, the way of mutating calls to each instance; else empty.
        waits: with `archived`, what waits on each instance; else empty.
        backlog: the gates towards the archive; None without an archive.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        topology: Topology,
        *,
        retention_ms: int,
        ack_level: AckLevel = "log",
        replicas: int = 0,
        outbox_max: int | None = None,
    ) -> None:
        self.instances = tuple(instances)
        self.topology = topology
        self.retention_ms = retention_ms
        self.buckets = tuple(BucketKeys(bucket) for bucket in range(topology.buckets))
        self.lanes: tuple[ReplicatedLane, ...] = ()
        self.waits: tuple[ArchiveWaits, ...] = ()
        if ack_level == "replicated":
            self.lanes = tuple(ReplicatedLane(instance, replicas) for instance in self.instances)
        elif ack_level == "archived":
            self.waits = tuple(ArchiveWaits(instance) for instance in self.instances)
            writer_metrics().archive_waiting.set_function(lambda: sum(waits.waiting for waits in self.waits))
        self.backlog = None if outbox_max is None else Backlog(self.instances, topology, self.buckets, outbox_max)
        self._places: dict[tuple[TenantId, ConversationId], Place] = {}

    @property
    def archived_head(self) -> bool:
        """Whether every reader's head is the archived one."""
        return bool(self.waits)

    def backlog_full(self, place: Place) -> bool:
        """Whether what makes the backlog of a conversation's instance grow is refused."""
        return self.backlog is not None and self.backlog.full(place.instance)

    def place(self, tenant: TenantId, conversation: ConversationId) -> Place:
        """Where a conversation lives."""
        found = self._places.get((tenant, conversation))
        if found is None:
            if len(self._places) >= _KEPT_CONVERSATIONS:
                self._places.pop(next(iter(self._places)))
            found = self._places[tenant, conversation] = Place(tenant, conversation, self.topology)
        return found

    def shard(self, tenant: TenantId, user: UserId) -> bytes:
        """A person's mailbox shard, u16be."""
        return _SHARD.pack(self.topology.person_bucket(tenant, user))

    def submit(
        self, instance: int, script: Script, keys: Sequence[Argument], args: Sequence[Argument]
    ) -> asyncio.Future[Any]:
        """Writes one script call now; the future reply fails as `run` does."""
        return submit(self.instances[instance], script, keys, args)

    async def run(self, instance: int, script: Script, keys: Sequence[Argument], args: Sequence[Argument]) -> Any:
        """One script call. Raises BackendUnavailable, also when the outcome is unknown."""
        return await self.submit(instance, script, keys, args)

    async def commit(self, place: Place, script: Script, keys: Sequence[Argument], args: Sequence[Argument]) -> Any:
        """One call of a script that changes something, and answers with a status first; returns when the change is
        acknowledged at the store's level. Raises BackendUnavailable, also when the outcome is unknown."""
        if self.lanes:
            return await self.lanes[place.instance].run(script, keys, args)
        reply = await self.submit(place.instance, script, keys, args)
        if self.waits and reply[0] == Status.OK:
            await self.waits[place.instance].present(place)
        return reply

    async def acknowledge(self, place: Place) -> None:
        """The same for an answer that was found stored: a repeat waits like the first call."""
        if self.lanes:
            await self.lanes[place.instance].confirm()
        elif self.waits:
            await self.waits[place.instance].present(place)

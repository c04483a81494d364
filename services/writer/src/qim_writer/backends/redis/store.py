"""The Redis instances of a writer, and where each conversation's keys live."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any

from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.keys import SENDER_SEGMENT, BucketKeys, ConversationKeys
from qim_common.redis import Argument, Instance, Script, load_script, submit
from qim_common.topology import Topology

_KEPT_CONVERSATIONS = 200_000
_SHARD = struct.Struct(">H")
_SCOPE = struct.Struct(">Q16s")

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
)


class Place:
    """Where one conversation lives; built once per conversation and kept.

    `segment` and `change_segment` are hints that scripts check. Sends and membership changes have one each: calls of
    the group commit that are on their way carry the hint of sends, so nobody else may move it.
    """

    __slots__ = (
        "bucket",
        "change_segment",
        "instance",
        "keys",
        "look_keys",
        "scope",
        "segment",
        "send_keys",
        "send_segment",
    )

    def __init__(self, tenant: TenantId, conversation: ConversationId, topology: Topology) -> None:
        self.bucket = topology.conversation_bucket(tenant, conversation)
        self.instance = topology.instance_of(self.bucket)
        self.keys = ConversationKeys(tenant, conversation, self.bucket)
        self.scope = _SCOPE.pack(tenant, conversation)
        self.segment = 0
        self.change_segment = 0
        self.send_segment = -1
        self.send_keys: tuple[str, ...] = ()
        self.look_keys: tuple[str, ...] = ()

    def saw_head(self, head: int) -> None:
        """Take note of the newest seq; what the next message needs follows from it. For the group commit only."""
        self.segment = head // SENDER_SEGMENT

    def changes_from(self, head: int) -> None:
        """The same for the next membership change."""
        self.change_segment = head // SENDER_SEGMENT

    def keys_of_send(self) -> tuple[str, ...]:
        """The keys of a run of sends, in the order of `send.lua`."""
        if self.send_segment != self.segment:
            k, s = self.keys, self.segment
            self.send_segment = s
            self.send_keys = (k.grpmeta, k.grpcur, k.msgcseq, k.msgrec, k.msgsnd(s), k.msgsnd(s + 1), k.msgts)
        return self.send_keys

    def keys_of_look(self) -> tuple[str, ...]:
        """The keys of `conversation_facts.lua` with the record at the head."""
        if not self.look_keys:
            k = self.keys
            self.look_keys = (k.grpmeta, k.grpcur, k.grpstays, k.msgcseq, k.msgrec)
        return self.look_keys


class RedisStore:
    """Instances and key placement, shared by the parts of the backend."""

    def __init__(self, instances: Sequence[Instance], topology: Topology, *, retention_ms: int) -> None:
        self.instances = tuple(instances)
        self.topology = topology
        self.retention_ms = retention_ms
        self.buckets = tuple(BucketKeys(bucket) for bucket in range(topology.buckets))
        self._places: dict[tuple[TenantId, ConversationId], Place] = {}

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

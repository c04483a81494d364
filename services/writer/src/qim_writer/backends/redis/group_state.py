"""Changes without a seq in Redis, and the removal of what lies at or below the floor."""

from __future__ import annotations

import struct
from typing import Any, Final

from qim_common.errors import IdempotencyKeyReused
from qim_common.idempotency import IdempotencyKey
from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.keys import sender_segment
from qim_common.records import StateChange
from qim_common.redis import Argument
from qim_writer.backends.redis.place import SCOPE
from qim_writer.backends.redis.status import Status, refusal
from qim_writer.backends.redis.store import (
    CHANGE_POLICY,
    CLEAR_OWN,
    RAISE_FLOOR,
    RETENTION_FLOOR,
    STORED_ANSWER,
    TRIM_RECORDS,
    RedisStore,
)
from qim_writer.domain.policy import Policy, PolicyChange
from qim_writer.domain.stored_values import LOGGED
from qim_writer.storage import AgeCut, Conversation, GroupSnapshot, StateRecord

_SNAPSHOT: Final = struct.Struct(">6s6sI6s6sI6s")
_DIGEST: Final = 8


def _u48(data: bytes) -> int:
    return int.from_bytes(data, "big")


class RedisGroupStateStore:
    """See `qim_writer.storage.GroupStateStore`.

    `archive_bucket`: seqs of one bucket of the archive, whose records below a floor go too, and without which none goes
    from Redis; 0 where there is none.
    """

    def __init__(self, store: RedisStore, *, archive_bucket: int = 0) -> None:
        self._store = store
        self._archive_bucket = archive_bucket

    async def stored_answer(self, conversation: Conversation, key: IdempotencyKey) -> bytes | None:
        """See the Protocol."""
        place = self._store.place(conversation.tenant, conversation.id)
        bucket = self._store.buckets[place.bucket]
        args = (key.field, key.time_ms)
        status, entry = await self._store.run(place.instance, STORED_ANSWER, (bucket.meta, *bucket.idem), args)
        if status != Status.OK:
            raise refusal(status)
        if entry is None:
            return None
        if entry[:_DIGEST] != key.digest:
            raise IdempotencyKeyReused
        await self._store.acknowledge(place)
        answer: bytes = entry[_DIGEST:]
        return answer

    async def change_policy(
        self, group: Conversation, change: PolicyChange, maker: str, key: IdempotencyKey
    ) -> GroupSnapshot | None:
        """See the Protocol."""
        place = self._store.place(group.tenant, group.id)
        bucket, k = self._store.buckets[place.bucket], place.keys
        keys = (k.grpmeta, k.grpcur, k.grplog, k.msgcseq, bucket.retained, bucket.meta, bucket.dispatch, *bucket.idem)
        args: tuple[Argument, ...] = (
            *(key.field, key.digest, key.time_ms, place.scope, change.before.pack(), change.after.pack()),
            *(int(change.what), maker, change.member or b"", int(change.after.settings.retention_days > 0)),
            self._store.retention_ms,
        )
        return self._snapshot_of(await self._store.commit(place, CHANGE_POLICY, keys, args))

    async def raise_floor(
        self, group: Conversation, upto: int, policy: Policy, maker: str, key: IdempotencyKey | None
    ) -> GroupSnapshot | None:
        """See the Protocol."""
        place = self._store.place(group.tenant, group.id)
        bucket, k = self._store.buckets[place.bucket], place.keys
        keys = (k.grpmeta, k.grplog, k.msgcseq, bucket.meta, bucket.dispatch, *bucket.idem, bucket.untrimmed)
        identity: tuple[Argument, ...] = (b"", b"", 0) if key is None else (key.field, key.digest, key.time_ms)
        args = (*identity, place.scope, upto, maker, policy.pack(), self._store.retention_ms)
        if key is None:
            # A run of the retention: nobody is told of it.
            return self._snapshot_of(await self._store.run(place.instance, RAISE_FLOOR, keys, args))
        return self._snapshot_of(await self._store.commit(place, RAISE_FLOOR, keys, args))

    def _snapshot_of(self, reply: tuple[int, bytes]) -> GroupSnapshot | None:
        status, answer = reply
        if status == Status.CHANGED:
            return None
        if status != Status.OK:
            raise refusal(status)
        return self.snapshot(answer)

    async def clear_own(self, conversation: Conversation, user: UserId, upto: int, key: IdempotencyKey) -> int:
        """See the Protocol."""
        place = self._store.place(conversation.tenant, conversation.id)
        bucket, k = self._store.buckets[place.bucket], place.keys
        keys = (k.grpmeta, k.grpcur, k.msgcseq, bucket.meta, bucket.dispatch, *bucket.idem)
        args = (key.field, key.digest, key.time_ms, place.scope, user, upto, self._store.retention_ms)
        status, answer = await self._store.commit(place, CLEAR_OWN, keys, args)
        if status != Status.OK:
            raise refusal(status)
        return self.clear_point(answer)

    def snapshot(self, answer: bytes) -> GroupSnapshot:
        """See the Protocol."""
        revision, version, count, head, floor, generation, created = _SNAPSHOT.unpack_from(answer)
        return GroupSnapshot(
            revision=_u48(revision),
            version=_u48(version),
            count=count,
            head=_u48(head),
            floor=_u48(floor),
            generation=generation,
            created_ms=_u48(created),
            policy=Policy.unpack(answer[_SNAPSHOT.size :]),
        )

    def clear_point(self, answer: bytes) -> int:
        """See the Protocol."""
        return _u48(answer)

    async def state_records(self, group: Conversation, after_revision: int, limit: int) -> list[StateRecord]:
        """See the Protocol."""
        place = self._store.place(group.tenant, group.id)
        raw = await self._store.instances[place.instance].call(
            "XRANGE", place.keys.grplog, f"{after_revision + 1}-0", "+", "COUNT", limit
        )
        return [_record(entry) for entry in raw]

    async def trim(self, conversation: Conversation) -> bool:
        """See the Protocol."""
        place = self._store.place(conversation.tenant, conversation.id)
        bucket, k = self._store.buckets[place.bucket], place.keys
        trimmed = await self._store.instances[place.instance].call("HGET", k.grpmeta, "trimmed")
        segment = sender_segment(int(trimmed or 0) + 1)
        keys = (k.grpmeta, k.msgrec, k.msgts, k.msgsnd(segment), bucket.untrimmed, k.msgcseq)
        args = (segment, place.scope, self._archive_bucket)
        upto, limit = await self._store.run(place.instance, TRIM_RECORDS, keys, args)
        return bool(upto < limit)

    async def retained_groups(self, bucket: int) -> list[Conversation]:
        """See the Protocol."""
        return await self._conversations(bucket, self._store.buckets[bucket].retained)

    async def untrimmed_groups(self, bucket: int) -> list[Conversation]:
        """See the Protocol."""
        return await self._conversations(bucket, self._store.buckets[bucket].untrimmed)

    async def _conversations(self, bucket: int, key: str) -> list[Conversation]:
        scopes = await self._store.instances[self._store.topology.instance_of(bucket)].call("SMEMBERS", key)
        found = (SCOPE.unpack(scope) for scope in sorted(scopes))
        return [Conversation(TenantId(tenant), ConversationId(conversation)) for tenant, conversation in found]

    async def age_cut(self, group: Conversation, time_ms: int) -> AgeCut | None:
        """See the Protocol."""
        place = self._store.place(group.tenant, group.id)
        k = place.keys
        keys = (k.grpmeta, k.msgts, k.msgrec, k.msgcseq)
        seq, floor, policy = await self._store.run(place.instance, RETENTION_FLOOR, keys, (time_ms,))
        return None if policy is None else AgeCut(int(seq), int(floor), Policy.unpack(policy))


def _record(entry: list[Any]) -> StateRecord:
    data = entry[1][1]
    change, time_ms, version, head, length = LOGGED.unpack_from(data)
    at = LOGGED.size
    return StateRecord(
        revision=int(entry[0].partition(b"-")[0]),
        change=StateChange(change),
        time_ms=_u48(time_ms),
        version=_u48(version),
        head=_u48(head),
        maker=data[at : at + length].decode(),
        payload=data[at + length :],
    )

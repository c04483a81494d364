"""Membership in Redis: one script per operation, everything of a conversation on one instance."""

from __future__ import annotations

import asyncio
import functools
import struct
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

from qim_common.errors import (
    ArchiveBacklogFull,
    IdempotencyKeyReused,
    InvalidArgument,
    MembershipVersionExpired,
    PermissionDenied,
)
from qim_common.idempotency import IdempotencyKey
from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId
from qim_common.redis import Argument
from qim_common.telemetry.metrics import writer_metrics
from qim_writer.backends.redis.facts_rows import archived_version, unpack_facts, unpack_look
from qim_writer.backends.redis.place import Place
from qim_writer.backends.redis.status import Status, refusal
from qim_writer.backends.redis.store import (
    CHANGE_MEMBERS,
    CONVERSATION_FACTS,
    CREATE_GROUP,
    MEMBERS_PAGE,
    PLAN_FACTS,
    RedisStore,
)
from qim_writer.domain.changes import ChangePlan, GroupState
from qim_writer.domain.members import Change, Undo
from qim_writer.domain.policy import Policy
from qim_writer.domain.stays import unpack_person
from qim_writer.domain.stored_values import CHANGE
from qim_writer.storage import (
    CHANGES_PEOPLE_MAX,
    ChangeAnswer,
    Changes,
    Conversation,
    Facts,
    Look,
    MembersPage,
    PlanFacts,
    maker_of_user,
)

PAGE: Final = 1_000
LOOKS_PER_CALL: Final = 50
"""Each with a record, which may be 64 KiB."""
_CHANGES_PER_READ: Final = 100
"""As in members_page.lua: at 1,000 people a change, 1.6 MB."""
_ANSWER: Final = struct.Struct(">6s6sIH6s")

_ID: Final = 16
_DIGEST: Final = 8


def _u48(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _answer(data: bytes) -> ChangeAnswer:
    version, seq, count, changed, time_ms = _ANSWER.unpack(data)
    return ChangeAnswer(_u48(version), _u48(seq), count, changed, _u48(time_ms))


def _change(entry: list[Any]) -> Change:
    op, seq, time_ms, actor = CHANGE.unpack_from(entry[1][1])
    people = entry[1][1][CHANGE.size :]
    users = tuple(UserId(people[at : at + _ID]) for at in range(0, len(people), _ID))
    version = int(entry[0].partition(b"-")[0])
    return Change(version, MembershipOp(op), _u48(seq), _u48(time_ms), actor, users)


class RedisMembershipStore:
    """See `qim_writer.storage.MembershipStore`."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def _people(self, tenant: TenantId, people: Iterable[UserId]) -> bytes:
        return b"".join(user + self._store.shard(tenant, user) for user in people)

    async def create(
        self, group: Conversation, people: Sequence[UserId], policy: Policy, key: IdempotencyKey, *, big: bool
    ) -> ChangeAnswer:
        """See the Protocol."""
        place = self._store.place(group.tenant, group.id)
        if self._store.backlog_full(place):
            known = await self.plan_facts(group, people[:1], key)
            if known.answer is None:
                raise self._backlog_full()
            return known.answer
        bucket, k = self._store.buckets[place.bucket], place.keys
        line = (k.grpmeta, k.grpcur, k.grpmem, bucket.meta, bucket.dispatch, bucket.memlog)
        keys = (*line, *bucket.idem, bucket.retained, k.grplog)
        args: tuple[Argument, ...] = (
            key.field,
            key.digest,
            key.time_ms,
            place.scope,
            self._people(group.tenant, people),
            policy.pack(),
            int(big),
            self._store.retention_ms,
            int(policy.settings.retention_days > 0),
            maker_of_user(people[0]),
        )
        status, answer = await self._store.commit(place, CREATE_GROUP, keys, args)
        if status != Status.OK:
            raise refusal(status)
        return _answer(answer)

    async def plan_facts(self, group: Conversation, people: Sequence[UserId], key: IdempotencyKey) -> PlanFacts:
        """See the Protocol."""
        place = self._store.place(group.tenant, group.id)
        bucket, k = self._store.buckets[place.bucket], place.keys
        keys = (k.grpmeta, k.grpcur, bucket.meta, *bucket.idem, k.msgcseq)
        status, *reply = await self._store.run(place.instance, PLAN_FACTS, keys, (key.field, key.time_ms, *people))
        if status != Status.OK:
            raise refusal(status)
        entry, version, policy, count, big, head, currents = reply
        if entry is not None:
            if entry[:_DIGEST] != key.digest:
                raise IdempotencyKeyReused
            await self._store.acknowledge(place)
            return PlanFacts(_answer(entry[_DIGEST:]), None)
        if version is None:
            return PlanFacts(None, None)
        place.changes_from(int(head or 0))
        stays = {
            user: None if current is None else unpack_person(current, None).newest
            for user, current in zip(people, currents, strict=True)
        }
        return PlanFacts(None, GroupState(int(version), Policy.unpack(policy), int(count), stays, big == b"1"))

    async def apply(
        self, group: Conversation, plan: ChangePlan, tail: bytes, key: IdempotencyKey
    ) -> ChangeAnswer | None:
        """See the Protocol."""
        place = self._store.place(group.tenant, group.id)
        if plan.op is MembershipOp.JOIN and plan.people and self._store.backlog_full(place):
            raise self._backlog_full()
        while True:
            keys, args = self._change_keys(place), self._change_args(group, place, plan, tail, key)
            status, answer = await self._store.commit(place, CHANGE_MEMBERS, keys, args)
            if status == Status.OK:
                return _answer(answer)
            if status == Status.CHANGED:
                return None
            if status != Status.NEED_SEGMENT:
                raise refusal(status)
            place.changes_from(int(answer))

    def _backlog_full(self) -> ArchiveBacklogFull:
        writer_metrics().outbox_refusals.inc()
        return ArchiveBacklogFull()

    def _change_keys(self, place: Place) -> tuple[str, ...]:
        bucket, k, segment = self._store.buckets[place.bucket], place.keys, place.change_segment
        line = (k.msgcseq, k.msgrec, k.msgctl, k.msgsnd(segment), k.msgsnd(segment + 1), k.msgts)
        return (
            *(k.grpmeta, k.grpcur, k.grpstays, k.grpmem, k.grpchg),
            *line,
            *(bucket.meta, bucket.dispatch, bucket.memlog),
            *bucket.idem,
        )

    def _change_args(
        self, group: Conversation, place: Place, plan: ChangePlan, tail: bytes, key: IdempotencyKey
    ) -> tuple[Argument, ...]:
        joining = plan.op is MembershipOp.JOIN
        return (
            *(key.field, key.digest, key.time_ms, place.scope, plan.base.version, plan.base.policy.pack()),
            *(plan.policy.pack(), int(plan.op), b"".join(plan.people), plan.actor, tail),
            *(int(plan.audience), plan.count, int(plan.big), place.change_segment),
            plan.history_back if joining else int(plan.revoked),
            int(plan.keeps_earlier),
            self._store.retention_ms,
            b"".join(sorted(self._entries(group.tenant, plan.people))),
        )

    async def facts(self, conversation: Conversation, user: UserId, *, told: bool = True) -> Facts | None:
        """See the Protocol."""
        place = self._store.place(conversation.tenant, conversation.id)
        archived = self._store.archived_head
        keys = place.keys_of_look(archived=archived)
        keys = (*keys[:4], *keys[5:])  # without the record at the head
        (row,) = await self._store.run(place.instance, CONVERSATION_FACTS, keys, (int(archived), user))
        if told and archived_version(row) is not None:
            await self._store.acknowledge(place)
        return unpack_facts(row)

    async def looks(self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]) -> list[Look | None]:
        """See the Protocol. One call at a time an instance, so that it serves others in between."""
        found: list[Look | None] = [None] * len(conversations)
        by_instance: dict[int, list[tuple[int, Place]]] = {}
        for index, conversation in enumerate(conversations):
            place = self._store.place(tenant, conversation)
            by_instance.setdefault(place.instance, []).append((index, place))
        most = max(map(len, by_instance.values()), default=0)
        for start in range(0, most, LOOKS_PER_CALL):
            parts = [asked[start : start + LOOKS_PER_CALL] for asked in by_instance.values() if len(asked) > start]
            replies = await asyncio.gather(*map(functools.partial(self._submit_looks, user), parts))
            for part, rows in zip(parts, replies, strict=True):
                for (index, _), row in zip(part, rows, strict=True):
                    found[index] = unpack_look(row)
        return found

    def _submit_looks(self, user: UserId, part: Sequence[tuple[int, Place]]) -> asyncio.Future[Any]:
        """One call for conversations of one instance."""
        archived = self._store.archived_head
        keys = [key for _, place in part for key in place.keys_of_look(archived=archived)]
        args: tuple[Argument, ...] = (int(archived), *(user,) * len(part))
        return self._store.submit(part[0][1].instance, CONVERSATION_FACTS, keys, args)

    async def members_page(self, group: Conversation, after: bytes, limit: int) -> MembersPage | None:
        """See the Protocol."""
        place = self._store.place(group.tenant, group.id)
        lower = b"(" + after if after else b"-"
        version, count, policy, _, entries, currents, _, archived = await self._page(place, lower, b"+", limit, 1, b"")
        if version is None:
            return None
        if archived is not None:
            await self._store.acknowledge(place)
        stays = tuple(unpack_person(current, None).newest for current in currents)
        return MembersPage(int(version), int(count), Policy.unpack(policy).owner, tuple(entries), stays)

    async def members_at(self, group: Conversation, version: int, shard: int | None) -> AsyncIterator[list[bytes]]:
        """See the Protocol; the algorithm is in `qim_writer.domain.members`."""
        place = self._store.place(group.tenant, group.id)
        undo = Undo(version)
        first = b"" if shard is None else struct.pack(">H", shard)
        end = b"\xff" * (2 + _ID) if shard is None else struct.pack(">H", shard) + b"\xff" * _ID
        after, done = first, False
        while not done:
            lower = b"(" + after if len(after) > 2 else b"[" + after
            reply = await self._page(place, lower, b"[" + end, PAGE, 0, str(undo.seen))
            present_version, _, _, low, entries, _, raw, archived = reply
            _check_version(present_version, low, version)
            if archived is not None and version > int(archived):
                await self._store.acknowledge(place)
            changes = [_change(entry) for entry in raw]
            while changes and changes[-1].version < int(present_version):
                more = await self._read_changes(place, changes[-1].version, int(present_version))
                changes += more
            undo.add((change, self._entries(group.tenant, change.users)) for change in changes)
            undo.seen = int(present_version)
            done = len(entries) < PAGE
            upto = end if done else entries[-1]
            people = undo.page(entries, after, upto)
            for start in range(0, len(people), PAGE):
                yield people[start : start + PAGE]
            after = upto

    async def _page(self, place: Place, *args: Argument) -> Any:
        k = place.keys
        if self._store.archived_head:
            args = (*args, 1)
        return await self._store.run(place.instance, MEMBERS_PAGE, (k.grpmeta, k.grpmem, k.grpcur, k.grpchg), args)

    def _entries(self, tenant: TenantId, users: Iterable[UserId]) -> list[bytes]:
        return [self._store.shard(tenant, user) + user for user in users]

    async def _read_changes(self, place: Place, after: int, upto: int) -> list[Change]:
        raw = await self._store.instances[place.instance].call(
            "XRANGE", place.keys.grpchg, f"{after + 1}-0", f"{upto}-0", "COUNT", _CHANGES_PER_READ
        )
        changes = [_change(entry) for entry in raw]
        if not changes or changes[0].version != after + 1:
            raise MembershipVersionExpired
        return changes

    async def changes_since(self, group: Conversation, version: int, limit: int) -> Changes | None:
        """See the Protocol."""
        place = self._store.place(group.tenant, group.id)
        present, _, _, low, _, _, _, archived = await self._page(place, b"-", b"+", 0, 0, b"")
        if present is None:
            return None
        _check_version(present, low, version)
        if archived is not None:
            if version > int(archived):
                await self._store.acknowledge(place)
            else:
                present = archived
        changes: list[Change] = []
        people, after = 0, version
        while after < int(present) and len(changes) < limit:
            for change in await self._read_changes(place, after, int(present)):
                people += len(change.users)
                if changes and (people > CHANGES_PEOPLE_MAX or len(changes) == limit):
                    return Changes(tuple(changes), int(present))
                changes.append(change)
                after = change.version
        return Changes(tuple(changes), int(present))


def _check_version(present: bytes | None, low: bytes, version: int) -> None:
    if present is None:
        raise PermissionDenied
    if not 1 <= version <= int(present):
        raise InvalidArgument("membership_version", "must be from 1 to the group's present version")
    if version < int(low):
        raise MembershipVersionExpired

"""The messages of a conversation in Redis."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Final

from qim_common.ids import ConversationId, TenantId, parse_control_body
from qim_common.keys import SENDER_SEGMENT, sender_segment
from qim_common.records import Audience, Record, unpack_record
from qim_common.redis import Argument, checked
from qim_writer.backends.redis.store import COUNT_UNREAD, RedisStore
from qim_writer.domain.delivery import ControlEvent
from qim_writer.domain.explain import Event
from qim_writer.domain.members import Change
from qim_writer.domain.stored_values import CONTROL
from qim_writer.domain.visible import UnreadSpan
from qim_writer.storage import Conversation

UNREAD_SEQS_PER_CALL: Final = 24_576
"""At most this many seqs of sender columns per script call, so that none takes 2.2 ms (storage.md), also where all of
them are one's own: a hit costs up to 70 ns."""


class RedisMessageStore:
    """See `qim_writer.storage.MessageStore`."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    async def records(self, conversation: Conversation, seqs: Sequence[int]) -> list[Record]:
        """See the Protocol."""
        if not seqs:
            return []
        place = self._store.place(conversation.tenant, conversation.id)
        values = await self._store.instances[place.instance].call("HMGET", place.keys.msgrec, *seqs)
        return [unpack_record(seq, value) for seq, value in zip(seqs, values, strict=True) if value is not None]

    async def records_of_many(
        self, tenant: TenantId, wanted: Sequence[tuple[ConversationId, Sequence[int]]]
    ) -> list[list[Record]]:
        """See the Protocol. One pipeline an instance."""
        found: list[list[Record]] = [[] for _ in wanted]
        by_instance: dict[int, list[tuple[int, str, Sequence[int]]]] = {}
        for index, (conversation, seqs) in enumerate(wanted):
            if seqs:
                place = self._store.place(tenant, conversation)
                by_instance.setdefault(place.instance, []).append((index, place.keys.msgrec, seqs))
        for instance, reads in by_instance.items():
            commands: list[tuple[Argument, ...]] = [("HMGET", key, *seqs) for _, key, seqs in reads]
            replies = checked(await self._store.instances[instance].pipeline(commands))
            for (index, _, seqs), values in zip(reads, replies, strict=True):
                found[index] = [
                    unpack_record(seq, value) for seq, value in zip(seqs, values, strict=True) if value is not None
                ]
        return found

    async def control_events(self, conversation: Conversation, first: int, last: int, limit: int) -> list[ControlEvent]:
        """See the Protocol."""
        place = self._store.place(conversation.tenant, conversation.id)
        members = await self._store.instances[place.instance].call(
            "ZRANGE", place.keys.msgctl, first, last, "BYSCORE", "LIMIT", 0, limit
        )
        return [
            ControlEvent(int.from_bytes(seq, "big"), int.from_bytes(version, "big"), Audience(audience))
            for seq, version, audience, _ in map(CONTROL.unpack, members)
        ]

    async def controls(self, tenant: TenantId, spans: Sequence[tuple[ConversationId, int, int]]) -> list[int]:
        """See the Protocol. One pipeline an instance."""
        counts = [0] * len(spans)
        by_instance: dict[int, list[tuple[int, tuple[Argument, ...]]]] = {}
        for index, (conversation, first, last) in enumerate(spans):
            place = self._store.place(tenant, conversation)
            command = ("ZCOUNT", place.keys.msgctl, first, last)
            by_instance.setdefault(place.instance, []).append((index, command))
        for instance, asked in by_instance.items():
            replies = checked(await self._store.instances[instance].pipeline([command for _, command in asked]))
            for (index, _), count in zip(asked, replies, strict=True):
                counts[index] = count
        return counts

    async def event(self, conversation: Conversation, seq: int) -> Event | None:
        """See the Protocol."""
        place = self._store.place(conversation.tenant, conversation.id)
        found = await self._store.instances[place.instance].call("ZRANGE", place.keys.msgctl, seq, seq, "BYSCORE")
        if not found:
            return None
        _, version, audience, time_ms = CONTROL.unpack(found[0])
        return Event(int.from_bytes(version, "big"), Audience(audience), int.from_bytes(time_ms, "big"))

    async def events(self, conversation: Conversation, after: int, limit: int) -> list[Change]:
        """See the Protocol."""
        place = self._store.place(conversation.tenant, conversation.id)
        members = await self._store.instances[place.instance].call(
            "ZRANGE", place.keys.msgctl, f"({after}", "+inf", "BYSCORE", "LIMIT", 0, limit
        )
        known = [CONTROL.unpack(member) for member in members]
        seqs = [int.from_bytes(seq, "big") for seq, _, _, _ in known]
        records = {record.seq: record for record in await self.records(conversation, seqs)}
        events = []
        for seq, (_, version, _, time_ms) in zip(seqs, known, strict=True):
            record = records.get(seq)
            made = int.from_bytes(version, "big")
            if record is None:
                events.append(Change(made, None, seq, int.from_bytes(time_ms, "big"), b"", ()))
            else:
                op, actor, people = parse_control_body(record.tail.body)
                events.append(Change(made, op, seq, record.time_ms, actor, people))
        return events

    async def unread(
        self, tenant: TenantId, spans: Sequence[tuple[ConversationId, UnreadSpan, bytes]]
    ) -> list[int | None]:
        """See the Protocol. Counted from the sender column, in calls of at most UNREAD_SEQS_PER_CALL; those of one
        instance go one after another, so that it serves others in between."""
        counts: list[int | None] = [max(span.upper - span.lower, 0) for _, span, _ in spans]
        calls: dict[int, list[_Stretches]] = {}
        filling: dict[int, _Stretches] = {}
        for index, (conversation, span, ordinal) in enumerate(spans):
            if span.lower >= span.upper:
                continue
            place = self._store.place(tenant, conversation)
            first = span.lower + 1
            while first <= span.upper:
                stretches = filling.get(place.instance)
                if stretches is None or stretches.seqs == UNREAD_SEQS_PER_CALL:
                    stretches = filling[place.instance] = _Stretches(place.instance)
                    calls.setdefault(place.instance, []).append(stretches)
                segment = sender_segment(first)
                room = UNREAD_SEQS_PER_CALL - stretches.seqs
                last = min(span.upper, (segment + 1) * SENDER_SEGMENT, first + room - 1)
                stretches.add(index, (place.keys.msgctl, place.keys.msgsnd(segment)), (first, last, ordinal))
                first = last + 1
        for at_once in itertools.zip_longest(*calls.values()):
            asked = [stretches for stretches in at_once if stretches is not None]
            replies = await asyncio.gather(
                *(self._store.submit(call.instance, COUNT_UNREAD, call.keys, call.args) for call in asked)
            )
            for stretches, skipped in zip(asked, replies, strict=True):
                for index, count in zip(stretches.indexes, skipped, strict=True):
                    before = counts[index]
                    counts[index] = None if before is None or count < 0 else before - count
        return counts


class _Stretches:
    """What one call of `count_unread.lua` counts."""

    def __init__(self, instance: int) -> None:
        self.instance = instance
        self.indexes: list[int] = []
        self.keys: list[str] = []
        self.args: list[int | bytes] = []
        self.seqs = 0

    def add(self, index: int, keys: tuple[str, str], stretch: tuple[int, int, bytes]) -> None:
        """One stretch of seqs within one segment."""
        self.indexes.append(index)
        self.keys += keys
        self.args += stretch
        self.seqs += stretch[1] - stretch[0] + 1

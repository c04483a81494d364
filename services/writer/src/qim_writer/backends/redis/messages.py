"""The messages of a conversation in Redis."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Final

from qim_common.ids import ConversationId, TenantId
from qim_common.keys import SENDER_SEGMENT, sender_segment
from qim_common.records import Audience, Record, unpack_record
from qim_writer.backends.redis.store import COUNT_UNREAD, RedisStore
from qim_writer.domain.visible import UnreadSpan
from qim_writer.storage import Conversation

UNREAD_SEQS_PER_CALL: Final = 65_536
"""At most this many seqs of sender columns per script call (storage.md; 2.2 ms at worst)."""

_CONTROL: Final = struct.Struct(">6s6sB")


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

    async def foreign_events(self, conversation: Conversation, first: int, last: int, own: frozenset[int]) -> list[int]:
        """See the Protocol."""
        place = self._store.place(conversation.tenant, conversation.id)
        members = await self._store.instances[place.instance].call("ZRANGE", place.keys.msgctl, first, last, "BYSCORE")
        events = []
        for member in members:
            seq, version, audience = _CONTROL.unpack(member)
            if audience == Audience.CONCERNED and int.from_bytes(version, "big") not in own:
                events.append(int.from_bytes(seq, "big"))
        return events

    async def unread(self, tenant: TenantId, spans: Sequence[tuple[ConversationId, UnreadSpan, bytes]]) -> list[int]:
        """See the Protocol. Counted from the sender column, cut so that no call reads more than 65,536 seqs."""
        counts = [max(span.upper - span.lower, 0) for _, span, _ in spans]
        calls: list[_Stretches] = []
        filling: dict[int, _Stretches] = {}
        for index, (conversation, span, ordinal) in enumerate(spans):
            place = self._store.place(tenant, conversation)
            first = span.lower + 1
            while first <= span.upper:
                segment = sender_segment(first)
                last = min(span.upper, (segment + 1) * SENDER_SEGMENT)
                stretches = filling.get(place.instance)
                if stretches is None or stretches.seqs + last - first + 1 > UNREAD_SEQS_PER_CALL:
                    stretches = filling[place.instance] = _Stretches(place.instance)
                    calls.append(stretches)
                stretches.add(index, (place.keys.msgctl, place.keys.msgsnd(segment)), (first, last, ordinal))
                first = last + 1
        replies = await asyncio.gather(
            *(self._store.run(call.instance, COUNT_UNREAD, call.keys, call.args) for call in calls)
        )
        for call, skipped in zip(calls, replies, strict=True):
            for index, count in zip(call.indexes, skipped, strict=True):
                counts[index] -= count
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

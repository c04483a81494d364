"""Reading messages: the facts of one moment, the visible range, and then exactly the seqs in it (invariant 6)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from typing import Final

from qim_common.errors import InvalidArgument, PermissionDenied, TooManyItems
from qim_common.identity import Actor
from qim_common.ids import parse_conversation
from qim_common.records import Record
from qim_writer.domain.stays import Person
from qim_writer.domain.visible import Visible, may_read, visible_range
from qim_writer.storage import Conversation, Facts, MembershipStore, MessageStore

PAGE_MAX: Final = 1_000
ANSWER_BYTES: Final = 2 * 1024 * 1024
"""An answer holds messages up to about this size; what is left is asked for again."""

READ_AT_ONCE: Final = 100
"""Records of one read of the store: a page of large messages does not load what its answer has no room for."""

SEQ_MAX: Final = 2**53 - 1


class Direction(Enum):
    """Which way a page goes from its first seq."""

    OLDER = "older"
    NEWER = "newer"


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """`next_from` is where to go on, 0 at the end."""

    messages: tuple[Record, ...]
    next_from: int
    visible: Visible
    facts: Facts
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class NamedMessages:
    """`remaining` are visible seqs for which this answer had no room."""

    messages: tuple[Record, ...]
    remaining: tuple[int, ...]
    facts: Facts
    conversation: Conversation


async def readable(store: MembershipStore, actor: Actor, conversation: Conversation) -> tuple[Facts, Person]:
    """The facts of a conversation that the actor may read. Raises PermissionDenied, the same for all others."""
    facts = await store.facts(conversation, actor.user)
    if facts is None or facts.person is None or not may_read(facts.person):
        raise PermissionDenied
    return facts, facts.person


class History:
    """The read paths of end users."""

    def __init__(self, membership: MembershipStore, messages: MessageStore) -> None:
        self._membership = membership
        self._messages = messages

    async def range(self, actor: Actor, conversation_id: bytes) -> tuple[Conversation, Facts, Person, Visible]:
        """GetVisibleRange. Raises InvalidArgument, PermissionDenied."""
        conversation = Conversation(actor.tenant, parse_conversation(conversation_id))
        facts, person = await readable(self._membership, actor, conversation)
        return conversation, facts, person, visible_range(person, facts.line)

    async def page(
        self, actor: Actor, conversation_id: bytes, from_seq: int, direction: Direction, limit: int
    ) -> HistoryPage:
        """PullHistory. Raises InvalidArgument, PermissionDenied."""
        if not 1 <= limit <= PAGE_MAX:
            raise InvalidArgument("limit", f"must be from 1 to {PAGE_MAX}")
        if from_seq > SEQ_MAX:
            raise InvalidArgument("from_seq", "is no seq")
        conversation, facts, _, visible = await self.range(actor, conversation_id)
        older = direction is Direction.OLDER
        seqs = visible.older(from_seq, limit + 1) if older else visible.newer(from_seq, limit + 1)
        records, left = await self._fitting(conversation, seqs[:limit])
        beyond = seqs[limit] if len(seqs) > limit else 0
        return HistoryPage(records, left[0] if left else beyond, visible, facts, conversation)

    async def named(self, actor: Actor, conversation_id: bytes, seqs: Sequence[int]) -> NamedMessages:
        """GetMessages: those that are visible, each once. Raises InvalidArgument, TooManyItems, PermissionDenied."""
        if not seqs:
            raise InvalidArgument("seqs", "must name at least one")
        if len(seqs) > PAGE_MAX:
            raise TooManyItems(metadata={"field": "seqs", "most": str(PAGE_MAX)})
        if not all(1 <= seq <= SEQ_MAX for seq in seqs):
            raise InvalidArgument("seqs", "must be seqs, from 1")
        conversation, facts, _, visible = await self.range(actor, conversation_id)
        wanted = sorted({seq for seq in seqs if seq in visible})
        records, left = await self._fitting(conversation, wanted)
        return NamedMessages(records, left, facts, conversation)

    async def _fitting(
        self, conversation: Conversation, seqs: Sequence[int]
    ) -> tuple[tuple[Record, ...], tuple[int, ...]]:
        """The records that one answer has room for, at least one, and the seqs that are left."""
        taken: list[Record] = []
        size = 0
        async with aclosing(records_in_parts(self._messages, conversation, seqs)) as records:
            async for seq, record in records:
                if record is None:
                    continue
                size += answer_bytes(record)
                if size > ANSWER_BYTES and taken:
                    return tuple(taken), tuple(seqs[seqs.index(seq) :])
                taken.append(record)
        return tuple(taken), ()


def answer_bytes(record: Record) -> int:
    """About what a message takes in an answer."""
    return len(record.tail.body) + 200


async def records_in_parts(
    messages: MessageStore, conversation: Conversation, seqs: Sequence[int]
) -> AsyncGenerator[tuple[int, Record | None], None]:
    """Each seq with its record, None where it is gone; read in parts, so that who stops early loads little."""
    for start in range(0, len(seqs), READ_AT_ONCE):
        part = seqs[start : start + READ_AT_ONCE]
        found = {record.seq: record for record in await messages.records(conversation, part)}
        for seq in part:
            yield seq, found.get(seq)

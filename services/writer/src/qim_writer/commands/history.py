"""Reading messages: the facts of one moment, the visible range, and then exactly the seqs in it (invariant 6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        records, rest = fit(await self._messages.records(conversation, seqs[:limit]))
        beyond = seqs[limit] if len(seqs) > limit else 0
        return HistoryPage(records, rest[0].seq if rest else beyond, visible, facts, conversation)

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
        records, rest = fit(await self._messages.records(conversation, wanted))
        return NamedMessages(records, tuple(record.seq for record in rest), facts, conversation)


def fit(records: Iterable[Record]) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """The records that one answer has room for, at least one, and the rest."""
    everything = tuple(records)
    size = 0
    for index, record in enumerate(everything):
        size += len(record.tail.body) + 200
        if size > ANSWER_BYTES and index:
            return everything[:index], everything[index:]
    return everything, ()

"""The session's stores and the writer in memory, at the border of their Protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.dispatch import TENANT, user

from qim_common.enums import MemberState
from qim_common.errors import BackendUnavailable
from qim_common.identity import Actor
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId
from qim_session.domain.cursors import NOTHING, Cursor
from qim_session.domain.flags import NO_FLAGS, Flags
from qim_session.domain.list_pages import ListPosition
from qim_session.storage.conversations import NONE_HIDDEN, ConversationState, DeliveredPage
from qim_session.storage.cursors import Marks
from qim_session.storage.lists import ListRead

ANA = Actor(TENANT, user(1), DeviceId(b"a" * 16))


def state(conversation: ConversationId, time_ms: int = 0, **fields: object) -> ConversationState:
    """A member's state."""
    known = ConversationState(conversation, MemberState.MEMBER, last_activity_ms=time_ms, generation=1)
    return known._replace(**fields)  # type: ignore[arg-type]  # as the test names them


@dataclass
class Owner:
    """The writer: `Conversations`. `calls` holds how many conversations each question named."""

    known: dict[ConversationId, ConversationState] = field(default_factory=dict)
    pages: dict[ConversationId, DeliveredPage] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    down: bool = False

    async def states(
        self,
        tenant: TenantId,
        user: UserId,
        read: Mapping[ConversationId, int],
        *,
        with_preview: bool,
        hidden: Mapping[ConversationId, int] = NONE_HIDDEN,
    ) -> list[ConversationState]:
        self.calls.append(len(read))
        if self.down:
            raise BackendUnavailable
        return [
            self.known[one]._replace(hidden=one in hidden)
            if one in self.known
            else ConversationState(one, MemberState.UNKNOWN)
            for one in read
        ]

    async def delivered(
        self, tenant: TenantId, user: UserId, conversation: ConversationId, *, after_seq: int, limit: int
    ) -> DeliveredPage:
        return self.pages[conversation]


@dataclass
class People:
    """One person's session store: lists, cursors and flags."""

    times: dict[ConversationId, int] = field(default_factory=dict)
    big: set[ConversationId] = field(default_factory=set)
    flags: dict[ConversationId, Flags] = field(default_factory=dict)
    cursors: dict[ConversationId, Cursor] = field(default_factory=dict)
    reads: dict[ConversationId, Cursor] = field(default_factory=dict)

    async def page(self, tenant: TenantId, user: UserId, *, below: ListPosition | None, limit: int) -> ListRead:
        found = [place for place in self._small() if below is None or place < below]
        return ListRead(sorted(found, reverse=True)[:limit], frozenset(self.big))

    async def risen(
        self, tenant: TenantId, user: UserId, *, above: ListPosition, after: ConversationId, limit: int
    ) -> ListRead:
        found = [place for place in self._small() if place > above and place.conversation > after]
        return ListRead(sorted(found, key=lambda place: place.conversation)[:limit], frozenset(self.big))

    def _small(self) -> list[ListPosition]:
        return [ListPosition(time, one) for one, time in self.times.items() if one not in self.big]

    async def oldest_first(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        return [place.conversation for place in sorted(ListPosition(time, key) for key, time in self.times.items())]

    async def marks(
        self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, Marks]:
        return {one: Marks(self.reads.get(one, NOTHING), self.flags.get(one, NO_FLAGS)) for one in conversations}

    async def read(
        self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, Cursor]:
        return {one: self.reads.get(one, NOTHING) for one in conversations}

    async def advance_read(self, actor: Actor, conversation: ConversationId, cursor: Cursor) -> bool:
        moved = cursor > self.reads.get(conversation, NOTHING)
        self.reads[conversation] = max(cursor, self.reads.get(conversation, NOTHING))
        return moved

    async def device(
        self, tenant: TenantId, user: UserId, device: DeviceId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, Cursor]:
        return {one: self.cursors[one] for one in conversations if one in self.cursors}

    async def advance_device(
        self, tenant: TenantId, user: UserId, device: DeviceId, cursors: Mapping[ConversationId, Cursor]
    ) -> int:
        self.cursors.update(cursors)
        return len(cursors)


@dataclass
class Reached:
    """The projection's progress."""

    settled: int

    async def settled_ms(self) -> int:
        return self.settled

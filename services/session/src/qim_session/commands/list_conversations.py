"""ListConversations: a page of a person's list, newest activity first (storage.md, "Session").

Behind the bottom come, by id, the conversations that may have risen unseen; one may come twice.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from qim_common.enums import MemberState
from qim_common.errors import InvalidArgument, PageTokenInvalid
from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_common.telemetry.metrics import SessionMetrics
from qim_common.tokens import TokenSigner
from qim_session.commands.listed import Entries, ListedConversation
from qim_session.commands.rebuild import Rebuild
from qim_session.domain.big_conversations import merge_big
from qim_session.domain.list_pages import (
    Descent,
    ListCursor,
    ListPosition,
    ListRow,
    Sweep,
    pack_cursor,
    take_page,
    unpack_cursor,
)
from qim_session.storage.conversations import STATES_PER_CALL
from qim_session.storage.lists import ConversationLists, ListRead

METHOD: Final = "ListConversations"
PAGE_SIZE_MAX: Final = 1000
ANSWER_BYTES: Final = 2 * 1024 * 1024
"""A page whose entries would pass this ends early; its token goes on behind it."""


class ProgressSource(Protocol):
    """How far the projection is."""

    async def settled_ms(self) -> int:
        """The commit time below which everything is in the lists, of a moment ago. Raises BackendUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """`next_page_token` is empty on the last page."""

    conversations: tuple[ListedConversation, ...]
    next_page_token: str


class ListConversations:
    """The command behind the method of the same name."""

    def __init__(
        self,
        rebuild: Rebuild,
        lists: ConversationLists,
        entries: Entries,
        tokens: TokenSigner,
        metrics: SessionMetrics,
        progress: ProgressSource,
    ) -> None:
        self._rebuild = rebuild
        self._lists = lists
        self._entries = entries
        self._tokens = tokens
        self._metrics = metrics
        self._progress = progress

    async def __call__(
        self, actor: Actor, *, page_size: int, page_token: str, include_hidden: bool = False
    ) -> ConversationPage:
        """One page; hidden conversations take their place in it and are left out of the answer.

        Raises:
            InvalidArgument: `page_size` outside of 1 to 1,000.
            PageTokenInvalid: a token that was not issued for this person and method.
            BackendUnavailable: a store or the writer does not answer.
        """
        if not 1 <= page_size <= PAGE_SIZE_MAX:
            raise InvalidArgument("page_size", f"must be from 1 to {PAGE_SIZE_MAX}")
        cursor = self._open(actor, page_token) if page_token else Descent()
        known: dict[ConversationId, ListedConversation] = {}
        rows, after = await self._rows(actor, cursor, page_size, known)
        listed: list[ListedConversation] = []
        size = 0
        last: ListRow | None = None
        for start in range(0, len(rows), STATES_PER_CALL):
            part = rows[start : start + STATES_PER_CALL]
            await self._learn(actor, [row.position.conversation for row in part], known)
            for row in part:
                entry = known[row.position.conversation]
                if entry.state.state is MemberState.UNKNOWN:
                    # Projected, so the person was in it; a state that denies it breaks an invariant.
                    self._metrics.group_interval_missing.inc()
                    continue
                if entry.hidden and not include_hidden:
                    continue
                size += len(entry.state.entry)
                if size > ANSWER_BYTES and last is not None:
                    return self._page(actor, listed, last.after)
                listed.append(entry)
                last = row
        return self._page(actor, listed, after)

    async def _rows(
        self, actor: Actor, cursor: ListCursor, room: int, known: dict[ConversationId, ListedConversation]
    ) -> tuple[list[ListRow], ListCursor | None]:
        """The rows of a page, and what was learned of their conversations on the way."""
        rows: list[ListRow] = []
        while True:
            settled_ms = await self._progress.settled_ms()  # before the read: what it does not show comes later
            left = room - len(rows)
            read = await self._read(actor, cursor, left + 1)
            big = await self._big(actor, read, left, known)
            found = merge_big(cursor, read.positions, big, limit=left + 1)
            taken, after, turned = take_page(cursor, found, left, settled_ms)
            rows += taken
            if after is None or not turned:
                return rows, after
            cursor = after

    async def _read(self, actor: Actor, cursor: ListCursor, limit: int) -> ListRead:
        """One read of a list that is complete; whether it is comes with it, and costs no question of its own."""
        while True:
            if isinstance(cursor, Sweep):
                read = await self._lists.risen(
                    actor.tenant, actor.user, above=cursor.turn, after=cursor.swept, limit=limit
                )
            else:
                read = await self._lists.page(actor.tenant, actor.user, below=cursor.place, limit=limit)
            if read.complete:
                return read
            await self._rebuild.ensure(actor.tenant, actor.user)

    async def _big(
        self, actor: Actor, read: ListRead, room: int, known: dict[ConversationId, ListedConversation]
    ) -> list[ListPosition]:
        """Where the big conversations of a read stand.

        They are asked for once a page, together with the rows that were read: one that rises after that is above the
        turn, where the sweep finds it.
        """
        if not read.big <= known.keys():
            rows = [position.conversation for position in read.positions[:room]]
            await self._learn(actor, [*rows, *read.big], known)
        return [ListPosition(known[one].state.last_activity_ms, one) for one in sorted(read.big)]

    async def _learn(
        self, actor: Actor, conversations: Sequence[ConversationId], known: dict[ConversationId, ListedConversation]
    ) -> None:
        """Read the entries that are not known yet; a list may name a conversation twice in one page."""
        missing = [conversation for conversation in conversations if conversation not in known]
        if missing:
            known.update(await self._entries.read(actor, missing))

    def _page(self, actor: Actor, listed: Sequence[ListedConversation], after: ListCursor | None) -> ConversationPage:
        token = ""
        if after is not None:
            token = self._tokens.issue(METHOD, actor.tenant, actor.user, b"", pack_cursor(after))
        return ConversationPage(tuple(listed), token)

    def _open(self, actor: Actor, page_token: str) -> ListCursor:
        payload = self._tokens.open(METHOD, actor.tenant, actor.user, b"", page_token)
        try:
            return unpack_cursor(payload)
        except struct.error:
            # Signed by this installation, but by a version with another layout.
            raise PageTokenInvalid from None

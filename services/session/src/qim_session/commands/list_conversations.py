"""ListConversations: a page of a person's list, newest activity first (storage.md, "Session").

Behind the bottom come, oldest first, the conversations that may have risen unseen; one may come twice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from qim_common.errors import InvalidArgument, PageTokenInvalid
from qim_common.identity import Actor
from qim_common.telemetry.metrics import SessionMetrics
from qim_common.tokens import TokenSigner
from qim_session.domain.list_pages import ListCursor, ListRow, Progress, take_page
from qim_session.storage import (
    STATES_PER_CALL,
    ConversationLists,
    Conversations,
    ConversationState,
    Cursors,
    MemberState,
)

METHOD: Final = "ListConversations"
PAGE_SIZE_MAX: Final = 1000
ANSWER_BYTES: Final = 2 * 1024 * 1024
"""A page whose previews would pass this ends early; its token goes on behind it."""


@dataclass(frozen=True, slots=True)
class ListedConversation:
    """One entry: the state as the writer gives it, and how far the person has read."""

    state: ConversationState
    read_seq: int


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """`next_page_token` is empty on the last page."""

    conversations: tuple[ListedConversation, ...]
    next_page_token: str


class ListConversations:
    """The command behind the method of the same name."""

    def __init__(
        self,
        lists: ConversationLists,
        cursors: Cursors,
        conversations: Conversations,
        tokens: TokenSigner,
        metrics: SessionMetrics,
        progress: Callable[[], Progress],
    ) -> None:
        self._lists = lists
        self._cursors = cursors
        self._conversations = conversations
        self._tokens = tokens
        self._metrics = metrics
        self._progress = progress

    async def __call__(self, actor: Actor, *, page_size: int, page_token: str) -> ConversationPage:
        """One page.

        Raises:
            InvalidArgument: `page_size` outside of 1 to 1,000.
            PageTokenInvalid: a token that was not issued for this person and method.
            BackendUnavailable: a store or the writer does not answer.
        """
        if not 1 <= page_size <= PAGE_SIZE_MAX:
            raise InvalidArgument("page_size", f"must be from 1 to {PAGE_SIZE_MAX}")
        cursor = self._open(actor, page_token) if page_token else ListCursor()
        rows, after = await self._rows(actor, cursor, page_size)
        listed: list[ListedConversation] = []
        size = 0
        last = cursor
        for start in range(0, len(rows), STATES_PER_CALL):
            part = rows[start : start + STATES_PER_CALL]
            for row, entry in zip(part, await self._entries(actor, part), strict=True):
                if entry.state.state is MemberState.UNKNOWN:
                    # Projected, so the person was in it; a state that denies it breaks an invariant.
                    self._metrics.group_interval_missing.inc()
                    continue
                size += len(entry.state.preview or b"")
                if size > ANSWER_BYTES and listed:
                    return self._page(actor, listed, last)
                listed.append(entry)
                last = row.after
        return self._page(actor, listed, after)

    async def _rows(self, actor: Actor, cursor: ListCursor, room: int) -> tuple[list[ListRow], ListCursor | None]:
        rows: list[ListRow] = []
        while True:
            progress = self._progress()  # before the read: what the read does not show comes at or above it
            found = await self._lists.page(
                actor.tenant,
                actor.user,
                below=None if cursor.upward else cursor.place,
                above=cursor.place if cursor.upward else None,
                limit=room - len(rows) + 1,
                upward=cursor.upward,
            )
            taken, after, turned = take_page(cursor, found, room - len(rows), progress)
            rows += taken
            if after is None or not turned:
                return rows, after
            cursor = after

    async def _entries(self, actor: Actor, rows: Sequence[ListRow]) -> list[ListedConversation]:
        ids = [row.position.conversation for row in rows]
        # A person's list may name a conversation twice in one page, when it rose meanwhile; it is asked for once.
        read = await self._cursors.read_seqs(actor.tenant, actor.user, list(dict.fromkeys(ids)))
        states = await self._conversations.states(actor.tenant, actor.user, read, with_preview=True)
        by_id = {state.conversation: state for state in states}
        return [ListedConversation(by_id[conversation], read[conversation]) for conversation in ids]

    def _page(self, actor: Actor, listed: Sequence[ListedConversation], after: ListCursor | None) -> ConversationPage:
        token = ""
        if after is not None:
            token = self._tokens.issue(METHOD, actor.tenant, actor.user, b"", after.pack())
        return ConversationPage(tuple(listed), token)

    def _open(self, actor: Actor, page_token: str) -> ListCursor:
        payload = self._tokens.open(METHOD, actor.tenant, actor.user, b"", page_token)
        try:
            return ListCursor.unpack(payload)
        except struct.error:
            # Signed by this installation, but by a version with another layout.
            raise PageTokenInvalid from None

"""What one person sees at the end, counted through the public API: every readable message, every mailbox entry.

A room's people together read hundreds of thousands of messages here, so the answers are counted as they come off the
wire; the typed client would spend most of the replay's time on values that nobody looks at.
"""

from __future__ import annotations

import asyncio
from typing import Final

from qim.common.v1 import types_pb2
from qim.session.v1 import session_pb2
from qim.writer.v1 import writer_pb2
from qim_client import OperatorClient
from qim_client.actor import MAX_PAGE
from qim_client.services import Services
from qim_common.errors import PermissionDenied
from qim_common.identity import ACTOR_KEY, Actor
from qim_common.ids import ConversationId
from qim_devkit.replay.answers import PersonAnswers
from qim_devkit.replay.mailboxes import Mailbox

SETTLE_SECONDS: Final = 60.0
"""How long the conversation may take to come into a list after a whole history; a second where nothing else runs."""

_POLL_SECONDS: Final = 0.1


class NotListedError(Exception):
    """The conversation did not come into a person's list in time."""


class Eyes:
    """One person's; `mailbox` has been pulled by the person's device in the course of the history."""

    def __init__(
        self,
        services: Services,
        operator: OperatorClient,
        person: Actor,
        group: ConversationId,
        mailbox: Mailbox,
    ) -> None:
        self._services = services
        self._operator = operator
        self._person = person
        self._group = group
        self._mailbox = mailbox
        self._metadata = ((ACTOR_KEY, person.to_message().SerializeToString()),)

    async def look(self) -> PersonAnswers:
        """What holds for the person now.

        Raises NotListedError, and the QimError of a call that is refused.
        """
        entry = await self._listed()
        await self._mailbox.empty()
        return PersonAnswers(
            state=types_pb2.MemberState.Name(entry.state).removeprefix("MEMBER_STATE_"),
            stays=await self._stays(),
            visible=await self._visible(),
            earliest=entry.earliest_available_conversation_seq,
            head=entry.head_seq,
            unread=entry.unread_count,
            delivered=self._mailbox.delivered,
        )

    async def _listed(self) -> session_pb2.Conversation:
        """The entry of the person's list, in which nothing else can be."""
        request = session_pb2.ListConversationsRequest(page_size=1)
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while True:
                    page = await self._services.session.call(
                        lambda stub: stub.ListConversations, request, metadata=self._metadata
                    )
                    if page.conversations:
                        return page.conversations[0]
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise NotListedError(f"the group is not in a person's list after {SETTLE_SECONDS:g} s") from None

    async def _stays(self) -> int:
        request = writer_pb2.GetVisibleRangeRequest(conversation_id=self._group)
        try:
            answer = await self._services.writer.call(
                lambda stub: stub.GetVisibleRange, request, metadata=self._metadata
            )
        except PermissionDenied:  # a revoked leaver learns nothing, an operator does
            return len((await self._operator.group_timeline(self._group, user=self._person.user, page_size=1)).stays)
        return len(answer.stays)

    async def _visible(self) -> int:
        """How many messages the history has from its oldest to its newest page."""
        request = writer_pb2.PullHistoryRequest(
            conversation_id=self._group, direction=writer_pb2.DIRECTION_NEWER, limit=MAX_PAGE
        )
        count = 0
        try:
            while True:
                page = await self._services.writer.call(lambda stub: stub.PullHistory, request, metadata=self._metadata)
                count += len(page.messages)
                if not page.next_from_seq:
                    return count
                request.from_seq = page.next_from_seq
        except PermissionDenied:
            return 0

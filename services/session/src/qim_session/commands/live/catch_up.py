"""How an attachment comes to be live without a loss (docs/decisions/0011).

It is registered first, so that nothing that is committed from then on passes it by; then what was delivered before is
read from the conversations' owner. Which conversations those are says the person's list, and the projection behind it
may lag: so the list is read once at once, and once more for what has risen since, when the projection has passed the
moment of the attach.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from qim_common.backoff import Backoff
from qim_common.errors import QimError, ResyncRequired
from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_session.commands.live.attachment import Attachment, AttachmentEnded
from qim_session.commands.live.events import EventEncoder
from qim_session.commands.live.tails import LiveTails
from qim_session.commands.mailbox import Mailbox, Outstanding
from qim_session.commands.progress import ProgressReader
from qim_session.commands.rebuild import Rebuild
from qim_session.domain.cursors import Cursor
from qim_session.storage.conversations import STATES_PER_CALL
from qim_session.storage.live import RecentConversations

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

QUESTIONS_AT_ONCE: Final = 32
"""Of all catching up together to the writer."""

PAGE_ENTRIES: Final = 250


class CatchUp:
    """Sends what was delivered before, and goes live."""

    def __init__(
        self,
        *,
        lists: RecentConversations,
        mailbox: Mailbox,
        rebuild: Rebuild,
        progress: ProgressReader,
        tails: LiveTails,
        encoder: EventEncoder,
    ) -> None:
        self._lists = lists
        self._mailbox = mailbox
        self._rebuild = rebuild
        self._progress = progress
        self._tails = tails
        self._encoder = encoder
        self._questions = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def run(self, attachment: Attachment, *, after: asyncio.Task[None] | None = None) -> None:
        """Until the attachment is live, whatever fails meanwhile; cancel it when the attachment ends.

        Args:
            after: an earlier run that was cancelled, and ends first.
        """
        if after is not None:
            try:
                await asyncio.wait([after])
            except asyncio.CancelledError:
                # Whoever comes after this one waits for it alone.
                await asyncio.wait([after])
                raise
        try:
            await _patiently(lambda: self._once(attachment))
            end_ms = await _patiently(self._tails.now_ms)
        except AttachmentEnded:
            return
        await self._tails.reached(end_ms)
        attachment.order.settle()

    async def _once(self, attachment: Attachment) -> None:
        actor, stream, order = attachment.actor, attachment.stream, attachment.order
        await self._tails.positioned()
        if attachment.since_ms is not None and attachment.logs != self._tails.identity:
            # Of logs that were begun anew since: what is there now may be older than what the device has seen.
            attachment.since_ms = None
        since = attachment.since_ms
        at_ms = await self._tails.now_ms()
        async with stream.slots:
            # Read before the list: what was committed earlier than this is in it.
            settled_ms = await self._progress.settled_ms()
            await self._read(attachment, await self._recent(actor, since))
        await self._progress.reached(at_ms + 1)
        await self._tails.reached(at_ms)
        async with stream.slots:
            await self._read(attachment, await self._recent(actor, max(settled_ms, since or 0)))
            while not stream.go_live(attachment):
                await self._read(attachment, order.take_risen(), again=True)

    async def _recent(self, actor: Actor, since_ms: int | None) -> Mapping[ConversationId, int]:
        await self._rebuild.ensure(actor.tenant, actor.user)
        return await self._lists.since(actor.tenant, actor.user, since_ms)

    async def _read(
        self, attachment: Attachment, conversations: Mapping[ConversationId, int], *, again: bool = False
    ) -> None:
        """Send what waits in these conversations, each with the time (ms) from which on something may wait."""
        order = attachment.order
        asked = [conversation for conversation in conversations if again or not order.is_caught(conversation)]
        try:
            for start in range(0, len(asked), STATES_PER_CALL):
                async with self._questions:
                    waiting = await self._mailbox.outstanding(attachment.actor, asked[start : start + STATES_PER_CALL])
                for outstanding in waiting:
                    await self._conversation(attachment, outstanding, conversations[outstanding.conversation])
        except BaseException:
            if again:
                # They were taken from what has risen, and are not read.
                _rise_again(attachment, conversations.items())
            raise

    async def _conversation(self, attachment: Attachment, outstanding: Outstanding, since_ms: int) -> None:
        conversation, order = outstanding.conversation, attachment.order
        order.begin(conversation)
        complete = False
        try:
            await self._pages(attachment, outstanding, since_ms)
            complete = True
        finally:
            waiting = order.finish(conversation, complete=complete)
        for message in waiting:
            attachment.stream.deliver(message, [attachment])

    async def _pages(self, attachment: Attachment, outstanding: Outstanding, since_ms: int) -> None:
        conversation, stream = outstanding.conversation, attachment.stream
        generation = outstanding.generation
        after = Cursor(generation, outstanding.after_seq)
        queued = [attachment.order.sent_upto(conversation), attachment.unacknowledged.newest(conversation)]
        known = [upto for upto in queued if upto is not None]
        if current := [upto for upto in known if upto.generation == generation]:
            # Who was sent something of this generation was told before to leave the older ones.
            after, outstanding = max(after, *current), replace(outstanding, older=False)
        elif any(upto.generation < generation for upto in known):
            outstanding = replace(outstanding, older=True)
        while True:
            try:
                self._mailbox.check_generation(outstanding)
                async with self._questions:
                    page = await self._mailbox.page(
                        attachment.actor, conversation, after_seq=after.seq, limit=PAGE_ENTRIES
                    )
            except ResyncRequired as error:
                newest = Cursor(int(error.metadata["generation"]), int(error.metadata["newest_seq"]))
                await stream.send(self._encoder.resync_required(conversation, newest), attachment)
                attachment.note_caught(conversation, newest, since_ms)
                return
            for content in page.entries:
                event, last_seq = self._encoder.entry(conversation, page.generation, content)
                await stream.send(event, attachment)
                # Entry by entry, and not before it is queued: whatever ends this reading, the next one goes on here.
                last = Cursor(page.generation, last_seq)
                attachment.note_caught(conversation, last, page.first_time_ms or since_ms)
            after = Cursor(page.generation, max(page.next_after_seq, after.seq))
            attachment.order.progress(conversation, after)
            if not page.more:
                return


async def _patiently(work: Callable[[], Awaitable[_T]]) -> _T:
    """The result of `work`, which is repeated while a store or the writer does not answer."""
    backoff = Backoff()
    while True:
        try:
            return await work()
        except QimError as error:
            _log.debug("an attachment waits", extra={"error": str(error)})
        except AttachmentEnded:
            raise
        except Exception:  # noqa: BLE001  whatever it is, the attachment must not be left without an end
            _log.exception("an attachment cannot catch up")
        await backoff.sleep()


def _rise_again(attachment: Attachment, conversations: Iterable[tuple[ConversationId, int]]) -> None:
    for conversation, time_ms in conversations:
        if not attachment.order.is_caught(conversation):
            attachment.order.rise(conversation, time_ms)

"""Acknowledgements of one stream: gathered while they wait, and carried out many at a time.

What the stream itself has delivered moves the device's cursor at once; only for other seqs the writer is asked how far
a cursor may go (design.md invariant 12). What cannot be stored now waits, no device for another one, and the stream
reads no further once too much of it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Final

from qim_common.backoff import Backoff
from qim_common.errors import QimError
from qim_common.ids import ConversationId
from qim_session.commands.live.attachment import Attachment
from qim_session.commands.live.events import EventEncoder
from qim_session.commands.mailbox import ACKNOWLEDGEMENTS_MAX, Acknowledgement, Mailbox
from qim_session.domain.cursors import Cursor
from qim_session.storage.cursors import Cursors

_log = logging.getLogger(__name__)

STORING_AT_ONCE: Final = 64
ASKING_AT_ONCE: Final = 32
"""Devices of one stream that wait for the writer; those that need not ask it do not wait for them."""

CURSORS_WAITING_MAX: Final = 100_000


class Acknowledging:
    """What is added is carried out by a task for each device; `close` ends them."""

    def __init__(self, mailbox: Mailbox, cursors: Cursors, encoder: EventEncoder) -> None:
        self._mailbox = mailbox
        self._cursors = cursors
        self._encoder = encoder
        self._waiting: dict[Attachment, dict[ConversationId, Cursor]] = {}
        self._working: dict[Attachment, asyncio.Task[None]] = {}
        self._size = 0
        self._done = asyncio.Event()
        self._storing = asyncio.Semaphore(STORING_AT_ONCE)
        self._asking = asyncio.Semaphore(ASKING_AT_ONCE)

    def add(self, attachment: Attachment, cursors: Iterable[tuple[ConversationId, Cursor]]) -> None:
        """Everything up to these has arrived on the device; of a conversation the furthest counts."""
        waiting = self._waiting.setdefault(attachment, {})
        before = len(waiting)
        for conversation, cursor in cursors:
            known = waiting.get(conversation)
            if known is None or cursor > known:
                waiting[conversation] = cursor
        self._size += len(waiting) - before
        if attachment not in self._working:
            self._working[attachment] = asyncio.create_task(self._work(attachment), name="live acknowledgements")

    async def room(self) -> None:
        """Wait until not too much waits."""
        while self._size >= CURSORS_WAITING_MAX:
            self._done.clear()
            await self._done.wait()

    def is_through(self, attachment: Attachment) -> bool:
        """Whether nothing of the attachment waits."""
        return attachment not in self._working

    async def through(self, attachment: Attachment | None = None) -> None:
        """Wait until everything (of one attachment) is stored."""
        while self._working if attachment is None else not self.is_through(attachment):
            self._done.clear()
            await self._done.wait()

    async def close(self) -> None:
        """Give up what waits: what it was for comes again."""
        for task in list(self._working.values()):
            await stopped(task)

    async def _work(self, attachment: Attachment) -> None:
        backoff = Backoff()
        try:
            while cursors := self._waiting.pop(attachment, None):
                again = False
                try:
                    await self._store(attachment, cursors)
                except QimError as error:
                    _log.warning("acknowledgements wait", extra={"error": str(error)})
                    again = True
                except Exception:  # noqa: BLE001  whatever it is, the device's next ones are carried out
                    _log.exception("acknowledgements are dropped; what they were for comes again")
                self._size -= len(cursors)
                if again:
                    self.add(attachment, cursors.items())
                self._done.set()
                if again:
                    await backoff.sleep()
                else:
                    backoff.reset()
        finally:
            del self._working[attachment]
            self._done.set()

    async def _store(self, attachment: Attachment, cursors: dict[ConversationId, Cursor]) -> None:
        actor, sent = attachment.actor, attachment.unacknowledged
        own = {conversation: cursor for conversation, cursor in cursors.items() if sent.covers(conversation, cursor)}
        others = [Acknowledgement(conversation, cursors[conversation]) for conversation in cursors.keys() - own.keys()]
        rows = list(own.items())
        for start in range(0, len(rows), ACKNOWLEDGEMENTS_MAX):
            part = dict(rows[start : start + ACKNOWLEDGEMENTS_MAX])
            async with self._storing:
                await self._cursors.advance_device(actor.tenant, actor.user, actor.device, part)
        for conversation, cursor in own.items():
            sent.acknowledged(conversation, cursor)
        for start in range(0, len(others), ACKNOWLEDGEMENTS_MAX):
            await self._ask(attachment, others[start : start + ACKNOWLEDGEMENTS_MAX])

    async def _ask(self, attachment: Attachment, acknowledgements: list[Acknowledgement]) -> None:
        """Those of another generation are answered with the present one, all at once."""
        async with self._asking:
            stale = await self._mailbox.acknowledge_current(attachment.actor, acknowledgements)
        told = {resync.conversation for resync in stale}
        for resync in stale:
            event = self._encoder.resync_required(resync.conversation, resync.cursor)
            attachment.stream.tell(event, [attachment])
        for acknowledgement in acknowledgements:
            if acknowledgement.conversation not in told:
                attachment.unacknowledged.acknowledged(acknowledgement.conversation, acknowledgement.cursor)


async def stopped(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait([task])

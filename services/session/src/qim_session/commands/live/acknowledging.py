"""Acknowledgements of one stream: gathered while they wait, and carried out many at a time.

What the stream itself has delivered moves the device's cursor at once; only for other seqs the writer is asked how far
a cursor may go (design.md invariant 12). What cannot be stored now waits, and its stream reads no further once too much
of it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Sequence
from typing import Final

from qim_common.backoff import Backoff
from qim_common.errors import QimError, ResyncRequired
from qim_common.ids import ConversationId
from qim_session.commands.live.attachment import Attachment
from qim_session.commands.live.events import EventEncoder
from qim_session.commands.mailbox import ACKNOWLEDGEMENTS_MAX, Acknowledgement, Mailbox
from qim_session.domain.cursors import Cursor
from qim_session.storage.cursors import Cursors

_log = logging.getLogger(__name__)

DEVICES_AT_ONCE: Final = 64
CURSORS_WAITING_MAX: Final = 100_000


class Acknowledging:
    """Run `run` in a task; cancel it to stop."""

    def __init__(self, mailbox: Mailbox, cursors: Cursors, encoder: EventEncoder) -> None:
        self._mailbox = mailbox
        self._cursors = cursors
        self._encoder = encoder
        self._waiting: dict[Attachment, dict[ConversationId, Cursor]] = {}
        self._busy: set[Attachment] = set()
        self._size = 0
        self._news = asyncio.Event()
        self._done = asyncio.Event()

    def add(self, attachment: Attachment, cursors: Sequence[tuple[ConversationId, Cursor]]) -> None:
        """Everything up to these has arrived on the device; of a conversation the furthest counts."""
        waiting = self._waiting.setdefault(attachment, {})
        before = len(waiting)
        for conversation, cursor in cursors:
            known = waiting.get(conversation)
            if known is None or cursor > known:
                waiting[conversation] = cursor
        self._size += len(waiting) - before
        self._news.set()

    async def room(self) -> None:
        """Wait until not too much waits."""
        while self._size >= CURSORS_WAITING_MAX:
            self._done.clear()
            await self._done.wait()

    def is_through(self, attachment: Attachment) -> bool:
        """Whether nothing of the attachment waits."""
        return attachment not in self._waiting and attachment not in self._busy

    async def through(self, attachment: Attachment | None = None) -> None:
        """Wait until everything (of one attachment) is stored."""
        while (self._waiting or self._busy) if attachment is None else not self.is_through(attachment):
            self._done.clear()
            await self._done.wait()

    async def run(self) -> None:
        """Carry out until cancelled."""
        backoff = Backoff()
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            taken = [self._take(attachment) for attachment in list(itertools.islice(self._waiting, DEVICES_AT_ONCE))]
            results = await asyncio.gather(
                *(self._store(attachment, cursors) for attachment, cursors in taken), return_exceptions=True
            )
            failed = False
            for (attachment, cursors), result in zip(taken, results, strict=True):
                self._busy.discard(attachment)
                if isinstance(result, QimError):
                    failed = True
                    _log.warning("acknowledgements wait", extra={"error": str(result)})
                    self.add(attachment, list(cursors.items()))
                elif isinstance(result, Exception):
                    _log.error("acknowledgements are dropped; what they were for comes again", exc_info=result)
            self._done.set()
            if failed:
                await backoff.sleep()
            else:
                backoff.reset()

    def _take(self, attachment: Attachment) -> tuple[Attachment, dict[ConversationId, Cursor]]:
        cursors = self._waiting.pop(attachment)
        self._size -= len(cursors)
        self._busy.add(attachment)
        return attachment, cursors

    async def _store(self, attachment: Attachment, cursors: dict[ConversationId, Cursor]) -> None:
        actor, sent = attachment.actor, attachment.unacknowledged
        own = {conversation: cursor for conversation, cursor in cursors.items() if sent.covers(conversation, cursor)}
        others = [Acknowledgement(conversation, cursors[conversation]) for conversation in cursors.keys() - own.keys()]
        rows = list(own.items())
        for start in range(0, len(rows), ACKNOWLEDGEMENTS_MAX):
            part = dict(rows[start : start + ACKNOWLEDGEMENTS_MAX])
            await self._cursors.advance_device(actor.tenant, actor.user, actor.device, part)
        for start in range(0, len(others), ACKNOWLEDGEMENTS_MAX):
            for acknowledgement in await self._ask(attachment, others[start : start + ACKNOWLEDGEMENTS_MAX]):
                sent.acknowledged(acknowledgement.conversation, acknowledgement.cursor)
        for conversation, cursor in own.items():
            sent.acknowledged(conversation, cursor)

    async def _ask(self, attachment: Attachment, acknowledgements: list[Acknowledgement]) -> list[Acknowledgement]:
        """Those that were taken; one of another generation is answered with the present one, and holds up no other."""
        while acknowledgements:
            try:
                await self._mailbox.acknowledge(attachment.actor, acknowledgements)
            except ResyncRequired as error:
                conversation = ConversationId(bytes.fromhex(error.metadata["conversation_id"]))
                newest = Cursor(int(error.metadata["generation"]), int(error.metadata["newest_seq"]))
                attachment.stream.tell(self._encoder.resync_required(conversation, newest), [attachment])
                acknowledgements = [ack for ack in acknowledgements if ack.conversation != conversation]
            else:
                break
        return acknowledgements


async def stopped(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait([task])

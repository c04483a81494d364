"""One Subscribe stream: its attachments, from attach to their end, and what waits to be written to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from qim_common.errors import InvalidArgument, Overloaded, QimError
from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.commands.live.acknowledging import Acknowledging, stopped
from qim_session.commands.live.attachment import Attachment, AttachmentEnded
from qim_session.commands.live.catch_up import CatchUp
from qim_session.commands.live.connected import Connected
from qim_session.commands.live.events import EventEncoder, WireEvent
from qim_session.commands.live.outbox import Outbox
from qim_session.commands.live.tails import LiveTails
from qim_session.commands.live.tokens import ResumeTokens
from qim_session.domain.cursors import Cursor
from qim_session.domain.delivery_order import LiveMessage, Phase

LAST_ACKNOWLEDGEMENTS_SECONDS: Final = 5.0
"""How long a detach, and a stream's end, waits for acknowledgements to be stored before its token is made."""

CATCHING_AT_ONCE: Final = 16
"""Attachments of one stream that read their mailboxes at the same time."""

_ENDED_OK: Final = "OK"


@dataclass(frozen=True, slots=True)
class LiveLimits:
    """Bounds of one stream. `token_seconds`: how often an attachment gets a newer token at most."""

    events_max: int
    bytes_max: int
    attachments_max: int
    token_seconds: float


@dataclass(frozen=True, slots=True)
class LiveParts:
    """What all streams of a process share."""

    connected: Connected
    catch_up: CatchUp
    tails: LiveTails
    tokens: ResumeTokens
    encoder: EventEncoder
    metrics: SessionMetrics
    limits: LiveLimits


class LiveStream:
    """The stream of one gateway. Call `start` first, and `finish` or `abort` at the end.

    Attributes:
        outbox: what waits to be written.
        slots: of attachments that read their mailboxes.
    """

    def __init__(self, parts: LiveParts, acknowledging: Acknowledging) -> None:
        self._parts = parts
        self._acknowledging = acknowledging
        self._attachments: dict[int, Attachment] = {}
        self._owed: deque[tuple[float, Attachment]] = deque()
        self._ending: set[asyncio.Task[None]] = set()
        self._workers: list[asyncio.Task[None]] = []
        self.outbox = Outbox(events_max=parts.limits.events_max, bytes_max=parts.limits.bytes_max)
        self.slots = asyncio.Semaphore(CATCHING_AT_ONCE)

    def start(self) -> None:
        """Begin the work behind the stream."""
        self._workers = [asyncio.create_task(self._pay_tokens(), name="live tokens")]

    def check_number(self, number: int, field: str) -> None:
        """Raises InvalidArgument for a number that is none, or that an attachment has which has not ended."""
        if number < 1:
            raise InvalidArgument(field, "must be from 1")
        if number in self._attachments:
            raise InvalidArgument(field, "is the number of an attachment that has not ended")

    def attach(self, number: int, actor: Actor | QimError, token: str) -> None:
        """Attach a device under a checked number.

        A refused actor, and a token that is none, end the attachment at once and nothing else.
        """
        if isinstance(actor, QimError):
            self._say_end(number, actor, "")
        elif len(self._attachments) >= self._parts.limits.attachments_max:
            self._say_end(number, Overloaded(message="the stream has as many attachments as it may have"), token)
        else:
            try:
                since_ms, logs = self._parts.tokens.open(actor, token) if token else (None, 0)
            except QimError as error:
                self._say_end(number, error, "")
                return
            attachment = Attachment(self, number, actor, token=token, since_ms=since_ms, logs=logs)
            self._attachments[number] = attachment
            self._parts.connected.add(attachment)
            self._parts.metrics.attachments.inc()
            if token:
                self.tell(self._parts.encoder.states_changed(), [attachment])
            self._catch_up(attachment)

    def acknowledge(self, number: int, cursors: Sequence[tuple[ConversationId, Cursor]]) -> None:
        """Everything up to these has arrived; nothing happens where the attachment has ended."""
        attachment = self._attachments.get(number)
        if attachment is not None and cursors:
            taken = [
                (conversation, attachment.acknowledgeable(conversation, cursor)) for conversation, cursor in cursors
            ]
            self._acknowledging.add(attachment, taken)

    def refuse(self, number: int, error: QimError) -> None:
        """What was asked of an attachment is malformed: it ends; nothing happens where it has ended."""
        attachment = self._attachments.get(number)
        if attachment is not None:
            self._end(attachment, error)

    def detach(self, number: int) -> None:
        """End an attachment when its acknowledgements are stored; nothing happens where it has ended."""
        attachment = self._attachments.get(number)
        if attachment is None:
            return
        if self._acknowledging.is_through(attachment):
            self._end(attachment, None)
            return
        task = asyncio.create_task(self._detach(attachment), name="live detach")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def room(self) -> None:
        """Wait until the stream may read its next request: what the last ones asked for must not pile up."""
        await self._acknowledging.room()
        await self.outbox.not_full()

    def deliver(self, message: LiveMessage, attachments: Sequence[Attachment]) -> None:
        """Queue one delivered message for attachments of this stream whose turn it is; without room they end."""
        present = _present(attachments)
        if not present:
            return
        if self.outbox.put(WireEvent(message.wire), [attachment.number for attachment in present]):
            for attachment in present:
                attachment.note_sent(message)
            self._parts.metrics.delivered_events.inc(len(present))
        else:
            self._overflow(present)

    def tell(self, event: WireEvent, attachments: Sequence[Attachment]) -> None:
        """Queue another event at once; without room its attachments end."""
        present = _present(attachments)
        if present and not self.outbox.put(event, [attachment.number for attachment in present]):
            self._overflow(present)

    async def send(self, event: WireEvent, attachment: Attachment) -> None:
        """Queue an event of an attachment that catches up, when half of the room is free; the other half is for what
        cannot wait. Raises AttachmentEnded."""
        while attachment.order.phase is not Phase.ENDED:
            if self.outbox.has_room and self.outbox.put(event, [attachment.number]):
                break
            await self.outbox.room()
        else:
            raise AttachmentEnded
        self._parts.metrics.delivered_events.inc()

    def go_live(self, attachment: Attachment) -> bool:
        """Everything before was queued: say so, with a token, and go live; False where something has risen.

        Raises AttachmentEnded.
        """
        if attachment.order.phase is Phase.ENDED:
            raise AttachmentEnded
        if not attachment.order.go_live():
            return False
        attachment.token = self._token(attachment)
        self.outbox.put_notice(self._parts.encoder.attached(attachment.token), [attachment.number])
        return True

    def owe_token(self, attachment: Attachment) -> None:
        """Something was delivered: a newer token follows in a while."""
        due = asyncio.get_running_loop().time() + self._parts.limits.token_seconds
        self._owed.append((due, attachment))

    def catch_up_again(self, attachment: Attachment, since_ms: int) -> None:
        """What the log brings had a gap from this moment (ms) on."""
        from_ms = attachment.unacknowledged.resume_ms(since_ms)
        if attachment.order.phase is Phase.LIVE:
            attachment.since_ms, attachment.logs = from_ms, self._parts.tails.identity
        elif attachment.since_ms is not None:
            attachment.since_ms = min(attachment.since_ms, from_ms)
        attachment.order.fall_behind()
        self.tell(self._parts.encoder.states_changed(), [attachment])
        if attachment.order.phase is not Phase.ENDED:
            self._catch_up(attachment)

    async def finish(self) -> None:
        """The orderly end: acknowledgements are stored, every attachment gets its token, and the outbox is closed."""
        try:
            async with asyncio.timeout(LAST_ACKNOWLEDGEMENTS_SECONDS):
                await self._acknowledging.through()
        except TimeoutError:
            pass  # what was not stored comes again
        for attachment in list(self._attachments.values()):
            self._end(attachment, None, stream_ends=True)
        self.outbox.close()

    async def abort(self) -> None:
        """End everything at once; without effect after everything has ended."""
        for attachment in list(self._attachments.values()):
            self._end(attachment, None, stream_ends=True)
        for task in (*self._workers, *self._ending):
            await stopped(task)
        await self._acknowledging.close()

    async def _detach(self, attachment: Attachment) -> None:
        try:
            async with asyncio.timeout(LAST_ACKNOWLEDGEMENTS_SECONDS):
                await self._acknowledging.through(attachment)
        except TimeoutError:
            pass
        self._end(attachment, None)

    def _overflow(self, attachments: Sequence[Attachment]) -> None:
        for attachment in attachments:
            self._end(attachment, Overloaded(message="the stream is read too slowly; attach again with the token"))

    def _end(self, attachment: Attachment, error: QimError | None, *, stream_ends: bool = False) -> None:
        if attachment.order.phase is Phase.ENDED:
            return
        token = self._token(attachment) if attachment.order.phase is Phase.LIVE else attachment.token
        attachment.order.end()
        del self._attachments[attachment.number]
        self._parts.connected.remove(attachment)
        self._parts.metrics.attachments.dec()
        task, attachment.catching = attachment.catching, None
        if task is not None:
            task.cancel()
        self._say_end(attachment.number, error, token, stream_ends=stream_ends)

    def _say_end(self, number: int, error: QimError | None, token: str, *, stream_ends: bool = False) -> None:
        self._parts.metrics.detached.labels(_ENDED_OK if error is None else error.reason).inc()
        self.outbox.put_notice(self._parts.encoder.detached(error, token, stream_ends=stream_ends), [number])

    def _token(self, attachment: Attachment) -> str:
        time_ms = attachment.unacknowledged.resume_ms(self._parts.tails.settled_ms)
        return self._parts.tokens.issue(attachment.actor, time_ms, self._parts.tails.identity)

    def _catch_up(self, attachment: Attachment) -> None:
        before = attachment.catching
        if before is not None:
            before.cancel()
        attachment.catching = asyncio.create_task(
            self._parts.catch_up.run(attachment, after=before), name="live catching up"
        )

    async def _pay_tokens(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._parts.limits.token_seconds))
            now = asyncio.get_running_loop().time()
            while self._owed and self._owed[0][0] <= now:
                _, attachment = self._owed.popleft()
                attachment.owes_token = False
                if attachment.order.phase is Phase.LIVE:
                    attachment.token = self._token(attachment)
                    # One that finds no room is not missed: the next one says more.
                    self.outbox.put(self._parts.encoder.resume(attachment.token), [attachment.number])


def _present(attachments: Sequence[Attachment]) -> list[Attachment]:
    """Those that have not ended: nothing of an attachment follows its end, and its number may be another one's."""
    return [attachment for attachment in attachments if attachment.order.phase is not Phase.ENDED]

"""One device of one person, attached to a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_session.domain.cursors import Cursor
from qim_session.domain.delivery_order import DeliveryOrder, LiveMessage
from qim_session.domain.resume import Unacknowledged

if TYPE_CHECKING:
    import asyncio

    from qim_session.commands.live.stream import LiveStream


class AttachmentEnded(Exception):  # noqa: N818  it is no error
    """Whoever still works for an attachment stops."""


class Attachment:
    """The state of an attachment; its stream decides when it ends.

    Attributes:
        number: chosen by the gateway.
        since_ms: what was delivered earlier needs no look while catching up; None: all of it does.
        logs: which dispatch logs `since_ms` is of, as `LiveTails.identity`.
        token: the newest that was issued, or the one that it began with; empty: none.
        catching: the task that catches up, while it runs.
        owes_token: something was delivered since `token`.
    """

    __slots__ = (
        "actor",
        "catching",
        "logs",
        "number",
        "order",
        "owes_token",
        "since_ms",
        "stream",
        "token",
        "unacknowledged",
    )

    def __init__(
        self, stream: LiveStream, number: int, actor: Actor, *, token: str, since_ms: int | None, logs: int
    ) -> None:
        self.stream = stream
        self.number = number
        self.actor = actor
        self.token = token
        self.since_ms = since_ms
        self.logs = logs
        self.order = DeliveryOrder()
        self.unacknowledged = Unacknowledged()
        self.catching: asyncio.Task[None] | None = None
        self.owes_token = False

    def note_caught(self, conversation: ConversationId, upto: Cursor, time_ms: int) -> None:
        """While catching up everything up to `upto` was queued; what is unacknowledged of it came from `time_ms` on."""
        self.unacknowledged.sent(conversation, upto, time_ms)
        self.order.progress(conversation, upto)

    def acknowledgeable(self, conversation: ConversationId, cursor: Cursor) -> Cursor:
        """`cursor`, or up to where the conversation was queued while the rest of it still is to be.

        What a device says to have before it was sent must not hide what is next. Of a conversation of which nothing
        was queued, an earlier stream or a pull may have brought everything: that is judged by its owner.
        """
        if self.order.is_whole(conversation):
            return cursor
        queued = [self.order.sent_upto(conversation), self.unacknowledged.newest(conversation)]
        known = [upto for upto in queued if upto is not None and upto.generation == cursor.generation]
        return min(cursor, max(known)) if known else cursor

    def note_sent(self, message: LiveMessage) -> None:
        """A message of the log was queued."""
        self.unacknowledged.sent(message.conversation, message.cursor, message.time_ms)
        if not self.owes_token:
            self.owes_token = True
            self.stream.owe_token(self)

"""What of an attachment's messages may be sent now, so that each conversation's seqs ascend without a gap. Pure.

An attachment catches up conversation by conversation from its owner, while the log already brings what is committed
meanwhile. A conversation that was read to its end is caught up: what the log brings after the seq at which the reading
ended goes out at once. One that was not read yet is only marked as risen, and read in its turn; and what comes for the
one that is being read waits until the reading has ended. So no acknowledgement of a later seq can swallow an earlier
one that was not sent, and every conversation is read once however busy it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from qim_common.ids import ConversationId
from qim_session.domain.cursors import Cursor

WAITING_MAX: Final = 1_000
"""Messages that wait for the reading of their conversation to end; with more of them it is read once more."""


class Phase(Enum):
    """Where an attachment stands."""

    CATCHING = "catching"
    """What was delivered before is being sent."""

    LIVE = "live"
    """It gets what the log brings."""

    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """One delivered seq as the log brings it; `wire` is the event in its wire form, shared by all who get it."""

    conversation: ConversationId
    cursor: Cursor
    time_ms: int
    wire: bytes


@dataclass(slots=True)
class DeliveryOrder:
    """The state of one attachment."""

    phase: Phase = Phase.CATCHING
    _risen: dict[ConversationId, int] = field(default_factory=dict)
    _sent: dict[ConversationId, Cursor] = field(default_factory=dict)
    _caught: set[ConversationId] = field(default_factory=set)
    _reading: ConversationId | None = None
    _waiting: list[LiveMessage] = field(default_factory=list)

    def offer(self, message: LiveMessage) -> bool:
        """The log brings a message: whether it is to be sent now."""
        conversation = message.conversation
        if self.phase is Phase.CATCHING and conversation not in self._caught:
            if conversation == self._reading and len(self._waiting) < WAITING_MAX:
                self._waiting.append(message)
            else:
                self._risen.setdefault(conversation, message.time_ms)
            return False
        if self.phase is Phase.ENDED:
            return False
        if self._sent:
            sent = self._sent.get(conversation)
            return sent is None or message.cursor > sent
        return True

    def begin(self, conversation: ConversationId) -> None:
        """The conversation is being read from its owner; one at a time."""
        self._risen.pop(conversation, None)
        self._reading = conversation
        self._waiting = []

    def progress(self, conversation: ConversationId, upto: Cursor) -> None:
        """Everything up to `upto` has been sent."""
        self._sent[conversation] = max(upto, self._sent.get(conversation, upto))

    def finish(self, conversation: ConversationId, *, complete: bool) -> list[LiveMessage]:
        """The reading has ended, at the conversation's end if `complete`: what waited for it and is to be sent now."""
        waiting, self._waiting, self._reading = self._waiting, [], None
        if not complete or conversation in self._risen:
            # Risen while it was read: more came than could wait.
            if waiting:
                self._risen.setdefault(conversation, waiting[0].time_ms)
            return []
        self._caught.add(conversation)
        sent = self._sent.get(conversation)
        return [message for message in waiting if sent is None or message.cursor > sent]

    def take_risen(self) -> dict[ConversationId, int]:
        """Conversations that have to be read (once more), with the time (ms) from which on; they are forgotten here."""
        risen, self._risen = self._risen, {}
        return risen

    def rise(self, conversation: ConversationId, time_ms: int) -> None:
        """The conversation has to be read (once more)."""
        self._risen.setdefault(conversation, time_ms)

    def is_caught(self, conversation: ConversationId) -> bool:
        """Whether it was read to its end."""
        return conversation in self._caught

    def is_whole(self, conversation: ConversationId) -> bool:
        """Whether everything up to the conversation's end was sent, so that only what is new follows."""
        return self.phase is not Phase.CATCHING or conversation in self._caught

    def sent_upto(self, conversation: ConversationId) -> Cursor | None:
        """Up to where the conversation was sent while catching up; None: nothing of it was."""
        return self._sent.get(conversation)

    def go_live(self) -> bool:
        """Everything was read: live from now on, unless something has risen."""
        if self._risen or self.phase is Phase.ENDED:
            return False
        self.phase = Phase.LIVE
        self._caught.clear()
        return True

    def settle(self) -> None:
        """The log has passed the end of catching up, so that it brings nothing any more that was sent then."""
        if self.phase is Phase.LIVE:
            self._sent.clear()

    def fall_behind(self) -> None:
        """What the log brings is no longer complete: everything has to be read again."""
        if self.phase is not Phase.ENDED:
            self.phase = Phase.CATCHING
            self._caught.clear()

    def end(self) -> None:
        """Nothing is sent any more."""
        self.phase = Phase.ENDED
        self._risen, self._sent, self._waiting = {}, {}, []
        self._caught.clear()

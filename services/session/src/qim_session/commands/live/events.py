"""Events in their wire form, which the handlers know how to make."""

from __future__ import annotations

from typing import NamedTuple, NewType, Protocol

from qim_common.errors import QimError
from qim_common.ids import ConversationId
from qim_common.records import DispatchItem, MessageBlock
from qim_session.domain.cursors import Cursor
from qim_session.domain.signals import Signal
from qim_session.domain.state_entries import StateNow
from qim_session.storage.conversations import WireMessage, Withheld

WireEvent = NewType("WireEvent", bytes)
"""A `SubscribeEvent` without its attachments: made once, however many get it."""


class WireEntryEvent(NamedTuple):
    """An entry of a mailbox as an event, and the last seq that it brings."""

    event: WireEvent
    last_seq: int


class EventEncoder(Protocol):
    """Makes wire events."""

    def message(self, block: MessageBlock, item: DispatchItem, time_ms: int) -> WireEvent:
        """A message of the log whose tail is there."""
        ...

    def entry(self, conversation: ConversationId, generation: int, content: WireMessage | Withheld) -> WireEntryEvent:
        """An entry of a mailbox."""
        ...

    def state(self, state: StateNow, *, with_revision: bool) -> WireEvent:
        """A change without a seq; without its revision to who is outside."""
        ...

    def signal(self, signal: Signal) -> WireEvent:
        """A read mark, or flags."""
        ...

    def states_changed(self) -> WireEvent:
        """States may have changed that were not sent."""
        ...

    def attached(self, token: str) -> WireEvent:
        """Everything delivered before has been sent."""
        ...

    def resume(self, token: str) -> WireEvent:
        """A newer token."""
        ...

    def resync_required(self, conversation: ConversationId, newest: Cursor) -> WireEvent:
        """The mailbox does not hold the conversation any more."""
        ...

    def detached(self, error: QimError | None, token: str, *, stream_ends: bool) -> WireEvent:
        """The attachment has ended; `stream_ends`: with its stream, whether or not a detach was asked for."""
        ...

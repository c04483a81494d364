"""What a subscription brings, as frozen values; times and seqs as in `qim_client.values`.

Each event belongs to one attachment: one connected device of one person.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from qim_client.answers import MailboxEntry
from qim_client.values import DeviceCursor, Message, SeqRange, StateEntry
from qim_common.errors import QimError
from qim_common.ids import ConversationId

if TYPE_CHECKING:
    from qim_client.attachment import Attachment


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message, or a stretch of delivered seqs without bodies. It comes again, later, until it is acknowledged."""

    attachment: Attachment
    entry: MailboxEntry

    @property
    def conversation(self) -> ConversationId:
        """Where it was delivered."""
        return self.entry.conversation

    @property
    def message(self) -> Message | None:
        """The message; None where it is withheld."""
        return self.entry.message

    @property
    def withheld(self) -> SeqRange | None:
        """The seqs that are delivered without bodies; None where there is a message."""
        return self.entry.withheld

    @property
    def cursor(self) -> DeviceCursor:
        """What to acknowledge when this has arrived."""
        return self.entry.cursor


@dataclass(frozen=True, slots=True)
class StateChanged:
    """A change without a seq, and what holds from then on; `change` never says by whom, nor version and head."""

    attachment: Attachment
    conversation: ConversationId
    change: StateEntry


@dataclass(frozen=True, slots=True)
class ReadMarked:
    """Another device of the person has read up to `read_seq`."""

    attachment: Attachment
    conversation: ConversationId
    generation: int
    read_seq: int


@dataclass(frozen=True, slots=True)
class FlagsChanged:
    """Another device of the person has set these."""

    attachment: Attachment
    conversation: ConversationId
    hidden: bool
    muted: bool


@dataclass(frozen=True, slots=True)
class StatesChanged:
    """States, read marks or flags may have changed that were not sent: read the conversations' entries again."""

    attachment: Attachment


@dataclass(frozen=True, slots=True)
class Attached:
    """Everything delivered before the attach has come. After a reconnection it comes once more."""

    attachment: Attachment
    resume_token: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """A newer resume token; the older ones stay valid, and repeat more."""

    attachment: Attachment
    resume_token: str


@dataclass(frozen=True, slots=True)
class ResyncRequired:
    """The mailbox no longer holds all that was delivered: read the entry and the history, then acknowledge `cursor`."""

    attachment: Attachment
    conversation: ConversationId
    generation: int
    newest_seq: int

    @property
    def cursor(self) -> DeviceCursor:
        """What to acknowledge after reading the history."""
        return DeviceCursor(self.conversation, self.generation, self.newest_seq)


@dataclass(frozen=True, slots=True)
class Detached:
    """The attachment has ended, nothing of it follows; attach anew with `resume_token` to go on.

    `error` is None after `Attachment.detach`. OVERLOADED: the events were taken too slowly. TENANT_NOT_ALLOWED,
    INVALID_ARGUMENT, PAGE_TOKEN_INVALID: the attach cannot be taken as it was.
    """

    attachment: Attachment
    error: QimError | None
    resume_token: str

    @property
    def reason(self) -> str:
        """The error's reason; empty without one."""
        return "" if self.error is None else self.error.reason


LiveEvent: TypeAlias = (
    Delivered
    | StateChanged
    | ReadMarked
    | FlagsChanged
    | StatesChanged
    | Attached
    | Resumed
    | ResyncRequired
    | Detached
)

"""What push consumers need beside `storage`, and the sink that whoever writes one implements (docs/push.md).

Everything here but the sink can raise `BackendUnavailable`, as in `qim_session.storage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from qim_common.errors import BackendUnavailable
from qim_common.ids import ConversationId, TenantId, UserId
from qim_session.domain.push import Notification, PushMarks

MARKS_PER_CALL = 1000
"""The most people of one `PushMarkSource.of`."""


class SinkUnavailable(BackendUnavailable):
    """The receiver does not take anything now; the same batch comes again."""

    default_message = "the push receiver does not take notifications now"


class PushSink(Protocol):
    """Where notifications go."""

    async def deliver(self, batch: Sequence[Notification]) -> None:
        """Take all of `batch`; when this returns, they need not come again.

        It is called for several batches at once, of one partition for one after the other, and is cancelled when this
        process loses the partition. Bound your own time: a partition waits for as long as this takes.

        Raises SinkUnavailable, or anything else: nothing is taken as delivered and the batch comes again, after pauses
        that grow to 5 s, until the messages are older than the consumer's bound. What can never be taken is the sink's
        own to drop.
        """
        ...


class PushCheckpoints(Protocol):
    """Up to where the sink has taken everything; as stored, whatever it says."""

    async def read(self, partitions: Sequence[int]) -> list[bytes | None]:
        """In the order asked for."""
        ...

    async def move(self, partition: int, expected: bytes | None, to: bytes) -> bool:
        """A compare-and-set; False: another one is stored, and nothing was changed."""
        ...


@dataclass(frozen=True, slots=True)
class Recipient:
    """One person in one conversation."""

    tenant: TenantId
    user: UserId
    conversation: ConversationId


class PushMarkSource(Protocol):
    """What people have set on conversations."""

    async def of(self, recipients: Sequence[Recipient]) -> list[PushMarks]:
        """Of up to 1,000, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class MessageContent:
    """What the dispatch log leaves out of a large message."""

    sender: UserId
    custom_type: str
    body: bytes


class MessageContents(Protocol):
    """Messages that are too large for the dispatch log, asked of their owner."""

    async def read(
        self, tenant: TenantId, conversation: ConversationId, seq: int, reader: UserId
    ) -> MessageContent | None:
        """As `reader` may see it now; None where they may not."""
        ...

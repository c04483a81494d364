"""PullMailbox: acknowledge, then get what was delivered and is not acknowledged (design.md invariant 12).

Conversations come in the order of their projected place, the longest inactive first, and each one's seqs ascending, so
that a pull that is not acknowledged repeats itself. One that has to be resynchronised is told of as soon as what comes
before it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from qim_common.errors import InvalidArgument, ResyncRequired
from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_session.commands.mailbox import Acknowledgement, Mailbox, Outstanding
from qim_session.commands.rebuild import Rebuild
from qim_session.storage.conversations import STATES_PER_CALL, WireMessage, Withheld
from qim_session.storage.lists import ConversationLists

LIMIT_MAX: Final = 1000
ANSWER_BYTES: Final = 2 * 1024 * 1024
"""Entries that would pass this are left for the next pull; one entry always fits."""

_ENTRY_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class MailboxEntry:
    """A delivered message, or a stretch of delivered seqs without their bodies."""

    conversation: ConversationId
    generation: int
    content: WireMessage | Withheld


@dataclass(slots=True)
class Pulled:
    """The answer as it grows; `more` says that something is left."""

    limit: int
    entries: list[MailboxEntry] = field(default_factory=list)
    more: bool = False
    size: int = 0

    @property
    def room(self) -> int:
        """How many entries still fit."""
        return self.limit - len(self.entries)

    def add(self, entry: MailboxEntry) -> bool:
        """Put in one entry; False when it would make the answer too large, and something is left then."""
        self.size += _ENTRY_BYTES + (0 if isinstance(entry.content, Withheld) else len(entry.content))
        if self.size > ANSWER_BYTES and self.entries:
            self.more = True
            return False
        self.entries.append(entry)
        return True


class PullMailbox:
    """The command behind the method of the same name."""

    def __init__(self, rebuild: Rebuild, lists: ConversationLists, mailbox: Mailbox) -> None:
        self._rebuild = rebuild
        self._lists = lists
        self._mailbox = mailbox

    async def __call__(self, actor: Actor, *, acknowledged: Sequence[Acknowledgement], limit: int) -> Pulled:
        """Acknowledge first, then collect up to `limit` entries.

        Raises:
            InvalidArgument: `limit` outside of 1 to 1,000.
            TooManyItems: more than 1,000 acknowledgements.
            ResyncRequired: an acknowledgement of another generation than the conversation's, nothing was acknowledged
                then; or the first conversation with something to give holds more than a mailbox keeps.
            BackendUnavailable: a store or the writer does not answer; acknowledgements may have been taken.
        """
        if not 1 <= limit <= LIMIT_MAX:
            raise InvalidArgument("limit", f"must be from 1 to {LIMIT_MAX}")
        await self._rebuild.ensure(actor.tenant, actor.user)
        if acknowledged:
            await self._mailbox.acknowledge(actor, acknowledged)
        return await self._collect(actor, limit)

    async def _collect(self, actor: Actor, limit: int) -> Pulled:
        pulled = Pulled(limit)
        conversations = await self._lists.oldest_first(actor.tenant, actor.user)
        for start in range(0, len(conversations), STATES_PER_CALL):
            part = conversations[start : start + STATES_PER_CALL]
            for outstanding in await self._mailbox.outstanding(actor, part):
                if pulled.room == 0:
                    pulled.more = True
                else:
                    await self._fill(actor, pulled, outstanding)
                if pulled.more:
                    return pulled
        return pulled

    async def _fill(self, actor: Actor, pulled: Pulled, outstanding: Outstanding) -> None:
        after = outstanding.after_seq
        while True:
            try:
                self._mailbox.check_generation(outstanding)
                page = await self._mailbox.page(actor, outstanding.conversation, after_seq=after, limit=pulled.room)
            except ResyncRequired:
                if not pulled.entries:
                    raise
                pulled.more = True
                return
            for content in page.entries:
                if not pulled.add(MailboxEntry(outstanding.conversation, page.generation, content)):
                    return
            if not page.more:
                return
            if pulled.room == 0 or page.next_after_seq <= after:
                pulled.more = True
                return
            after = page.next_after_seq

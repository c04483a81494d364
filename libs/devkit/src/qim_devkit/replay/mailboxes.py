"""Mailboxes of a replay: one device per person, which pulls, counts and acknowledges.

A mailbox is bounded (`QIM_MAILBOX_MAX_ENTRIES`), so the devices pull while the history is imported, as real ones do:
the import waits for them whenever it has carried out another `STEP` lines, so that none falls behind at any speed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from qim.session.v1 import session_pb2
from qim_client.actor import MAX_PAGE
from qim_client.services import Services
from qim_common.identity import ACTOR_KEY, Actor
from qim_devkit.importing.cursor import Cursor

STEP: Final = 4_000
"""Lines between two pulls. A newcomer who is in no list yet when the devices pull is pulled for at the next step: twice
this is less than a mailbox holds."""

AT_ONCE: Final = 8
"""Devices that pull at the same time."""


class Mailbox:
    """One person's: `delivered` counts the seqs that it has given so far, withheld ones included."""

    def __init__(self, services: Services, person: Actor) -> None:
        self.delivered = 0
        self._services = services
        self._metadata = ((ACTOR_KEY, person.to_message().SerializeToString()),)

    async def empty(self) -> None:
        """Pull until nothing is left. Raises the QimError of a call that is refused, ResyncRequired among them."""
        request = session_pb2.PullMailboxRequest(limit=MAX_PAGE)
        while True:
            page = await self._services.session.call(lambda stub: stub.PullMailbox, request, metadata=self._metadata)
            if not page.entries:
                return
            for entry in page.entries:
                seq = entry.message.seq
                if entry.HasField("withheld"):
                    seq = entry.withheld.last_seq
                    self.delivered += seq - entry.withheld.first_seq
                self.delivered += 1
            last = page.entries[-1]
            cursor = session_pb2.DeviceCursor(conversation_id=last.conversation_id, generation=last.generation, seq=seq)
            request = session_pb2.PullMailboxRequest(ack=[cursor], limit=MAX_PAGE)


class Devices:
    """The mailboxes of everybody whose answers are compared."""

    def __init__(self, mailboxes: Iterable[Mailbox]) -> None:
        self._mailboxes = tuple(mailboxes)
        self._pulled_at = 0
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def keep_up(self, cursor: Cursor) -> None:
        """Pull if the import has come a step further. Raises what `Mailbox.empty` raises."""
        if cursor.done - self._pulled_at < STEP:
            return
        self._pulled_at = cursor.done
        await asyncio.gather(*map(self._empty, self._mailboxes))

    async def _empty(self, mailbox: Mailbox) -> None:
        async with self._at_once:
            await mailbox.empty()

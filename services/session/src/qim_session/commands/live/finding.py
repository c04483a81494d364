"""What the dispatch log does not say, asked of the writer (storage.md, "Session")."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from qim_session.commands.live.events import EventEncoder
from qim_session.commands.live.fan_out import BodyNeeded, ChangeNeeded, Found, MembersNeeded, Need
from qim_session.domain.membership import Members, MembersCache
from qim_session.storage.conversations import Conversations, MembershipSource, Withheld

_AT_ONCE: Final = 16


class Finding:
    """Finds out what blocks need.

    Args:
        members: the memory that is filled; its partition's caller is the only one who moves a conversation in it.
    """

    def __init__(
        self,
        source: MembershipSource,
        conversations: Conversations,
        members: MembersCache,
        encoder: EventEncoder,
    ) -> None:
        self._source = source
        self._conversations = conversations
        self._members = members
        self._encoder = encoder

    def forget(self) -> None:
        """Forget who is in which conversation: after a recovery, versions may be given out again."""
        self._members.clear()

    async def find(self, needs: Sequence[Need], found: Found) -> None:
        """Put all of it into `found` and into the memory of members.

        Raises MembershipVersionExpired: nobody knows the members any more; BackendUnavailable.
        """
        for start in range(0, len(needs), _AT_ONCE):
            await asyncio.gather(*(self._one(need, found) for need in needs[start : start + _AT_ONCE]))

    async def _one(self, need: Need, found: Found) -> None:
        match need:
            case MembersNeeded(tenant, conversation, version):
                people = set(await self._source.members(tenant, conversation, version))
                self._members.put(tenant, conversation, Members(version, people))
            case ChangeNeeded(tenant, conversation, version):
                change = await self._source.change(tenant, conversation, version)
                found.changes[change.seq] = change
            case BodyNeeded():
                await self._body(need, found)

    async def _body(self, need: BodyNeeded, found: Found) -> None:
        """One person's message is everybody's; who may not see it any more gets it withheld, each for themselves."""
        events = found.bodies.setdefault(need.seq, {})
        for user in need.people:
            page = await self._conversations.delivered(
                need.tenant, user, need.conversation, after_seq=need.seq - 1, limit=1
            )
            content = page.entries[0] if page.entries else Withheld(need.seq, need.seq)
            if not isinstance(content, Withheld):
                event = self._encoder.entry(need.conversation, need.generation, content).event
                for person in need.people:
                    events.setdefault(person, event)
                return
            withheld = Withheld(need.seq, need.seq)
            events[user] = self._encoder.entry(need.conversation, need.generation, withheld).event

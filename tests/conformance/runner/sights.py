"""What one person sees of the conversation, through the public API: a way to look for each key of `expect`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from tests.conformance.runner.cast import Cast
from tests.conformance.runner.scenario import ABSENT, DENIED, Value, as_ranges

from qim_client import ActorClient, Conversation, Direction, OperatorClient
from qim_client.actor import MAX_PAGE
from qim_common.errors import GroupFrozen, PermissionDenied, QimError
from qim_common.ids import ConversationId

SETTLE_SECONDS: Final = 20.0
"""How long delivery may take to settle; it is milliseconds unless the machine is very busy."""

HISTORY_PAGE: Final = 40
"""Small enough that histories of scenarios have several pages."""

NO_ENTRY: Final = "no entry"
"""What is got of the list entry of a conversation that is not in the person's list."""

DELIVERED: Final = "delivered"
"""The key of `expect` that tells what a mailbox has received."""

_POLL_SECONDS: Final = 0.02


class Sights:
    """The eyes of all people of a scenario. A mailbox is pulled on one device and acknowledged as it comes."""

    def __init__(self, cast: Cast, operator: OperatorClient, conversation: ConversationId) -> None:
        self._cast = cast
        self._operator = operator
        self._conversation = conversation
        self._delivered: dict[str, list[tuple[int, int]]] = {}

    async def settled(self, people: Collection[str]) -> None:
        """Returns when the conversation is in the list of everybody who has been in it, or when the time is up.

        That is the one thing that comes after the answers: bodies, ranges and counts are read where they were written.
        """
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                for name in people:
                    person = self._cast.acting(name)
                    while await entry_of(person, self._conversation) is None:  # noqa: ASYNC110  nobody tells
                        await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            return

    async def see(self, name: str, keys: Collection[str]) -> dict[str, Value]:
        """What the person sees, by key. A refusal shows as its reason."""
        person = self._cast.acting(name)
        entry: Conversation | None = None
        if LISTED.keys() & set(keys):
            entry = await entry_of(person, self._conversation)
        found = {key: LISTED[key](entry) for key in keys if key in LISTED}
        return found | {key: await self._value(_LOOKS[key], name, person) for key in keys if key in _LOOKS}

    async def _value(self, look: _Look, name: str, person: ActorClient) -> Value:
        try:
            return await look(self, name, person)
        except PermissionDenied:
            return DENIED
        except QimError as error:
            return str(error.reason) or error.code.name

    async def _history(self, name: str, person: ActorClient) -> Value:
        seqs: list[int] = []
        from_seq = 0
        while True:
            page = await person.pull_history(
                self._conversation, from_seq=from_seq, direction=Direction.NEWER, limit=HISTORY_PAGE
            )
            seqs += [message.seq for message in page.messages]
            if not page.next_from_seq:
                break
            from_seq = page.next_from_seq
        if seqs != sorted(set(seqs)):
            return f"not ascending: {seqs}"
        return as_ranges([(seq, seq) for seq in seqs])

    async def _earliest(self, name: str, person: ActorClient) -> Value:
        return (await person.get_visible_range(self._conversation)).earliest_available_seq

    async def _mailbox(self, name: str, person: ActorClient) -> Value:
        delivered = self._delivered.setdefault(name, [])
        page = await person.pull_mailbox(limit=MAX_PAGE)
        while page.entries:
            for entry in page.entries:
                last = entry.cursor.seq
                first = last if entry.withheld is None else entry.withheld.first
                if delivered and first <= delivered[-1][1]:
                    return f"{first} again after {delivered[-1][1]} was acknowledged"
                delivered.append((first, last))
            page = await person.pull_mailbox(ack=[page.entries[-1].cursor], limit=MAX_PAGE)
        return as_ranges(delivered)

    async def _members(self, name: str, person: ActorClient) -> Value:
        return tuple(sorted([self._cast.name(member.user) async for member in person.members(self._conversation)]))

    async def _can_send(self, name: str, person: ActorClient) -> Value:
        try:
            await person.authorize_send(self._conversation)
        except (PermissionDenied, GroupFrozen):
            return False
        return True

    async def _owner(self, name: str, person: ActorClient) -> Value:
        owner = (await self._operator.get_group(self._conversation)).owner
        return None if owner is None else self._cast.name(owner)


async def entry_of(person: ActorClient, conversation: ConversationId) -> Conversation | None:
    """The conversation's entry in the person's list."""
    async for entry in person.conversations():
        if entry.conversation == conversation:
            return entry
    return None


_Look = Callable[[Sights, str, ActorClient], Awaitable[Value]]

_LOOKS: Final[Mapping[str, _Look]] = {
    "history": Sights._history,
    "earliest": Sights._earliest,
    DELIVERED: Sights._mailbox,
    "members": Sights._members,
    "can_send": Sights._can_send,
    "owner": Sights._owner,
}

LISTED: Final[Mapping[str, Callable[[Conversation | None], Value]]] = {
    "unread": lambda entry: NO_ENTRY if entry is None else entry.unread_count,
    "head": lambda entry: NO_ENTRY if entry is None else entry.head_seq,
    "state": lambda entry: ABSENT if entry is None else entry.state.name,
}
"""What the entry of the person's list tells."""

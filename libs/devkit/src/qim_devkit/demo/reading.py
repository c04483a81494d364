"""Looks through one person's eyes, through the public API and nothing else.

Every call goes as an end user through the gateway's certificate, except the group's own figures, which an operator asks
the admin service for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from qim_client import ActorClient, Conversation, GroupDetails, SeqRange
from qim_client.actor import MAX_PAGE
from qim_common.ids import ConversationId
from qim_devkit.demo.seqs import Seqs
from qim_devkit.demo.sights import Delivered, Sight

SETTLE_SECONDS: Final = 20.0
"""How long a conversation may take to come into a list; it is milliseconds unless the machine is very busy."""

_POLL_SECONDS: Final = 0.05


class NotListedError(Exception):
    """A group did not come into a person's conversation list in time."""


async def listed(person: ActorClient, groups: Collection[ConversationId]) -> dict[ConversationId, Conversation]:
    """The person's list, once it has all of `groups`: projecting them is not part of committing them.

    Raises NotListedError after SETTLE_SECONDS.
    """
    entries: dict[ConversationId, Conversation] = {}
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            while True:
                entries = {entry.conversation: entry async for entry in person.conversations()}
                if entries.keys() >= set(groups):
                    return entries
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        found = len(entries.keys() & set(groups))
        raise NotListedError(
            f"the session service lists {found} of {len(groups)} groups after {SETTLE_SECONDS:g} s"
        ) from None


async def pull_everything(person: ActorClient) -> dict[ConversationId, Delivered]:
    """The whole mailbox of the person's device, acknowledged page by page."""
    seqs: defaultdict[ConversationId, list[SeqRange]] = defaultdict(list)
    withheld: defaultdict[ConversationId, list[SeqRange]] = defaultdict(list)
    page = await person.pull_mailbox(limit=MAX_PAGE)
    while page.entries:
        for entry in page.entries:
            if entry.message is not None:
                seqs[entry.conversation].append(SeqRange(entry.message.seq, entry.message.seq))
            elif entry.withheld is not None:
                withheld[entry.conversation].append(entry.withheld)
        newest = {entry.conversation: entry.cursor for entry in page.entries}
        page = await person.pull_mailbox(ack=list(newest.values()), limit=MAX_PAGE)
    return {
        conversation: Delivered(
            Seqs.of((*seqs[conversation], *withheld[conversation])), Seqs.of(withheld[conversation])
        )
        for conversation in {*seqs, *withheld}
    }


async def look(name: str, label: str, person: ActorClient, groups: Sequence[GroupDetails]) -> list[Sight]:
    """What one person sees of each group now; `groups` are the groups' own figures.

    Raises NotListedError, and the QimError of a call that is refused.
    """
    entries = await listed(person, [group.group for group in groups])
    mailbox = await pull_everything(person)
    return [
        await _look_at(name, label, person, group, entries[group.group], mailbox.get(group.group, Delivered()))
        for group in groups
    ]


async def _look_at(
    name: str, label: str, person: ActorClient, group: GroupDetails, entry: Conversation, delivered: Delivered
) -> Sight:
    visible = await person.get_visible_range(group.group)
    history = [SeqRange(message.seq, message.seq) async for message in person.history(group.group)]
    return Sight(
        name=name,
        label=label,
        owner=group.owner == person.actor.user,
        head=group.head_seq,
        visible=Seqs.of(visible.ranges),
        earliest=visible.earliest_available_seq,
        state=visible.state,
        stays=visible.stays,
        history=Seqs.of(history),
        unread=entry.unread_count,
        delivered=delivered,
    )

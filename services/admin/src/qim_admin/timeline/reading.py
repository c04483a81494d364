"""Reading a timeline through the operator API."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from qim_client import GroupDetails, MembershipChange, OperatorClient, SeqRange, StateEntry, Stay
from qim_client.operators import MAX_PAGE
from qim_common.ids import ConversationId, UserId

_CALLS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class PersonLine:
    """One person: `stays` oldest first, empty for somebody who never was in the group; `visible` is what the service
    says they may read now, ascending and disjoint."""

    user: UserId
    stays: tuple[Stay, ...]
    visible: tuple[SeqRange, ...]
    own_clear_seq: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A group's line, or one person's part of it.

    Attributes:
        changes, state_entries: all of them, oldest first.
        people: those of the newest events first, then members who appear in no event.
        others_in_events: how many people of the events are not among `people`.
        members_left_out: there are members who appear in no event and are not among `people`.
    """

    group: GroupDetails
    changes: tuple[MembershipChange, ...]
    state_entries: tuple[StateEntry, ...]
    people: tuple[PersonLine, ...]
    others_in_events: int = 0
    members_left_out: bool = False


async def read_person(client: OperatorClient, group: ConversationId, user: UserId) -> Timeline:
    """The events that concern one person, and their stays."""
    pages = [page async for page in client.timeline_pages(group, user=user)]
    last = pages[-1]
    changes = tuple(change for page in pages for change in page.changes)
    return Timeline(last.group, changes, (), (PersonLine(user, last.stays, last.visible, last.own_clear_seq),))


async def read_group(client: OperatorClient, group: ConversationId, *, people: int) -> Timeline:
    """The whole line, and the stays of at most `people` people."""
    pages = [page async for page in client.timeline_pages(group)]
    changes = tuple(change for page in pages for change in page.changes)
    in_events = newest_first(changes)
    shown = in_events[:people]
    members_left_out = len(in_events) >= people
    if not members_left_out:
        page = await client.list_members(group, page_size=min(people, MAX_PAGE))
        known = set(shown)
        quiet = [member.user for member in page.members if member.user not in known]
        members_left_out = bool(page.next_page_token) or len(shown) + len(quiet) > people
        shown += quiet[: people - len(shown)]
    turns = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def stays_of(user: UserId) -> PersonLine:
        async with turns:
            page = await client.group_timeline(group, user=user, page_size=1)
        return PersonLine(user, page.stays, page.visible, page.own_clear_seq)

    lines = await asyncio.gather(*(stays_of(user) for user in shown))
    entries = tuple(entry for page in pages for entry in page.state_entries)
    others = max(len(in_events) - people, 0)
    return Timeline(pages[-1].group, changes, entries, tuple(lines), others, members_left_out)


def newest_first(changes: Sequence[MembershipChange]) -> list[UserId]:
    """The people of the events, those of the newest event first, each once."""
    return list(dict.fromkeys(user for change in reversed(changes) for user in change.people))

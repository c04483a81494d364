"""DeliveredPage on every backend: what a page holds, and that its work is bounded (design.md invariant 12)."""

from __future__ import annotations

import pytest
from tests.support.chat import ANA, BEN, TENANT, Chat, user

from qim_common.errors import InvalidArgument
from qim_common.ids import UserId
from qim_writer.commands import delivered
from qim_writer.commands.delivered import DeliveredPages, Withheld


async def pages(chat: Chat, person: UserId, group: bytes, limit: int = 1000) -> list[list[int | tuple[int, int]]]:
    """All pages of one person: messages as their seqs, withheld stretches as pairs."""
    reader = DeliveredPages(chat.stores.membership, chat.stores.messages)
    found: list[list[int | tuple[int, int]]] = []
    after, more = 0, True
    while more:
        page = await reader.page(TENANT, person, group, after, limit)
        assert page.next_after > after or not page.more
        found.append([(e.first, e.last) if isinstance(e, Withheld) else e.seq for e in page.entries])
        after, more = page.next_after, page.more
    return found


async def test_stays_and_what_lies_between(chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    await chat.send_many(2, ANA, group)
    await chat.leave(BEN, group)
    await chat.send_many(3, ANA, group)
    await chat.add(group, BEN)
    await chat.send(ANA, group)
    # LATEST_STAY: the first stay shows nothing any more, but for the own event with which it ended.
    assert await pages(chat, BEN, group) == [[(1, 2), 3, 7, 8]]
    assert await pages(chat, BEN, group, 3) == [[(1, 2), 3, 7], [8]]
    assert await pages(chat, user(9), group) == [[]]


async def test_a_page_ends_early_where_too_many_events_of_others_lie_in_between(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await chat.create(ANA, BEN, broadcast_max_members=1)
    await chat.send(ANA, group)
    for number in range(9):
        await chat.add(group, user(100 + number))
    await chat.send(ANA, group)
    assert await pages(chat, BEN, group) == [[1, 11]]
    monkeypatch.setattr(delivered, "EVENTS_AT_ONCE", 2)
    monkeypatch.setattr(delivered, "EVENT_READS", 2)
    # Each page reads four events at most; none is lost and none comes twice.
    assert await pages(chat, BEN, group) == [[1], [], [11]]


async def test_a_limit_out_of_range_is_refused_by_name(chat: Chat) -> None:
    group = await chat.create(ANA)
    reader = DeliveredPages(chat.stores.membership, chat.stores.messages)
    for limit in (0, 1001):
        with pytest.raises(InvalidArgument, match="limit"):
            await reader.page(TENANT, ANA, group, 0, limit)


async def test_a_page_tells_how_much_waits_and_the_newest_seq_that_was_delivered(chat: Chat) -> None:
    group = await chat.create(ANA, BEN, broadcast_max_members=1)
    await chat.send_many(3, ANA, group)
    await chat.leave(BEN, group)
    await chat.send_many(5, ANA, group)
    await chat.add(group, BEN)
    await chat.send_many(2, ANA, group)
    await chat.add(group, user(9))
    reader = DeliveredPages(chat.stores.membership, chat.stores.messages)

    async def told(person: UserId, after: int) -> tuple[int, int]:
        page = await reader.page(TENANT, person, group, after, 1)
        return page.waiting, page.newest

    # Ordinary are 1-3 and 11-12; 4, 10 and 13 are Ben's leave and return, and the join of user 9.
    assert [await told(BEN, after) for after in (0, 3, 4, 7, 10, 12, 13, 2**64 - 1)] == [
        *((5, 12), (2, 12), (2, 12), (2, 12), (2, 12), (0, 12), (0, 12), (0, 12)),
    ]
    assert await told(user(9), 0) == (0, 13)
    assert await told(user(10), 0) == (0, 0), "never was a member"
    await chat.leave(BEN, group)
    assert await told(BEN, 0) == (5, 14)


async def test_what_waits_are_messages_and_not_the_comings_and_goings_of_others(chat: Chat) -> None:
    group = await chat.create(ANA, BEN, broadcast_max_members=1)
    reader = DeliveredPages(chat.stores.membership, chat.stores.messages)
    for number in range(9):
        await chat.add(group, user(100 + number))
    assert (await reader.page(TENANT, BEN, group, 0, 1)).waiting == 0
    seq = (await chat.send_many(3, ANA, group))[0].seq
    page = await reader.page(TENANT, BEN, group, 0, 1)
    assert (page.waiting, page.newest) == (3, 12)
    assert (await reader.page(TENANT, BEN, group, seq, 1)).waiting == 2

"""`qim_writer.storage.MessageStore`, on every backend."""

from __future__ import annotations

from tests.support.chat import ANA, BEN, CARA, DAN, EVE, TENANT, Chat, user

from qim_common.ids import (
    ConversationId,
    MembershipOp,
    UserId,
    group_conversation_id,
)
from qim_common.records import Audience
from qim_writer.domain.visible import UnreadSpan


async def test_records_come_in_the_order_asked_for_without_those_that_are_not_there(chat: Chat) -> None:
    group, other = await chat.create(ANA), await chat.create(ANA)
    await chat.send_many(5, ANA, group)
    await chat.send_many(2, ANA, other)
    messages = chat.stores.messages
    assert [record.seq for record in await messages.records(chat.of(group), [4, 9, 1, 0, 3])] == [4, 1, 3]
    assert await messages.records(chat.of(group), []) == []
    assert await messages.records(chat.of(group_conversation_id(EVE)), [1]) == []
    many = await messages.records_of_many(TENANT, [(other, [2, 1]), (group, []), (group, [5, 6])])
    assert [[record.seq for record in records] for records in many] == [[2, 1], [], [5]]


async def test_the_chain_of_broadcasts_passes_over_concerned_events(chat: Chat) -> None:
    group = await chat.create(ANA, BEN, broadcast_max_members=2)
    await chat.send(ANA, group)
    await chat.add(group, CARA)
    await chat.add(group, DAN)
    await chat.send_many(2, ANA, group)
    await chat.remove(group, DAN)
    await chat.remove(group, CARA)
    await chat.send(ANA, group)
    records = await chat.stores.messages.records(chat.of(group), list(range(1, 9)))
    assert [(record.seq, record.audience, record.prev) for record in records] == [
        (1, Audience.BROADCAST, 0),
        (2, Audience.CONCERNED, 1),
        (3, Audience.CONCERNED, 1),
        (4, Audience.BROADCAST, 1),
        (5, Audience.BROADCAST, 4),
        (6, Audience.CONCERNED, 5),
        (7, Audience.BROADCAST, 5),
        (8, Audience.BROADCAST, 7),
    ]
    facts = await chat.stores.membership.facts(chat.of(group), ANA)
    assert facts is not None
    assert facts.newest_broadcast == 8
    await chat.add(group, CARA)
    facts = await chat.stores.membership.facts(chat.of(group), ANA)
    assert facts is not None
    assert (facts.head, facts.newest_broadcast) == (9, 8)


async def test_control_events_are_known_by_version_and_audience(chat: Chat) -> None:
    group = await chat.create(ANA, BEN, broadcast_max_members=2)
    await chat.add(group, CARA)
    await chat.send(ANA, group)
    await chat.remove(group, CARA)
    messages, of = chat.stores.messages, chat.of(group)
    found = await messages.control_events(of, 1, 3, 10)
    assert [(event.seq, event.version, event.audience) for event in found] == [
        (1, 2, Audience.CONCERNED),
        (3, 3, Audience.BROADCAST),
    ]
    assert [event.seq for event in await messages.control_events(of, 1, 3, 1)] == [1]
    assert [event.seq for event in await messages.control_events(of, 2, 3, 10)] == [3]
    assert await messages.event(of, 2) is None
    told = await messages.events(of, 0, 10)
    assert [(change.version, change.op, change.users) for change in told] == [
        (2, MembershipOp.JOIN, (CARA,)),
        (3, MembershipOp.REMOVE, (CARA,)),
    ]


async def test_control_messages_are_counted_in_many_spans_at_once(chat: Chat) -> None:
    group, other, quiet = await chat.create(ANA, BEN), await chat.create(ANA), await chat.create(ANA)
    await chat.add(group, CARA)
    await chat.send(ANA, group)
    await chat.remove(group, CARA)
    await chat.send(ANA, other)
    spans = [(other, 1, 1), (group, 1, 3), (group, 2, 2), (group, 3, 3), (quiet, 1, 1), (group, 2, 2**53 - 1)]
    assert await chat.stores.messages.controls(TENANT, spans) == [0, 2, 0, 1, 0, 1]
    assert await chat.stores.messages.controls(TENANT, []) == []


async def _unread(chat: Chat, group: ConversationId, person: bytes, lower: int, upper: int) -> int:
    facts = await chat.stores.membership.facts(chat.of(group), UserId(person))
    assert facts is not None
    assert facts.person is not None
    (count,) = await chat.stores.messages.unread(TENANT, [(group, UnreadSpan(lower, upper), facts.person.ordinal)])
    assert count is not None
    return count


async def test_unread_counts_ordinary_messages_of_others(chat: Chat) -> None:
    group = await chat.create(ANA, BEN)
    await chat.add(group, CARA)
    await chat.send_many(3, BEN, group)
    await chat.send_many(2, ANA, group)
    await chat.leave(CARA, group)
    for person, lower, upper, count in (
        (BEN, 0, 7, 2),
        (ANA, 0, 7, 3),
        (CARA, 0, 6, 5),
        (ANA, 3, 7, 1),
        (ANA, 7, 7, 0),
        (ANA, 7, 3, 0),
        (BEN, 4, 6, 2),
    ):
        assert await _unread(chat, group, person, lower, upper) == count, (person, lower, upper)


async def test_unread_of_many_people_and_messages_agrees_with_counting(chat: Chat) -> None:
    # So many senders that the bytes of neighbouring ordinals look like other ordinals.
    people = [user(number) for number in range(1, 600)]
    group = await chat.create(*people)
    order = [people[(number * 37) % 599] for number in range(1000)]
    for start in range(0, 1000, 250):
        await chat.outcomes(*((person, group, {}) for person in order[start : start + 250]))
    for person in (people[0], people[1], people[255], people[256], people[511], people[512], people[598]):
        for lower, upper in ((0, 1000), (3, 997), (500, 501)):
            expected = sum(sender != person for sender in order[lower:upper])
            assert await _unread(chat, group, person, lower, upper) == expected


async def test_unread_of_many_conversations_in_one_call(chat: Chat) -> None:
    groups = [await chat.create(ANA, BEN) for _ in range(20)]
    for number, group in enumerate(groups):
        if number:
            await chat.send_many(number, BEN, group)
    spans = []
    for number, group in enumerate(groups):
        facts = await chat.stores.membership.facts(chat.of(group), ANA)
        assert facts is not None
        assert facts.person is not None
        spans.append((group, UnreadSpan(0, number), facts.person.ordinal))
    assert await chat.stores.messages.unread(TENANT, spans) == list(range(20))
    assert await chat.stores.messages.unread(TENANT, []) == []

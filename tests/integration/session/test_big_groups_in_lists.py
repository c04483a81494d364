"""Groups above `projection_fanout_max_members` are not projected per message, and nobody can tell from the answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.integration.session.running import ADD, REMOVE, TENANT, Service, ids, listed, lists_all, running, until

from qim_client import ActorClient, Conversation
from qim_common.enums import MemberState
from qim_common.ids import ConversationId, UserId, person_bucket
from qim_common.keys import PersonKeys

BOUND = 4
pytestmark = pytest.mark.server


@pytest_asyncio.fixture(scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """Groups of more than four are big."""
    async with running(tmp_path_factory.mktemp("big-groups"), QIM_PROJECTION_FANOUT_MAX_MEMBERS=str(BOUND)) as started:
        yield started


def strangers(service: Service, count: int) -> list[UserId]:
    return [service.person().actor.user for _ in range(count)]


async def score(service: Service, person: ActorClient, conversation: ConversationId) -> float | None:
    """The projected place of a conversation."""
    bucket = person_bucket(TENANT, person.actor.user, 256)
    keys = PersonKeys(TENANT, person.actor.user, bucket)
    found: float | None = await service.instances[bucket % len(service.instances)].zscore(keys.convs, conversation)
    return found


async def big(service: Service, person: ActorClient) -> set[ConversationId]:
    """The conversations that are noted as big."""
    bucket = person_bucket(TENANT, person.actor.user, 256)
    keys = PersonKeys(TENANT, person.actor.user, bucket)
    return set(map(ConversationId, await service.instances[bucket % len(service.instances)].smembers(keys.bigconvs)))


async def test_a_big_group_takes_its_place_by_its_newest_message_without_being_projected(service: Service) -> None:
    ana, ben = service.person(), service.person()
    small = [(await ana.create_group([ben.actor.user])).group for _ in range(2)]
    large = (await ana.create_group([ben.actor.user, *strangers(service, BOUND)])).group
    await lists_all(ben, {*small, large})
    created = await score(service, ben, large)
    await ana.send_to(large, b"one")
    await ana.send_to(small[0], b"two")
    sent = await ana.send_to(large, b"three")

    async def in_order() -> bool:
        return await ids(ben) == [large, small[0], small[1]]

    await until(in_order)
    entry = (await listed(ben))[0]
    assert (entry.unread_count, entry.head_seq, entry.last_activity_ms) == (2, sent.seq, sent.time_ms)
    assert entry.preview is not None
    assert entry.preview.body == b"three"
    assert await ben.get_total_unread() == 3
    assert await score(service, ben, large) == created, "a message to a big group moves nobody's list"
    assert await big(service, ben) == {large}


async def test_pages_hold_big_and_small_groups_in_one_order(service: Service) -> None:
    ana, ben = service.person(), service.person()
    groups = []
    for number in range(12):
        people = [ben.actor.user, *(strangers(service, BOUND) if number % 3 == 0 else ())]
        groups.append((await ana.create_group(people)).group)
    await lists_all(ben, set(groups))
    written = groups[::2] + groups[1::2]
    for group in written:
        await ana.send_to(group, b"hello")

    async def in_order() -> bool:
        return await ids(ben) == written[::-1]

    await until(in_order)
    for page_size in (1, 2, 5, 11):
        paged = await ids(ben, page_size=page_size)
        assert list(dict.fromkeys(paged)) == written[::-1]


async def test_a_group_that_becomes_big_and_small_again_keeps_its_place(service: Service) -> None:
    ana, ben = service.person(), service.person()
    other = (await ana.create_group([ben.actor.user])).group
    group = (await ana.create_group([ben.actor.user])).group
    many = strangers(service, BOUND)
    await lists_all(ben, {group, other})

    async def is_first(expected: ConversationId) -> None:
        async def first() -> bool:
            return (await ids(ben))[0] == expected

        await until(first)

    await ana.send_to(other, b"one")
    await is_first(other)
    await service.change(ADD, group, many)
    await is_first(group)
    await ana.send_to(other, b"two")
    await is_first(other)
    await ana.send_to(group, b"three")
    await is_first(group)
    await ana.send_to(other, b"four")
    await is_first(other)
    await service.change(REMOVE, group, many)
    await ana.send_to(group, b"five")
    await is_first(group)
    assert sorted(await ids(ben)) == sorted([group, other])


def told(entry: Conversation) -> tuple[object, ...]:
    """What an entry says, without the ids and times that differ between two groups."""
    ordinary = entry.preview is not None and not entry.preview.custom_type
    body = entry.preview.body if entry.preview is not None and ordinary else b""
    return (entry.state, entry.head_seq, entry.unread_count, entry.read_seq, entry.stay, body, entry.revision > 0)


async def test_a_life_in_a_big_group_says_the_same_as_one_in_a_small_group(service: Service) -> None:
    """Ben is added, reads, is removed, and comes back; his twin goes through it in a small group."""

    async def live(crowd: int) -> list[tuple[object, ...]]:
        ana, ben = service.person(), service.person()
        group = (await ana.create_group(strangers(service, crowd))).group
        seen: list[tuple[object, ...]] = []

        async def look(head: int) -> None:
            found: list[Conversation] = []

            async def shown() -> bool:
                found[:] = await listed(ben)
                return bool(found) and found[0].head_seq == head

            await until(shown)
            seen.append((*told(found[0]), await ben.get_total_unread()))

        await ana.send_to(group, b"before")
        await service.change(ADD, group, [ben.actor.user])
        await look(2)
        await ana.send_to(group, b"three")
        await ana.send_to(group, b"four")
        await look(4)
        await ben.mark_read(group, 3)
        await look(4)
        await service.change(REMOVE, group, [ben.actor.user])
        await ana.send_to(group, b"unseen")
        await look(4)
        await service.change(ADD, group, [ben.actor.user])
        await ana.send_to(group, b"eight")
        await look(8)
        return seen

    in_big, in_small = await live(BOUND + 2), await live(1)
    assert in_big == in_small
    assert in_big[-1][0] is MemberState.MEMBER


async def test_paging_misses_no_group_big_or_small_while_messages_arrive(service: Service) -> None:
    ana, ben = service.person(), service.person()
    groups = []
    for number in range(24):
        people = [ben.actor.user, *(strangers(service, BOUND) if number % 3 == 0 else ())]
        groups.append((await ana.create_group(people)).group)
    await lists_all(ben, set(groups))
    chance = random.Random(5)  # noqa: S311  a test's own dice

    async def write() -> None:
        while True:
            await ana.send_to(chance.choice(groups), b"more")

    writing = asyncio.create_task(write())
    try:
        for page_size in (2, 3, 5, 7, 23):
            assert set(await ids(ben, page_size=page_size)) == set(groups), f"pages of {page_size}"
    finally:
        writing.cancel()
        await asyncio.wait([writing])

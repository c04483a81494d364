"""Lists, cursors and conversation sets of the redis backend, on a real Valkey."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.integration.session.conftest import Store
from tests.support.dispatch import TENANT, group, user

from qim_common.ids import ConversationId, DeviceId
from qim_common.keys import PersonKeys, projection_epoch
from qim_session.backends.redis_rebuild import RedisListRestore
from qim_session.commands.register import Registrar
from qim_session.domain.cursors import NOTHING, Cursor
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.list_pages import ListPosition

ANA, BEN = user(1), user(2)
PHONE, LAPTOP = DeviceId(b"p" * 16), DeviceId(b"l" * 16)
pytestmark = pytest.mark.server


def entry(conversation: int, time_ms: int, person: int = 1) -> ProjectionEntry:
    return ProjectionEntry(TENANT, user(person), group(conversation), time_ms)


async def page(store: Store, limit: int, *, below: ListPosition | None = None) -> list[ConversationId]:
    read = await store.people.page(TENANT, ANA, below=below, limit=limit)
    return [row.conversation for row in read.positions]


async def test_a_page_is_newest_first_and_begins_below_its_bound(store: Store) -> None:
    await store.projection.project([entry(number, 100 + number) for number in range(1, 6)], None)
    assert await page(store, 2) == [group(5), group(4)]
    assert await page(store, 2, below=ListPosition(104, group(4))) == [group(3), group(2)]
    assert await page(store, 10, below=ListPosition(102, group(2))) == [group(1)]


async def test_conversations_of_one_moment_are_paged_without_loss(store: Store) -> None:
    await store.projection.project([entry(number, 100) for number in range(1, 101)], None)
    seen: list[ConversationId] = []
    below: ListPosition | None = None
    while rows := (await store.people.page(TENANT, ANA, below=below, limit=7)).positions:
        seen += [row.conversation for row in rows]
        below = rows[-1]
    assert seen == [group(number) for number in range(100, 0, -1)]


async def test_what_rose_above_an_exclusive_place_is_read_by_id_without_loss(store: Store) -> None:
    await store.projection.project([entry(number, 200 - number // 40) for number in range(1, 101)], None)
    above = ListPosition(199, group(50))
    seen: list[ConversationId] = []
    after = ConversationId(bytes(16))
    while rows := (await store.people.risen(TENANT, ANA, above=above, after=after, limit=7)).positions:
        seen += [row.conversation for row in rows]
        after = seen[-1]
    assert seen == [group(number) for number in range(1, 80) if number < 40 or number > 50]


async def test_the_list_of_nobody_is_empty(store: Store) -> None:
    assert await page(store, 10) == []
    assert await store.people.oldest_first(TENANT, ANA) == []


async def test_a_mailbox_takes_the_longest_inactive_first(store: Store) -> None:
    await store.projection.project([entry(1, 30), entry(2, 10), entry(3, 20)], None)
    assert await store.people.oldest_first(TENANT, ANA) == [group(2), group(3), group(1)]


@pytest.mark.parametrize(
    ("stored", "offered", "expected"),
    [
        (Cursor(0, 5), Cursor(0, 6), Cursor(0, 6)),
        (Cursor(0, 5), Cursor(0, 5), Cursor(0, 5)),
        (Cursor(0, 5), Cursor(0, 4), Cursor(0, 5)),
        (Cursor(0, 5), Cursor(1, 2), Cursor(1, 2)),
        (Cursor(1, 2), Cursor(0, 9), Cursor(1, 2)),
        (Cursor(0, 2**53 - 2), Cursor(0, 2**53 - 1), Cursor(0, 2**53 - 1)),
    ],
)
async def test_a_device_cursor_only_moves_forward(
    store: Store, stored: Cursor, offered: Cursor, expected: Cursor
) -> None:
    await store.people.advance_device(TENANT, ANA, PHONE, {group(1): stored})
    moved = await store.people.advance_device(TENANT, ANA, PHONE, {group(1): offered})
    assert moved == (expected != stored)
    assert await store.people.device(TENANT, ANA, PHONE, [group(1), group(2)]) == {group(1): expected}


async def test_devices_and_people_have_cursors_of_their_own(store: Store) -> None:
    await store.people.advance_device(TENANT, ANA, PHONE, {group(1): Cursor(0, 5)})
    assert await store.people.device(TENANT, ANA, LAPTOP, [group(1)]) == {}
    assert await store.people.device(TENANT, BEN, PHONE, [group(1)]) == {}


async def test_nothing_read_is_a_cursor_of_zero(store: Store) -> None:
    assert await store.people.read(TENANT, ANA, [group(2), group(1)]) == {group(2): NOTHING, group(1): NOTHING}
    assert await store.people.read(TENANT, ANA, []) == {}


async def authority(store: Store) -> dict[bytes, bytes]:
    key = PersonKeys(TENANT, ANA, store.topology.person_bucket(TENANT, ANA)).authority
    flat = await store.instance.call("HGETALL", key)
    return dict(zip(flat[::2], flat[1::2], strict=True))


async def test_the_registrar_writes_what_waits_and_takes_it_off_the_list(store: Store) -> None:
    await store.projection.project([entry(1, 30), entry(2, 40)], None)
    registrar = Registrar(store.projection, store.people, store.metrics)
    assert await registrar.register_batch() == 2
    assert await registrar.register_batch() == 0
    assert await authority(store) == {
        group(1): b"\x02" + (30).to_bytes(8, "big"),
        group(2): b"\x02" + (40).to_bytes(8, "big"),
    }


async def test_what_is_registered_again_keeps_its_first_time(store: Store) -> None:
    await store.people.register([entry(1, 30)])
    await store.people.register([entry(1, 99)])
    assert await authority(store) == {group(1): b"\x02" + (30).to_bytes(8, "big")}


async def test_a_set_is_what_was_registered_for_that_person(store: Store) -> None:
    await store.people.register([entry(1, 30), entry(2, 40), entry(3, 50, person=2)])
    assert set(await store.people.of(TENANT, ANA)) == {group(1), group(2)}
    assert await store.people.of(TENANT, user(9)) == []


async def test_big_conversations_are_read_beside_the_places_of_the_others(store: Store) -> None:
    rows = [entry(number, 100 + number) for number in range(1, 60)]
    await store.projection.project([replace(row, big=index >= 20) for index, row in enumerate(rows)], None)
    read = await store.people.page(TENANT, ANA, below=None, limit=3)
    assert [place.conversation for place in read.positions] == [group(20), group(19), group(18)]
    assert read.big == {group(number) for number in range(21, 60)}


@pytest.mark.parametrize(
    ("epoch", "mark", "complete"), [(None, None, False), (None, 0, True), (3, 2, False), (3, 3, True)]
)
async def test_a_list_says_whether_it_was_rebuilt_in_this_epoch(
    store: Store, epoch: int | None, mark: int | None, *, complete: bool
) -> None:
    restore = RedisListRestore([store.instance], store.topology)
    if epoch is not None:
        await store.instance.call("SET", projection_epoch(0), epoch)
    if mark is not None:
        await restore.mark(TENANT, ANA, mark)
    assert await restore.epoch(TENANT, ANA) == (epoch or 0, mark)
    read = await store.people.page(TENANT, ANA, below=None, limit=3)
    assert read.complete is complete


async def test_a_rebuild_moves_nothing_back(store: Store) -> None:
    await store.projection.project([entry(1, 30), entry(2, 40)], None)
    restore = RedisListRestore([store.instance], store.topology)
    await restore.restore(TENANT, ANA, [ListPosition(35, group(1)), ListPosition(20, group(2))], [group(2)])
    assert await store.listed(ANA) == {group(1): 35, group(2): 40}
    assert await store.big(ANA) == {group(2)}

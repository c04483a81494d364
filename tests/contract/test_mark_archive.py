"""Cursors and flags that are written behind: of whatever is written, the furthest stays."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from qim_common.cassandra import CassandraSession
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId
from qim_session.backends.cassandra_marks import CassandraMarks
from qim_session.domain.cursors import Cursor
from qim_session.domain.flags import Flags
from qim_session.domain.written_behind import NO_DEVICE, Mark
from qim_session.storage.written_behind import MarkArchive

PHONE, LAPTOP = DeviceId(b"p" * 16), DeviceId(b"l" * 16)
HIKERS, CLIMBERS = ConversationId(b"\x02" + b"h" * 15), ConversationId(b"\x02" + b"c" * 15)


class Person:
    """Somebody, and what an archive has of them."""

    def __init__(self, archive: MarkArchive, tenant: TenantId) -> None:
        self.archive, self.tenant, self.user = archive, tenant, UserId(os.urandom(16))

    async def read(self, conversation: ConversationId, cursor: Cursor) -> None:
        await self.archive.write([Mark(self.tenant, self.user, NO_DEVICE, conversation, cursor)])

    async def received(self, device: DeviceId, conversation: ConversationId, cursor: Cursor) -> None:
        await self.archive.write([Mark(self.tenant, self.user, device, conversation, cursor)])

    async def set(self, conversation: ConversationId, flags: Flags) -> None:
        await self.archive.write([Mark(self.tenant, self.user, NO_DEVICE, conversation, flags)])

    async def read_cursors(self) -> dict[ConversationId, Cursor]:
        found: dict[ConversationId, Cursor] = {}
        async for part in self.archive.read_cursors(self.tenant, self.user):
            found.update(part)
        return found

    async def device_cursors(self) -> dict[tuple[DeviceId, ConversationId], Cursor]:
        found: dict[tuple[DeviceId, ConversationId], Cursor] = {}
        async for part in self.archive.device_cursors(self.tenant, self.user):
            assert sum(map(len, part.values())) <= 1000
            found |= {(device, one): cursor for device, rows in part.items() for one, cursor in rows.items()}
        return found

    async def flags(self) -> dict[ConversationId, Flags]:
        found: dict[ConversationId, Flags] = {}
        async for part in self.archive.flags(self.tenant, self.user):
            found.update(part)
        return found


@pytest.fixture
def archive(cassandra_session: CassandraSession) -> MarkArchive:
    return CassandraMarks(cassandra_session)


@pytest.fixture
def ana(archive: MarkArchive, tenant: TenantId) -> Person:
    return Person(archive, tenant)


async def test_of_somebody_unknown_there_is_nothing(ana: Person) -> None:
    assert (await ana.read_cursors(), await ana.device_cursors(), await ana.flags()) == ({}, {}, {})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param([Cursor(0, 5), Cursor(0, 7)], Cursor(0, 7), id="forward"),
        pytest.param([Cursor(0, 7), Cursor(0, 5)], Cursor(0, 7), id="a late one"),
        pytest.param([Cursor(0, 7), Cursor(0, 7)], Cursor(0, 7), id="a repeat"),
        pytest.param([Cursor(0, 900), Cursor(1, 3)], Cursor(1, 3), id="a higher generation cuts"),
        pytest.param([Cursor(1, 3), Cursor(0, 900)], Cursor(1, 3), id="a late one of an older generation"),
        pytest.param([Cursor(0, 0)], Cursor(0, 0), id="zero"),
        pytest.param([Cursor(2**18 - 1, 2**44 - 1)], Cursor(2**18 - 1, 2**44 - 1), id="the largest"),
    ],
)
async def test_cursors_only_move_forward(ana: Person, written: Sequence[Cursor], expected: Cursor) -> None:
    for cursor in written:
        await ana.read(HIKERS, cursor)
        await ana.received(PHONE, HIKERS, cursor)
    assert await ana.read_cursors() == {HIKERS: expected}
    assert await ana.device_cursors() == {(PHONE, HIKERS): expected}


@pytest.mark.parametrize("late", [False, True])
async def test_flags_are_those_that_were_set_last_whole(ana: Person, *, late: bool) -> None:
    first = Flags(hidden=True, muted=False, generation=2, hidden_seq=77, changes=3)
    last = Flags(hidden=False, muted=True, changes=4)
    for flags in (last, first) if late else (first, last):
        await ana.set(HIKERS, flags)
    assert await ana.flags() == {HIKERS: last}


async def test_devices_people_and_tenants_are_kept_apart(archive: MarkArchive, ana: Person) -> None:
    ben = Person(archive, ana.tenant)
    namesake = Person(archive, TenantId(ana.tenant + 2**63))
    namesake.user = ana.user
    await ana.read(HIKERS, Cursor(0, 1))
    await ben.read(CLIMBERS, Cursor(0, 2))
    await namesake.read(HIKERS, Cursor(0, 3))
    await ana.received(PHONE, HIKERS, Cursor(0, 4))
    await ana.received(LAPTOP, HIKERS, Cursor(0, 5))
    assert [await one.read_cursors() for one in (ana, ben, namesake)] == [
        {HIKERS: Cursor(0, 1)},
        {CLIMBERS: Cursor(0, 2)},
        {HIKERS: Cursor(0, 3)},
    ]
    assert await ana.device_cursors() == {(PHONE, HIKERS): Cursor(0, 4), (LAPTOP, HIKERS): Cursor(0, 5)}
    assert await namesake.device_cursors() == {}


async def test_thousands_of_marks_of_one_person_are_written_at_once_and_come_whole(ana: Person) -> None:
    groups = [ConversationId(b"\x02" + number.to_bytes(15, "big")) for number in range(1, 1_201)]
    marks = [Mark(ana.tenant, ana.user, device, one, Cursor(0, 9)) for one in groups for device in (PHONE, LAPTOP)]
    marks += [Mark(ana.tenant, ana.user, NO_DEVICE, one, Cursor(0, 8)) for one in groups]
    marks += [Mark(ana.tenant, ana.user, NO_DEVICE, one, Flags(muted=True, changes=1)) for one in groups]
    await ana.archive.write(marks)
    assert await ana.read_cursors() == dict.fromkeys(groups, Cursor(0, 8))
    assert len(await ana.device_cursors()) == 2_400
    assert await ana.flags() == dict.fromkeys(groups, Flags(muted=True, changes=1))


async def test_writing_nothing_changes_nothing(ana: Person) -> None:
    await ana.read(HIKERS, Cursor(0, 1))
    await ana.received(PHONE, HIKERS, Cursor(0, 2))
    await ana.archive.write([])
    assert await ana.read_cursors() == {HIKERS: Cursor(0, 1)}
    assert await ana.device_cursors() == {(PHONE, HIKERS): Cursor(0, 2)}
    assert await ana.flags() == {}


@pytest.mark.parametrize("cursor", [Cursor(2**18, 1), Cursor(0, 2**44)])
async def test_a_cursor_that_no_write_timestamp_can_hold_is_refused(ana: Person, cursor: Cursor) -> None:
    with pytest.raises(ValueError, match="no write timestamp"):
        await ana.read(HIKERS, cursor)

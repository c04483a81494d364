"""The rows of the group log: each tells what the conversation really became, and there are none without an archive."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import pytest
from tests.integration.writer_state.conftest import Room
from tests.support.chat import ANA, BEN, CARA, DAN, EVE, TENANT, user

from qim_common.enums import LeaverHistory, MemberState, NewcomerPolicy, RejoinHistory
from qim_common.errors import QimError
from qim_common.ids import ZERO_ID, ConversationId, MembershipOp, direct_conversation_id, uuid7
from qim_common.records import Audience, MessageBlock, StateChange
from qim_writer.domain.group_rows import GroupRow, RowFlags, RowKind
from qim_writer.domain.policy import GroupSettings
from qim_writer.domain.stays import Person, unpack_person

pytestmark = pytest.mark.server

SETTINGS: Final = GroupSettings(
    member_limit=500,
    newcomer=NewcomerPolicy.LAST_N,
    last_n=2,
    rejoin=RejoinHistory.ALL_STAYS,
    leaver=LeaverHistory.NONE,
)


async def person_of(room: Room, group: ConversationId, who: bytes) -> Person:
    keys = room.stores.keys(group)
    current = await room.stores.call("HGET", keys.grpcur, who)
    return unpack_person(current, await room.stores.call("HGET", keys.grpstays, who))


async def check_newest(room: Room, group: ConversationId) -> GroupRow:
    """The newest row, which must tell the conversation as it is now."""
    row = (await room.stores.group_rows(group))[-1]
    keys, bucket = room.stores.keys(group), room.stores.bucket(group)
    meta = await room.stores.hash(keys.grpmeta)
    found = {name: int(meta[name.encode()]) for name in ("generation", "revision", "version", "count", "floor")}
    assert found == {name: getattr(row, name) for name in found}
    assert (row.policy, row.head) == (meta[b"policy"], int(await room.stores.call("GET", keys.msgcseq) or 0))
    assert (RowFlags.BIG in row.flags) == (meta[b"big"] == b"1")
    if row.request_field:
        entry = await room.stores.call("HGET", bucket.idem[0], row.request_field)
        assert entry == row.request_digest + row.answer, "the idempotency entry is the row's"
    if row.kind is RowKind.MEMBERSHIP:
        await check_change(room, group, row)
    elif row.operation is StateChange.CREATED:
        assert row.time_ms == int(meta[b"created"])
        people = [await person_of(room, group, who) for who in row.people]
        assert [int.from_bytes(person.ordinal, "big") for person in people] == list(range(1, len(people) + 1))
    elif row.operation is StateChange.OWN_CLEAR:
        (who,) = row.people
        assert (await person_of(room, group, who)).own_clear == row.clear
    return row


async def check_change(room: Room, group: ConversationId, row: GroupRow) -> None:
    """What a membership change did to its people, and the event that it made."""
    people = [await person_of(room, group, who) for who in row.people]
    for person in people:
        stay = person.newest
        if row.operation is MembershipOp.JOIN:
            assert (stay.state, stay.joined_at, stay.began_version) == (MemberState.MEMBER, row.head - 1, row.version)
            assert (stay.history_from, stay.keeps_earlier) == (row.history_from, RowFlags.KEEPS_EARLIER in row.flags)
        else:
            ended = MemberState.REMOVED if row.operation is MembershipOp.REMOVE else MemberState.LEFT
            assert (stay.state, stay.left_at, stay.ended_version) == (ended, row.head, row.version)
            assert stay.revoked == (RowFlags.REVOKED in row.flags)
    given = [person.ordinal for person in people if len(person.stays) == 1 and row.operation is MembershipOp.JOIN]
    assert given == sorted(given), "ordinals are given in the order of the people"
    time_ms, block = (await room.stores.dispatched(group))[-1]
    assert isinstance(block, MessageBlock)
    assert (row.time_ms, row.audience, row.revision) == (time_ms, block.items[0].audience, block.revision)


async def test_a_creation_tells_people_in_the_order_of_the_call(room: Room) -> None:
    await room.stores.begin_archive()
    group = await room.chat.create(CARA, ANA, BEN, settings=SETTINGS)
    row = await check_newest(room, group)
    assert (row.kind, row.operation, row.revision, row.head) == (RowKind.STATE, StateChange.CREATED, 1, 0)
    assert (row.people, row.count, row.floor) == ((CARA, ANA, BEN), 3, 0)
    assert (row.maker, row.answer != b"") == (f"user:{_shown(CARA)}", True)
    assert row.audience is None


Act = Callable[[Room, ConversationId], Awaitable[object]]

CHANGES: Final[dict[str, tuple[Act, MembershipOp | StateChange, dict[str, object]]]] = {
    "join": (
        lambda room, group: room.chat.add(group, EVE, DAN),
        MembershipOp.JOIN,
        {"people": (DAN, EVE), "history_from": 2, "actor": ZERO_ID, "audience": Audience.BROADCAST, "maker": ""},
    ),
    "leave": (
        lambda room, group: room.chat.leave(BEN, group),
        MembershipOp.LEAVE,
        {"people": (BEN,), "actor": BEN, "flags": RowFlags.REVOKED, "history_from": 0},
    ),
    "remove, history kept": (
        lambda room, group: room.chat.remove(group, BEN, leaver=LeaverHistory.UNTIL_LEFT),
        MembershipOp.REMOVE,
        {"people": (BEN,), "flags": RowFlags.NONE},
    ),
    "became big": (
        lambda room, group: room.chat.add(group, *(user(number) for number in range(10, 20))),
        MembershipOp.JOIN,
        {"flags": RowFlags.BIG | RowFlags.KEEPS_EARLIER, "audience": Audience.CONCERNED, "count": 13},
    ),
    "settings": (
        lambda room, group: room.set(group, GroupSettings(member_limit=7)),
        StateChange.SETTINGS,
        {"people": (), "maker": "operator:ops"},
    ),
    "owner": (
        lambda room, group: room.transfer(group, CARA, by=ANA),
        StateChange.OWNER,
        {"people": (), "maker": f"user:{ANA.hex()}"},
    ),
    "frozen": (lambda room, group: room.freeze(group), StateChange.FROZEN, {"people": ()}),
    "floor": (lambda room, group: room.floor(group, 3), StateChange.FLOOR, {"floor": 3, "people": ()}),
    "own clear": (
        lambda room, group: room.clear(CARA, group, 2),
        StateChange.OWN_CLEAR,
        {"people": (CARA,), "clear": 2, "maker": ""},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_each_change_tells_what_it_made(room: Room, name: str) -> None:
    act, operation, expected = CHANGES[name]
    await room.stores.begin_archive()
    group = await room.chat.create(ANA, BEN, CARA, settings=SETTINGS)
    await room.chat.send_many(4, ANA, group)
    await act(room, group)
    row = await check_newest(room, group)
    assert (row.operation, row.revision) == (operation, 2)
    told = {field: getattr(row, field) for field in expected}
    if "maker" in told:
        told["maker"] = told["maker"].replace("-", "")
    assert told == expected


async def test_a_direct_conversation_has_a_row_of_its_creation(room: Room) -> None:
    await room.stores.begin_archive()
    await room.chat.outcomes((ANA, b"", {"peer": BEN}), (ANA, b"", {"peer": ANA}), (ANA, b"", {"peer": BEN}))
    for peer, people in ((BEN, (ANA, BEN)), (ANA, (ANA,))):
        conversation = direct_conversation_id(TENANT, ANA, peer)
        (row,) = await room.stores.group_rows(conversation)
        keys = room.stores.keys(conversation)
        assert (row.kind, row.operation, row.people) == (RowKind.STATE, StateChange.CREATED, people)
        assert (row.revision, row.version, row.head, row.count, row.floor) == (1, 1, 0, len(people), 0)
        assert (row.policy, row.request_field, row.answer, row.maker) == (bytes(37), b"", b"", "")
        assert row.time_ms == int(await room.stores.call("HGET", keys.grpmeta, "created"))


@pytest.mark.parametrize("seed", range(6))
async def test_random_histories_have_a_row_for_every_revision(room: Room, seed: int) -> None:
    choose = random.Random(seed)  # noqa: S311  no secret
    await room.stores.begin_archive()
    group = await room.chat.create(ANA, BEN, settings=SETTINGS)
    people = [user(number) for number in range(1, 13)]

    async def freeze_for_a_moment() -> None:
        await room.freeze(group)
        await check_newest(room, group)
        await room.freeze(group, frozen=False)

    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: room.chat.add(group, *choose.sample(people, 4)),
        lambda: room.chat.remove(group, *choose.sample(people, 2)),
        lambda: room.chat.leave(choose.choice(people), group),
        lambda: room.clear(choose.choice(people), group, choose.randint(0, 30)),
        lambda: room.floor(group, choose.randint(1, 20)),
        lambda: room.transfer(group, choose.choice(people)),
        freeze_for_a_moment,
        lambda: room.chat.send_many(3, choose.choice(people), group),
    ]
    before = 1
    for _ in range(40):
        # What is refused or changes nothing has no row.
        with suppress(QimError, AssertionError):
            await choose.choice(changes)()
        revision = int(await room.stores.call("HGET", room.stores.keys(group).grpmeta, "revision"))
        if revision > before:
            assert (await check_newest(room, group)).revision == revision
        before = revision
    rows = await room.stores.group_rows(group)
    assert [row.revision for row in rows] == list(range(1, before + 1))
    assert len(rows) > 5


async def test_what_changes_nothing_has_no_row(room: Room) -> None:
    await room.stores.begin_archive()
    group = await room.chat.create(ANA, BEN, settings=SETTINGS)
    await room.chat.send_many(4, ANA, group)
    await room.floor(group, 3)
    await room.clear(ANA, group, 4)
    rows = await room.stores.group_rows(group)
    request = uuid7()
    await room.chat.add(group, ANA, request_id=request)
    await room.chat.add(group, ANA, request_id=request)
    await room.set(group, SETTINGS)
    await room.floor(group, 2)
    await room.clear(ANA, group, 3)
    await room.transfer(group, ANA)
    assert await room.stores.group_rows(group) == rows


async def test_a_retry_makes_no_second_row(room: Room) -> None:
    await room.stores.begin_archive()
    group = await room.chat.create(ANA, BEN, settings=SETTINGS)
    request = uuid7()
    first = await room.chat.add(group, CARA, request_id=request)
    assert await room.chat.add(group, CARA, request_id=request) == first
    assert len(await room.stores.group_rows(group)) == 2


async def test_without_an_archive_nothing_is_written_for_it(room: Room) -> None:
    group = await room.chat.create(ANA, BEN, CARA, settings=SETTINGS)
    await room.chat.send_many(4, ANA, group)
    for act, _, _ in CHANGES.values():
        await act(room, group)
    await room.chat.send(ANA, peer=BEN)
    for conversation in (group, direct_conversation_id(TENANT, ANA, BEN)):
        bucket = room.stores.bucket(conversation)
        entries = await room.stores.call("XRANGE", bucket.dispatch, "-", "+")
        assert {name for _, fields in entries for name in fields[::2]} == {b"e"}
        assert not {b"arch", b"rec", b"arcd"} & set(await room.stores.hash(bucket.meta))


async def test_messages_and_state_entries_are_counted(room: Room) -> None:
    await room.stores.begin_archive()
    group = await room.chat.create(ANA, BEN, settings=SETTINGS)
    bucket = room.stores.bucket(group)

    async def recorded() -> int:
        return int((await room.stores.hash(bucket.meta)).get(b"rec", 0))

    counts = [await recorded()]
    for act in (
        lambda: room.chat.send_many(5, ANA, group),
        lambda: room.chat.add(group, CARA),
        lambda: room.freeze(group),
        lambda: room.freeze(group),
        lambda: room.clear(ANA, group, 2),
    ):
        await act()
        counts.append(await recorded())
    assert counts == [1, 6, 7, 8, 8, 9]


async def test_a_first_direct_message_counts_its_creation_too(room: Room) -> None:
    await room.stores.begin_archive()
    await room.chat.send(ANA, peer=BEN)
    bucket = room.stores.bucket(direct_conversation_id(TENANT, ANA, BEN))
    assert await room.stores.call("HGET", bucket.meta, "rec") == b"2"


def _shown(person: bytes) -> str:
    text = person.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


@pytest.mark.parametrize("passed", ["retention first", "archive first"])
async def test_the_retention_takes_what_is_past_it_and_archived(room: Room, passed: str) -> None:
    await room.stores.begin_archive()
    group = await room.chat.create(ANA, BEN, settings=SETTINGS)
    for _ in range(320):
        await room.chat.send(ANA, group)
    bucket = room.stores.bucket(group)
    ids = [entry for entry, _ in await room.stores.call("XRANGE", bucket.dispatch, "-", "+")]
    lower, higher = ids[150], ids[250]
    dlow, arch = (higher, lower) if passed == "retention first" else (lower, higher)
    await room.stores.call("HSET", bucket.meta, "dlow", dlow, "arch", arch)
    for _ in range(5):
        await room.chat.send(ANA, group)
    left = [entry for entry, _ in await room.stores.call("XRANGE", bucket.dispatch, "-", "+")]
    assert 100 < ids.index(left[0]) <= 150, "what is below both goes, but for the rest of a node of the stream"


async def test_an_archive_that_is_at_the_start_lets_nothing_go(room: Room) -> None:
    await room.stores.begin_archive()
    group = await room.chat.create(ANA, BEN, settings=SETTINGS)
    for _ in range(150):
        await room.chat.send(ANA, group)
    bucket = room.stores.bucket(group)
    await room.stores.call("HSET", bucket.meta, "dlow", f"{await room.stores.now_ms() + 1000}-0")
    await room.chat.add(group, CARA)
    await room.chat.send(ANA, group)
    assert await room.stores.call("XLEN", bucket.dispatch) == 153

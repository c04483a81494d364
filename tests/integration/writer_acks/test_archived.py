"""Ack level `archived`: nothing is answered, or read as the head, before the archive holds it.

The archiver is these tests themselves: it notes `aseq` and `arev` where the real one does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
import pytest_asyncio
from tests.support.chat import ANA, BEN, CARA, DAN, TENANT, Chat, Outcomes, acting, user
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.errors import BackendUnavailable, PermissionDenied, QimError
from qim_common.ids import ConversationId, TenantId, UserId, direct_conversation_id, uuid7
from qim_common.records import Audience
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis import archive_waits
from qim_writer.backends.redis.group_state import RedisGroupStateStore
from qim_writer.commands.clear_history import OwnClear
from qim_writer.commands.group_state import GroupState
from qim_writer.commands.states import ConversationQuery, PersonStates
from qim_writer.commands.trimming import Trimmer
from qim_writer.domain.hints import HintRun
from qim_writer.domain.policy import GroupSettings, Limits
from qim_writer.storage import ChangeAnswer, Changes

pytestmark = pytest.mark.server

T = TypeVar("T")
LIMITS = Limits(broadcast_max_members=3)
EVERYTHING = 10**9


@dataclass
class Hints:
    """The runs that the low-latency lane heard of; satisfies `CommitHints`."""

    sends: list[tuple[ConversationId, int]] = field(default_factory=list)
    changes: list[HintRun] = field(default_factory=list)

    def sent(self, tenant: TenantId, conversation: ConversationId, version: int, time_ms: int) -> None:
        self.sends.append((conversation, version))

    def changed(self, run: HintRun) -> None:
        self.changes.append(run)


@dataclass
class Archive:
    """A chat at the ack level `archived`, and the archiver's part."""

    stores: RedisStores
    chat: Chat
    hints: Hints

    @property
    def waiting(self) -> int:
        return self.stores.store.waits[0].waiting

    async def note(self, conversation: ConversationId, *, seq: int = EVERYTHING, revision: int = EVERYTHING) -> None:
        """The archive holds everything up to there."""
        await self.stores.call("HSET", self.stores.keys(conversation).grpmeta, "aseq", seq, "arev", revision)

    async def waits(self, number: int) -> None:
        """Return, within a bound, when exactly so many commits wait."""
        async with asyncio.timeout(20):
            while self.waiting != number:  # noqa: ASYNC110  the store has no event for it
                await asyncio.sleep(0.002)

    async def group(self, *people: bytes, archived: bool = True) -> ConversationId:
        """A group, whose creation is archived; and, as asked, whatever comes."""
        group = ConversationId(b"\x02" + uuid7()[1:])
        made = asyncio.create_task(self.chat.create(ANA, BEN, group_id=group))
        await self.waits(self.waiting + 1)
        await self.note(group, seq=EVERYTHING if archived else 0, revision=EVERYTHING if archived else 1)
        assert await made == group
        return group


@pytest_asyncio.fixture
async def archive(valkey_session: ValkeyServer) -> AsyncIterator[Archive]:
    hints = Hints()
    async with redis_stores(valkey_session, ack_level="archived", hints=hints) as stores:
        await stores.begin_archive()
        yield Archive(stores, Chat(stores, limits=LIMITS, hints=hints), hints)


async def test_a_creation_is_answered_when_the_archive_has_its_revision(archive: Archive) -> None:
    group = ConversationId(b"\x02" + uuid7()[1:])
    made = asyncio.create_task(archive.chat.create(ANA, BEN, group_id=group))
    await archive.waits(1)
    assert not made.done()
    assert archive.hints.changes == []
    await archive.note(group, seq=0, revision=1)
    assert await made == group
    assert [run.conversation for run in archive.hints.changes] == [group]


async def test_sends_are_answered_as_far_as_the_archive_is(archive: Archive) -> None:
    group = await archive.group(archived=False)
    sink = Outcomes(5)
    archive.chat.stores.commits.submit([archive.chat.prepared(sink, index, ANA, group) for index in range(5)])
    await archive.waits(5)
    assert (sink.answers, archive.hints.sends) == ({}, [])
    await archive.note(group, seq=2, revision=1)
    await archive.waits(3)
    assert sink.order == [0, 1]
    assert archive.hints.sends == [(group, 1)], "once a run, and not before"
    await archive.note(group, seq=5, revision=1)
    assert len(await sink.wait()) == 5
    assert sink.order == [0, 1, 2, 3, 4]


async def test_a_change_is_answered_when_both_head_and_revision_are_archived(archive: Archive) -> None:
    group = await archive.group(archived=False)
    joined = asyncio.create_task(archive.chat.add(group, CARA))
    await archive.waits(1)
    for seq, revision in ((1, 1), (0, 2)):
        await archive.note(group, seq=seq, revision=revision)
        # Another conversation's wait that ends shows that the poll has been there.
        await archive.group()
        assert not joined.done()
    await archive.note(group, seq=1, revision=2)
    assert (await joined).seq == 1


async def test_a_first_direct_message_is_answered_when_it_is_archived(archive: Archive) -> None:
    sent = asyncio.create_task(archive.chat.send(ANA, peer=BEN))
    await archive.waits(1)
    await archive.note(direct_conversation_id(TENANT, ANA, BEN), seq=1, revision=1)
    assert (await sent).seq == 1


async def test_every_repeated_answer_waits_like_the_first(archive: Archive) -> None:
    group = await archive.group()
    states = RedisGroupStateStore(archive.stores.store)
    groups = GroupState(archive.stores.membership, states, Trimmer(states, archive.stores.buckets), LIMITS)
    clear = OwnClear(archive.stores.membership, states)
    chat, ids = archive.chat, [uuid7() for _ in range(7)]
    await chat.send_many(3, ANA, group)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: chat.send(ANA, group, message_id=ids[0]),
        lambda: chat.add(group, CARA, request_id=ids[1]),
        lambda: chat.leave(CARA, group, request_id=ids[2]),
        lambda: groups.update_settings(chat.operator, ids[3], group, GroupSettings(member_limit=7)),
        lambda: groups.clear_group(chat.operator, ids[4], group, 1),
        lambda: clear(acting(ANA), ids[5], group, 2),
    ]
    for call in calls:
        first = await call()
        await archive.note(group, seq=0, revision=0)
        again = asyncio.ensure_future(call())
        await archive.waits(1)
        assert not again.done()
        await archive.note(group)
        assert await again == first


async def test_what_is_already_in_effect_waits_for_what_it_confirms(archive: Archive) -> None:
    group = await archive.group()
    await archive.chat.add(group, CARA)
    await archive.note(group, seq=0, revision=1)
    again = asyncio.create_task(archive.chat.add(group, CARA))
    await archive.waits(1)
    await archive.note(group)
    assert (await again).changed == 0


async def test_refusals_wait_for_nothing(archive: Archive) -> None:
    group = await archive.group(archived=False)
    with pytest.raises(PermissionDenied):
        await archive.chat.send(DAN, group)
    assert archive.waiting == 0


async def test_a_run_of_the_retention_waits_for_nothing(archive: Archive) -> None:
    group = await archive.group()
    await archive.chat.send_many(3, ANA, group)
    await archive.note(group, seq=0, revision=1)
    facts = await archive.stores.membership.facts(archive.chat.of(group), ANA)
    assert facts is not None
    states = RedisGroupStateStore(archive.stores.store)
    raised = await states.raise_floor(archive.chat.of(group), 2, facts.policy, "retention", None)
    assert raised is not None
    assert (raised.floor, archive.waiting) == (2, 0)


async def test_who_waits_no_longer_is_forgotten(archive: Archive) -> None:
    group = await archive.group(archived=False)
    sink = Outcomes(3)
    archive.chat.stores.commits.submit([archive.chat.prepared(sink, index, ANA, group) for index in range(3)])
    joined = asyncio.create_task(archive.chat.add(group, CARA))
    await archive.waits(4)
    sink.expired = True
    joined.cancel()
    # The lane still hears of the run when it is archived.
    await archive.waits(1)
    await archive.note(group)
    await archive.waits(0)
    assert (sink.answers, archive.hints.sends) == ({}, [(group, 1)])


async def test_a_lost_connection_ends_every_wait_with_an_unknown_outcome(archive: Archive) -> None:
    group = await archive.group(archived=False)
    sink = Outcomes(1)
    archive.chat.stores.commits.submit([archive.chat.prepared(sink, 0, ANA, group)])
    joined = asyncio.create_task(archive.chat.add(group, CARA))
    await archive.waits(2)
    archive.stores.store.instances[0].connection.close("the test")
    with pytest.raises(BackendUnavailable):
        await joined
    (outcome,) = await sink.wait()
    assert isinstance(outcome, BackendUnavailable)
    assert archive.waiting == 0


async def test_a_change_is_not_answered_for_ever(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    group = await archive.group(archived=False)
    monkeypatch.setattr(archive_waits, "CHANGE_SECONDS", 0.05)
    request = uuid7()
    with pytest.raises(BackendUnavailable):
        await archive.chat.add(group, CARA, request_id=request)
    await archive.note(group)
    assert (await archive.chat.add(group, CARA, request_id=request)).seq == 1


@dataclass
class Pending:
    """A group of ANA and BEN with an archived message; DAN's joining is committed, and waits for the archive."""

    archive: Archive
    group: ConversationId
    joining: asyncio.Task[ChangeAnswer]

    async def after_the_archive(self, reading: Awaitable[T]) -> T:
        """What a read answers, which is given when the archive has the change and no sooner."""
        read = asyncio.ensure_future(reading)
        await self.archive.waits(2)
        assert not read.done()
        await self.archive.note(self.group)
        await self.joining
        return await read


@pytest_asyncio.fixture
async def pending(archive: Archive) -> AsyncIterator[Pending]:
    group = await archive.group()
    await archive.chat.send(ANA, group)
    await archive.note(group, seq=1, revision=1)
    joining = asyncio.create_task(archive.chat.add(group, DAN))
    await archive.waits(1)
    yield Pending(archive, group, joining)
    await archive.note(group)
    await joining


async def test_a_page_of_members_is_told_when_the_archive_has_it(pending: Pending) -> None:
    chat, group = pending.archive.chat, pending.group
    page = await pending.after_the_archive(chat.stores.membership.members_page(chat.of(group), b"", 10))
    assert page is not None
    assert (page.version, page.count, len(page.entries)) == (2, 3, 3)


async def test_the_changes_since_a_version_end_at_the_archived_one(pending: Pending) -> None:
    chat, group = pending.archive.chat, pending.group
    assert await chat.stores.membership.changes_since(chat.of(group), 1, 10) == Changes((), 1)
    told = await pending.after_the_archive(chat.stores.membership.changes_since(chat.of(group), 2, 10))
    assert told == Changes((), 2)
    later = await chat.stores.membership.changes_since(chat.of(group), 1, 10)
    assert later is not None
    assert [change.users for change in later.changes] == [(DAN,)]


async def test_the_members_at_an_archived_version_wait_for_nothing(pending: Pending) -> None:
    chat, group = pending.archive.chat, pending.group

    async def members(version: int) -> set[bytes]:
        pages = chat.stores.membership.members_at(chat.of(group), version, None)
        return {entry[2:] async for page in pages for entry in page}

    assert await members(1) == {ANA, BEN}
    assert await pending.after_the_archive(members(2)) == {ANA, BEN, DAN}


@pytest.mark.parametrize("who", [ANA, DAN, user(77)])
async def test_facts_are_told_when_the_archive_has_their_version(pending: Pending, who: UserId) -> None:
    chat, group = pending.archive.chat, pending.group
    facts = await pending.after_the_archive(chat.stores.membership.facts(chat.of(group), who))
    assert facts is not None
    assert (facts.version, facts.revision, facts.member_count) == (2, 2, 3)


async def test_facts_are_not_waited_for_for_ever(pending: Pending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_waits, "CHANGE_SECONDS", 0.05)
    chat, group = pending.archive.chat, pending.group
    with pytest.raises(BackendUnavailable):
        await chat.stores.membership.facts(chat.of(group), ANA)


async def test_a_list_shows_the_version_and_the_stays_of_the_archived_head_and_does_not_wait(archive: Archive) -> None:
    group = await archive.group()
    chat = archive.chat
    await chat.add(group, CARA)
    await archive.note(group, seq=1, revision=2)
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: chat.remove(group, CARA),
        lambda: chat.add(group, DAN),
        lambda: chat.add(group, CARA),
    ]
    # As another writer would, not waiting for the change before: who waits goes away, the change is committed.
    for change in changes:
        asking = asyncio.ensure_future(change())
        await archive.waits(1)
        asking.cancel()
        await asyncio.wait([asking])
        await archive.waits(0)

    async def shown(who: UserId) -> tuple[int, list[tuple[int, int]]]:
        (look,) = await chat.stores.membership.looks(TENANT, who, [group])
        assert look is not None
        stays = look.facts.person.stays if look.facts.person else ()
        return look.facts.version, [(stay.began_version, stay.ended_version) for stay in stays]

    for seq, version, cara, dan in (
        (1, 2, [(2, 0)], []),
        (2, 3, [(2, 3)], []),
        (3, 4, [(2, 3)], [(4, 0)]),
        (4, 5, [(2, 3), (5, 0)], [(4, 0)]),
    ):
        await archive.note(group, seq=seq, revision=seq + 1)
        assert await shown(CARA) == (version, cara)
        assert await shown(DAN) == (version, dan)
        assert await shown(ANA) == (version, [(1, 0)])


async def test_a_creation_that_waits_is_in_no_list(archive: Archive) -> None:
    group = ConversationId(b"\x02" + uuid7()[1:])
    made = asyncio.create_task(archive.chat.create(ANA, BEN, group_id=group))
    await archive.waits(1)
    assert await archive.chat.stores.membership.looks(TENANT, ANA, [group]) == [None]
    await archive.note(group, seq=0, revision=1)
    await made
    (look,) = await archive.chat.stores.membership.looks(TENANT, ANA, [group])
    assert look is not None
    assert look.facts.version == 1


async def test_a_long_row_of_changes_that_wait_is_walked_to_its_end(archive: Archive) -> None:
    group = await archive.group()
    for _ in range(40):
        await archive.chat.add(group, DAN)
        await archive.chat.remove(group, DAN)
    for seq in (0, 1, 15, 16, 17, 79):
        await archive.note(group, seq=seq, revision=seq + 1)
        assert await archive.chat.stores.membership.changes_since(archive.chat.of(group), 1 + seq, 10) == Changes(
            (), 1 + seq
        )


async def history(archive: Archive, seed: int) -> ConversationId:
    """Messages, comings and goings above and below the bound up to which events are broadcast."""
    choose = random.Random(seed)  # noqa: S311  no secret
    group = await archive.group()
    chat, people = archive.chat, [user(number) for number in range(1, 8)]
    moves: list[Callable[[], Awaitable[object]]] = [
        lambda: chat.add(group, *choose.sample(people, 2)),
        lambda: chat.remove(group, *choose.sample(people, 2)),
        lambda: chat.leave(choose.choice(people), group),
        lambda: chat.send_many(choose.randint(1, 2), choose.choice(people), group),
    ]
    for _ in range(60):
        with suppress(QimError, AssertionError):
            await choose.choice(moves)()
    return group


@pytest.mark.parametrize("seed", range(4))
async def test_readers_see_the_line_as_it_was_when_the_archived_head_was_its_head(archive: Archive, seed: int) -> None:
    group = await history(archive, seed)
    of = archive.chat.of(group)
    head = int(await archive.stores.call("GET", archive.stores.keys(group).msgcseq))
    assert head > 10
    records = {record.seq: record for record in await archive.stores.messages.records(of, range(1, head + 1))}
    everybody = [user(number) for number in range(1, 8)]
    persons = PersonStates(archive.stores.membership, archive.stores.messages)
    for upto in (*range(head + 1), head + 5):
        await archive.note(group, seq=min(upto, head))
        at = min(upto, head)
        reached = [seq for seq in range(1, at + 1) if records[seq].audience is Audience.BROADCAST]
        for who in everybody:
            (look,) = await archive.stores.membership.looks(TENANT, who, [group])
            facts = await archive.stores.membership.facts(of, who)
            assert look is not None
            assert (look.facts, look.facts.head) == (facts, at)
            assert look.facts.newest_broadcast == max(reached, default=0)
            if look.facts.person is None:
                continue
            assert look.newest == records.get(at)
            query = [ConversationQuery(group)]
            ((_, state),) = await persons.conversations(TENANT, who, query, with_preview=True)
            assert state is not None
            newest = state.newest_delivered
            assert newest <= at
            assert state.last_activity_ms == (records[newest].time_ms if newest else look.facts.created_ms)
            assert max((last for _, last in state.visible.ranges), default=0) <= at
            assert state.preview == records.get(state.head)


async def test_a_long_row_of_events_that_concern_few_is_walked_to_its_end(archive: Archive) -> None:
    group = await archive.group()
    await archive.chat.add(group, CARA, DAN)
    await archive.chat.send(ANA, group)
    for _ in range(75):
        await archive.chat.add(group, user(9))
        await archive.chat.remove(group, user(9))
    for at, newest in ((2, 2), (3, 2), (80, 2), (151, 2), (152, 2)):
        await archive.note(group, seq=at)
        facts = await archive.stores.membership.facts(archive.chat.of(group), ANA)
        assert facts is not None
        assert (facts.head, facts.newest_broadcast) == (at, newest)


async def test_a_conversation_that_the_archive_does_not_know_has_no_head(archive: Archive) -> None:
    group = await archive.group()
    await archive.chat.send_many(3, ANA, group)
    await archive.stores.call("HDEL", archive.stores.keys(group).grpmeta, "aseq")
    assert await archive.chat.head(group) == 0
    assert await archive.chat.read(ANA, group) == []

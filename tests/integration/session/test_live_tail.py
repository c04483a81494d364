"""The live tail on a real log: what it hands over, what waits, and what happens where entries are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.integration.session.conftest import Store
from tests.integration.session.living import Live, attached, living
from tests.support.dispatch import TENANT, control, group, messages, ordinary, user

from qim_common.ids import MembershipOp
from qim_common.keys import BucketKeys
from qim_common.records import Audience
from qim_session.domain.entries import ProjectionEntry

pytestmark = pytest.mark.server
A = group(1)
ANA, BEN, CARA = user(1), user(2), user(3)


@pytest_asyncio.fixture
async def live(store: Store) -> AsyncIterator[Live]:
    async with living(store) as made:
        yield made


async def test_a_block_reaches_the_members_at_its_version_and_whom_it_concerns(store: Store, live: Live) -> None:
    live.members.versions[A, 3] = {ANA, BEN}
    for number, person in enumerate((ANA, BEN, CARA), 1):
        await attached(live, person, number)
    await store.append(A, messages(A, 3, 7, [ordinary(ANA)]))
    await store.append(A, messages(A, 4, 8, [control(MembershipOp.REMOVE, [BEN])]))
    await store.append(A, messages(A, 5, 9, [control(MembershipOp.JOIN, [CARA], Audience.CONCERNED)]))
    await store.append(A, messages(A, 5, 10, [ordinary(ANA)]))
    await live.screen.until(1, "delivered", 3)
    await live.screen.until(3, "delivered", 2)
    assert live.screen.seqs(1, A) == [7, 8, 10]
    assert live.screen.seqs(2, A) == [7, 8]
    assert live.screen.seqs(3, A) == [9, 10]
    assert set(live.members.versions) == {(A, 3)}, "the later versions were derived"


async def test_a_partition_that_waits_for_the_writer_holds_up_no_other_one(store: Store, live: Live) -> None:
    other = next(group(n) for n in range(2, 99) if store.partition(group(n)) != store.partition(A))
    live.members.versions |= {(A, 1): {ANA}, (other, 1): {ANA}}
    await attached(live, ANA)
    await store.append(other, messages(other, 1, 1, [ordinary(ANA)]))
    await live.screen.until(1, "delivered")
    live.members.down = True
    await store.append(A, messages(A, 1, 1, [ordinary(ANA)]))
    await store.append(A, messages(A, 1, 2, [ordinary(ANA)]))
    await store.append(other, messages(other, 1, 2, [ordinary(ANA)]))
    await live.screen.until(1, "delivered", 2)
    assert (live.screen.seqs(1, other), live.screen.seqs(1, A)) == ([1, 2], [])
    live.members.down = False
    await live.screen.until(1, "delivered", 4)
    assert live.screen.seqs(1, A) == [1, 2]


async def test_where_entries_are_gone_everybody_catches_up_and_goes_live_again(store: Store, live: Live) -> None:
    live.members.versions[A, 1] = {ANA}
    await store.people.register([ProjectionEntry(TENANT, ANA, A, 1)])
    await attached(live, ANA)
    await store.append(A, messages(A, 1, 1, [ordinary(ANA)]))
    await live.screen.until(1, "delivered")
    log = BucketKeys(store.partition(A)).dispatch
    block = messages(A, 1, 2, [ordinary(ANA)])
    # In one step, so that nobody can read the entry: as if it had been trimmed while the tail stalled.
    await store.instance.pipeline([("MULTI",), ("XADD", log, "*", "e", block), ("XTRIM", log, "MAXLEN", 0), ("EXEC",)])
    live.owner.newest[A] = 2
    live.tail.connection.close("cut by the test")
    await live.screen.until(1, "attached", 2)
    assert live.screen.seqs(1, A) == [1, 2]
    assert len(live.screen.of(1, "states_changed")) == 1
    await store.append(A, messages(A, 1, 3, [ordinary(ANA)]))
    await live.screen.until(1, "delivered", 3)
    assert live.screen.seqs(1, A) == [1, 2, 3]


async def test_entries_that_left_the_log_while_the_process_stood_still_are_caught_up_with(
    store: Store, live: Live
) -> None:
    live.members.versions[A, 1] = {ANA}
    await store.people.register([ProjectionEntry(TENANT, ANA, A, 1)])
    await attached(live, ANA)
    await store.append(A, messages(A, 1, 1, [ordinary(ANA)]))
    await live.screen.until(1, "delivered")
    log = BucketKeys(store.partition(A)).dispatch
    blocks = [messages(A, 1, seq, [ordinary(ANA)]) for seq in (2, 3)]
    live.owner.newest[A] = 3
    live.log.ahead_ms = 60_000
    # In one step: the read that finds the second one comes too late for the first one.
    appends = [("XADD", log, "*", "e", block) for block in blocks]
    await store.instance.pipeline([("MULTI",), *appends, ("XTRIM", log, "MAXLEN", 1), ("EXEC",)])
    await live.screen.until(1, "attached", 2)
    assert live.screen.seqs(1, A) == [1, 2, 3]
    assert len(live.screen.of(1, "states_changed")) == 1


async def test_where_the_members_at_a_version_are_gone_everybody_catches_up(store: Store, live: Live) -> None:
    await store.people.register([ProjectionEntry(TENANT, ANA, A, 1)])
    await attached(live, ANA)
    live.owner.newest[A] = 5
    await store.append(A, messages(A, 9, 5, [ordinary(ANA)]))
    await live.screen.until(1, "attached", 2)
    assert live.screen.seqs(1, A) == [1, 2, 3, 4, 5]


async def test_while_nobody_is_attached_the_log_is_not_read_and_nothing_is_missed_later(
    store: Store, live: Live
) -> None:
    live.members.versions[A, 1] = {ANA}
    await attached(live, ANA)
    live.screen.stream.detach(1)
    await live.screen.until(1, "detached")
    await store.append(A, messages(A, 1, 1, [ordinary(ANA)]))
    live.owner.newest[A] = 1
    await store.people.register([ProjectionEntry(TENANT, ANA, A, 1)])
    live.screen.events.clear()
    await attached(live, ANA)
    await store.append(A, messages(A, 1, 2, [ordinary(ANA)]))
    await live.screen.until(1, "delivered", 2)
    assert live.screen.seqs(1, A) == [1, 2]

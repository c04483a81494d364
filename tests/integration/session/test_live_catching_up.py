"""Catching up in pages that are interrupted: nothing is passed over or comes twice, no acknowledgement hides it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from tests.integration.session.conftest import BOUND_SECONDS, Store
from tests.integration.session.living import Live, attached, living
from tests.support.dispatch import TENANT, group, messages, ordinary, user

from qim_common.errors import BackendUnavailable
from qim_common.ids import DeviceId, UserId
from qim_session.commands.live.catch_up import PAGE_ENTRIES
from qim_session.domain.cursors import Cursor
from qim_session.domain.entries import ProjectionEntry

pytestmark = pytest.mark.server
A, B = group(1), group(2)
ANA, BEN = user(1), user(2)
NEWEST = 2 * PAGE_ENTRIES + 100


@pytest_asyncio.fixture
async def live(store: Store) -> AsyncIterator[Live]:
    """Ana has three pages to catch up with."""
    await store.people.register([ProjectionEntry(TENANT, ANA, A, 1)])
    async with living(store) as made:
        made.owner.newest[A] = NEWEST
        made.members.versions[A, 1] = {ANA}
        yield made


class Hold:
    """Holds up an answer about what comes after a seq until it is let go."""

    def __init__(self, after_seq: int) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        self._after_seq = after_seq

    async def __call__(self, after_seq: int) -> None:
        if after_seq == self._after_seq:
            self.reached.set()
            await self.go.wait()


def failing_once(after_seq: int) -> Callable[[int], Awaitable[None]]:
    """The first answer about what comes after a seq fails."""
    left = [after_seq]

    async def answer(asked: int) -> None:
        if asked in left:
            left.remove(asked)
            raise BackendUnavailable

    return answer


async def stored(store: Store, person: UserId = ANA) -> Cursor | None:
    return (await store.people.device(TENANT, person, DeviceId(person), [A])).get(A)


@pytest.mark.parametrize("after_seq", [0, PAGE_ENTRIES, 2 * PAGE_ENTRIES])
async def test_a_reading_that_fails_between_two_pages_goes_on_where_it_was(
    store: Store, live: Live, monkeypatch: pytest.MonkeyPatch, after_seq: int
) -> None:
    monkeypatch.setattr(live.owner, "before_page", failing_once(after_seq))
    await attached(live, ANA)
    await store.append(A, messages(A, 1, NEWEST + 1, [ordinary(ANA)]))
    await live.screen.until(1, "delivered", NEWEST + 1)
    assert live.screen.seqs(1, A) == list(range(1, NEWEST + 2))
    assert len(live.screen.of(1, "attached")) == 1


async def test_a_reading_that_is_given_up_for_a_gap_goes_on_where_it_was(
    store: Store, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Hold(PAGE_ENTRIES)
    monkeypatch.setattr(live.owner, "before_page", hold)
    live.screen.attach(1, ANA)
    await live.screen.until(1, "delivered", PAGE_ENTRIES)
    await hold.reached.wait()
    hold.reached.clear()
    await store.append(B, messages(B, 9, 1, [ordinary(BEN)]))  # nobody knows the members any more
    await live.screen.until(1, "states_changed")
    async with asyncio.timeout(BOUND_SECONDS):
        await hold.reached.wait()
    hold.go.set()
    await live.screen.until(1, "attached")
    assert live.screen.seqs(1, A) == list(range(1, NEWEST + 1))


async def test_an_acknowledgement_hides_no_page_that_is_still_to_come(
    store: Store, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Hold(PAGE_ENTRIES)
    monkeypatch.setattr(live.owner, "before_page", hold)
    live.screen.attach(1, ANA)
    await live.screen.until(1, "delivered", PAGE_ENTRIES)
    await hold.reached.wait()
    live.screen.stream.acknowledge(1, [(A, Cursor(0, NEWEST))])
    live.screen.stream.detach(1)
    await live.screen.until(1, "detached")
    assert await stored(store) == Cursor(0, PAGE_ENTRIES)
    hold.go.set()
    await attached(live, ANA, 2)
    assert live.screen.seqs(2, A) == list(range(PAGE_ENTRIES + 1, NEWEST + 1))
    live.screen.stream.acknowledge(2, [(A, Cursor(0, NEWEST + 50))])
    live.screen.stream.detach(2)
    await live.screen.until(2, "detached")
    assert await stored(store) == Cursor(0, NEWEST), "no further than what was delivered"


async def test_what_an_earlier_stream_brought_is_acknowledged_before_it_is_sent_again(
    store: Store, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Hold(0)
    monkeypatch.setattr(live.owner, "before_page", hold)
    live.screen.attach(1, ANA)
    await hold.reached.wait()
    live.screen.stream.acknowledge(1, [(A, Cursor(0, NEWEST))])
    live.screen.stream.detach(1)
    await live.screen.until(1, "detached")
    assert await stored(store) == Cursor(0, NEWEST)


async def test_stale_acknowledgements_are_told_all_at_once_and_hold_up_nobody_else(
    store: Store, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.people.register([ProjectionEntry(TENANT, BEN, A, 1)])
    await attached(live, ANA)
    await attached(live, BEN, 2)
    asked, answer = asyncio.Event(), asyncio.Event()

    async def before_states(person: UserId) -> None:
        if person == ANA:
            asked.set()
            await answer.wait()

    monkeypatch.setattr(live.owner, "before_states", before_states)
    live.owner.asked.clear()
    others = [group(number) for number in range(10, 310)]
    live.screen.stream.acknowledge(1, [(conversation, Cursor(9, 1)) for conversation in others])
    await asked.wait()
    live.screen.stream.acknowledge(2, [(A, Cursor(0, NEWEST))])
    live.screen.stream.detach(2)
    await live.screen.until(2, "detached")
    assert await stored(store, BEN) == Cursor(0, NEWEST), "it did not wait for Ana's"
    answer.set()
    told = await live.screen.until(1, "resync_required", len(others))
    assert {event.resync_required.conversation_id for event in told} == set(others)
    assert live.owner.asked == [len(others)], "one question"


async def test_nothing_is_queued_under_the_number_of_an_attachment_that_has_ended(
    store: Store, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Hold(2 * PAGE_ENTRIES)
    monkeypatch.setattr(live.owner, "before_page", hold)
    live.screen.attach(1, ANA)
    await live.screen.until(1, "delivered", 2 * PAGE_ENTRIES)
    await attached(live, BEN, 2)
    # What waits for the end of the reading: one that does not fit beside the last page, and one that would.
    await store.append(A, messages(A, 1, NEWEST + 1, [ordinary(ANA, b"x" * 4_000) for _ in range(400)]))
    await store.append(A, messages(A, 1, NEWEST + 401, [ordinary(ANA)]))
    live.members.versions[B, 1] = {BEN}
    await store.append(B, messages(B, 1, 1, [ordinary(BEN)]))
    await live.screen.until(2, "delivered")
    hold.go.set()
    await live.screen.until(1, "detached")
    while len(live.screen.stream.outbox):
        await live.screen.take()
    kinds = [event.WhichOneof("event") for number, event in live.screen.events if number == 1]
    assert kinds[-1] == "detached"

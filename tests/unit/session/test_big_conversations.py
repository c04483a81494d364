"""Lists with big conversations, which rise without being projected: the same answers, and nothing is missed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.support.dispatch import group
from tests.unit.session.people_in_memory import ANA, Owner, People, Reached, state

from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.telemetry.metrics import SessionMetrics
from qim_common.tokens import TokenSigner
from qim_session.commands.list_conversations import ConversationPage, ListConversations
from qim_session.commands.listed import Entries
from qim_session.domain.big_conversations import merge_big
from qim_session.domain.flags import Flags
from qim_session.domain.list_pages import Descent, ListCursor, ListPosition, Sweep


def at(time_ms: int, number: int) -> ListPosition:
    return ListPosition(time_ms, group(number))


@pytest.mark.parametrize(
    ("cursor", "big", "expected"),
    [
        pytest.param(Descent(), [at(15, 9)], [at(20, 2), at(15, 9), at(10, 1)], id="at the top"),
        pytest.param(Descent(at(30, 3)), [at(40, 9)], [at(20, 2), at(10, 1)], id="it has risen above the place"),
        pytest.param(Descent(at(30, 3)), [at(30, 3)], [at(20, 2), at(10, 1)], id="the place is exclusive"),
        pytest.param(Descent(at(30, 3)), [at(30, 2)], [at(30, 2), at(20, 2), at(10, 1)], id="ids order a moment"),
        pytest.param(Descent(at(9, 3)), [], [at(20, 2), at(10, 1)], id="no big conversation"),
        pytest.param(
            Sweep(at(5, 3), group(0)),
            [at(15, 9), at(4, 8), at(6, 3)],
            [at(10, 1), at(20, 2), at(6, 3), at(15, 9)],
            id="the sweep goes by id, through what is above its turn",
        ),
        pytest.param(Sweep(at(5, 3), group(0)), [at(5, 3)], [at(10, 1), at(20, 2)], id="the turn is exclusive"),
    ],
)
def test_places_are_merged_in_the_order_of_the_reading(
    cursor: ListCursor, big: list[ListPosition], expected: list[ListPosition]
) -> None:
    projected = [at(10, 1), at(20, 2)] if isinstance(cursor, Sweep) else [at(20, 2), at(10, 1)]
    assert merge_big(cursor, projected, big, limit=5) == expected
    assert merge_big(cursor, projected, big, limit=1) == expected[:1]


class NothingToRebuild:
    """A person whose list is complete."""

    async def ensure(self, tenant: TenantId, user: UserId) -> None:
        return


class Inbox:
    """A list of which some conversations are big; what is older than `settled` has been projected."""

    def __init__(self, key_file: Path, *, small: int, big: int) -> None:
        key_file.write_text("11" * 32 + "\n")
        self.owner, self.people = Owner(), People()
        self.reached = Reached(1000)
        self.metrics = SessionMetrics(CollectorRegistry())
        self.now = 1000
        for number in range(1, small + big + 1):
            self.people.times[group(number)] = 100 + number
            self.owner.known[group(number)] = state(group(number), 100 + number)
            if number > small:
                # Projected when it became big, and never since.
                self.people.big.add(group(number))
        entries = Entries(self.people, self.owner)
        self.list = ListConversations(
            NothingToRebuild(),  # type: ignore[arg-type]  # it is not the subject
            self.people,
            entries,
            TokenSigner(key_file, interval=3600),
            self.metrics,
            self.reached,
        )

    def message(self, conversation: ConversationId, *, projected: bool = True) -> None:
        """Something is delivered: the owner knows at once, the projection of a small one follows at its own time."""
        self.now += 1
        self.owner.known[conversation] = state(conversation, self.now)
        if conversation not in self.people.big and projected:
            self.people.times[conversation] = self.now

    async def page(self, size: int, token: str = "", *, include_hidden: bool = False) -> ConversationPage:
        return await self.list(ANA, page_size=size, page_token=token, include_hidden=include_hidden)

    async def rest(self, size: int, token: str) -> list[ConversationId]:
        found: list[ConversationId] = []
        while token:
            page = await self.page(size, token)
            found += ids(page)
            token = page.next_page_token
            assert len(found) <= 3 * len(self.people.times)
        return found


def ids(page: ConversationPage) -> list[ConversationId]:
    return [entry.state.conversation for entry in page.conversations]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


async def test_a_big_conversation_takes_the_place_of_its_last_activity(key_file: Path) -> None:
    inbox = Inbox(key_file, small=3, big=1)
    inbox.owner.known[group(4)] = state(group(4), 102)
    assert ids(await inbox.page(10)) == [group(3), group(4), group(2), group(1)]
    inbox.message(group(4))
    assert ids(await inbox.page(10)) == [group(4), group(3), group(2), group(1)]


@pytest.mark.parametrize("big", [0, 1, 5, 12])
@pytest.mark.parametrize("size", [1, 3, 20])
async def test_a_list_at_rest_comes_once_and_in_order(key_file: Path, size: int, big: int) -> None:
    inbox = Inbox(key_file, small=12 - big, big=big)
    first = await inbox.page(size)
    found = ids(first) + await inbox.rest(size, first.next_page_token)
    assert found == [group(number) for number in range(12, 0, -1)]


async def test_a_page_asks_once_for_its_rows_and_the_big_ones(key_file: Path) -> None:
    inbox = Inbox(key_file, small=100, big=7)
    await inbox.page(50)
    assert inbox.owner.calls == [57]


async def test_more_than_500_are_asked_for_in_parts(key_file: Path) -> None:
    inbox = Inbox(key_file, small=100, big=600)
    await inbox.page(50)
    assert inbox.owner.calls == [500, 150]


async def test_big_conversations_that_rise_far_above_a_projection_that_stands_still_are_not_missed(
    key_file: Path,
) -> None:
    inbox = Inbox(key_file, small=6, big=2)
    for number in (7, 8):
        inbox.owner.known[group(number)] = state(group(number), 40 + number)
    first = await inbox.page(3)
    inbox.now += 100_000
    for number in (7, 8):
        inbox.message(group(number))
    found = set(ids(first)) | set(await inbox.rest(3, first.next_page_token))
    assert found == set(inbox.people.times)


async def test_a_conversation_that_becomes_big_between_two_pages_is_not_missed(key_file: Path) -> None:
    inbox = Inbox(key_file, small=8, big=0)
    first = await inbox.page(2)
    inbox.message(group(2))
    inbox.people.big.add(group(2))
    inbox.message(group(2))
    found = set(ids(first)) | set(await inbox.rest(2, first.next_page_token))
    assert found == set(inbox.people.times)


@pytest.mark.parametrize("seed", range(40))
async def test_paging_misses_nothing_while_messages_arrive(key_file: Path, seed: int) -> None:
    """Whichever lane is late: small ones are projected some time later, in any order, each at or above `settled`."""
    chance = random.Random(seed)  # noqa: S311  a test's own dice
    inbox = Inbox(key_file, small=chance.randint(0, 8), big=chance.randint(0, 8))
    everything = list(inbox.people.times)
    size = chance.randint(1, 5)
    late: list[ConversationId] = []
    found: set[ConversationId] = set()
    page = await inbox.page(size)
    found |= set(ids(page))
    rounds = 0
    while page.next_page_token:
        rounds += 1
        arrive = min(len(everything), chance.randint(0, 3)) if rounds < 30 else 0
        for conversation in chance.sample(everything, k=arrive):
            inbox.message(conversation, projected=False)
            late.append(conversation)
        chance.shuffle(late)
        for conversation in late[: chance.randint(0, 3)]:
            late.remove(conversation)
            if conversation not in inbox.people.big:
                inbox.people.times[conversation] = inbox.owner.known[conversation].last_activity_ms
        page = await inbox.page(size, page.next_page_token)
        found |= set(ids(page))
    assert found == set(everything)


async def test_hidden_conversations_are_left_out_and_the_pages_go_on(key_file: Path) -> None:
    inbox = Inbox(key_file, small=4, big=2)
    for number in (6, 5, 2):
        inbox.people.flags[group(number)] = Flags(hidden=True, muted=True, generation=1, hidden_seq=1)
    first = await inbox.page(2)
    assert (ids(first), bool(first.next_page_token)) == ([], True)
    assert await inbox.rest(2, first.next_page_token) == [group(4), group(3), group(1)]
    shown = await inbox.page(10, include_hidden=True)
    assert ids(shown) == [group(number) for number in range(6, 0, -1)]
    assert [entry.hidden for entry in shown.conversations] == [True, True, False, False, True, False]
    assert [entry.muted for entry in shown.conversations] == [True, True, False, False, True, False]


async def test_an_entry_that_its_owner_denies_is_noticed_and_left_out(key_file: Path) -> None:
    inbox = Inbox(key_file, small=2, big=1)
    del inbox.owner.known[group(1)], inbox.owner.known[group(3)]
    assert ids(await inbox.page(10)) == [group(2)]
    assert inbox.metrics.group_interval_missing._value.get() == 2

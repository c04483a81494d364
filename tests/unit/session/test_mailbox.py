"""What a mailbox keeps, and what a device is told when it was more."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from tests.support.dispatch import group
from tests.unit.session.people_in_memory import ANA, Owner, People, state

from qim_common.errors import ResyncRequired, TooManyItems
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.commands.mailbox import DAY_MS, Acknowledgement, Mailbox, Outstanding
from qim_session.domain.cursors import Cursor
from qim_session.storage.conversations import DeliveredPage, WireMessage, Withheld

NOW = 100 * DAY_MS
MESSAGE = WireMessage(b"m")


class Room:
    """Ana's mailbox, which keeps 10 entries and 30 days."""

    def __init__(self) -> None:
        self.owner, self.people = Owner(), People()
        self.metrics = SessionMetrics(CollectorRegistry())
        self.mailbox = Mailbox(
            self.people, self.owner, self.metrics, max_entries=10, max_age_days=30, now_ms=lambda: NOW
        )


def page(
    *, waiting: int = 1, first_time_ms: int = NOW, entries: tuple[WireMessage | Withheld, ...] = (MESSAGE,)
) -> DeliveredPage:
    return DeliveredPage(
        entries, 1, more=False, generation=4, waiting=waiting, newest_delivered_seq=77, first_time_ms=first_time_ms
    )


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(page(waiting=10), id="as many as it keeps"),
        pytest.param(page(first_time_ms=NOW - 30 * DAY_MS), id="as old as it keeps"),
        pytest.param(page(first_time_ms=0, entries=(Withheld(1, 9),)), id="only withheld entries, which have no time"),
        pytest.param(page(waiting=11, entries=()), id="a page that ended before the first of them"),
    ],
)
async def test_what_a_mailbox_keeps_is_given(kept: DeliveredPage) -> None:
    room = Room()
    room.owner.pages[group(1)] = kept
    assert await room.mailbox.page(ANA, group(1), after_seq=0, limit=100) is kept


@pytest.mark.parametrize(
    "beyond",
    [
        pytest.param(page(waiting=11), id="more than it keeps"),
        pytest.param(page(first_time_ms=NOW - 30 * DAY_MS - 1), id="older than it keeps"),
        pytest.param(page(waiting=11, first_time_ms=0, entries=(Withheld(1, 9),)), id="more, withheld"),
    ],
)
async def test_what_is_beyond_is_never_left_out_silently(beyond: DeliveredPage) -> None:
    room = Room()
    room.owner.pages[group(1)] = beyond
    with pytest.raises(ResyncRequired) as told:
        await room.mailbox.page(ANA, group(1), after_seq=0, limit=100)
    assert told.value.metadata == {"conversation_id": group(1).hex(), "generation": "4", "newest_seq": "77"}


async def test_only_conversations_with_something_behind_the_cursor_are_outstanding() -> None:
    room = Room()
    for number, newest in ((1, 5), (2, 5), (3, 0)):
        room.owner.known[group(number)] = state(group(number), newest_delivered_seq=newest)
    room.people.cursors = {group(1): Cursor(1, 5), group(2): Cursor(1, 3)}
    assert await room.mailbox.outstanding(ANA, [group(number) for number in (1, 2, 3, 4)]) == [
        Outstanding(group(2), after_seq=3, newest_delivered_seq=5, generation=1)
    ]


async def test_conversations_are_asked_for_500_at_a_time() -> None:
    room = Room()
    await room.mailbox.outstanding(ANA, [group(number) for number in range(1, 1002)])
    assert room.owner.calls == [500, 500, 1]


async def test_the_furthest_of_several_acknowledgements_counts_up_to_what_was_delivered() -> None:
    room = Room()
    room.owner.known[group(1)] = state(group(1), newest_delivered_seq=6)
    acknowledged = [Acknowledgement(group(1), Cursor(1, seq)) for seq in (2, 9, 3)]
    await room.mailbox.acknowledge(ANA, acknowledged)
    assert room.people.cursors == {group(1): Cursor(1, 6)}


async def test_an_acknowledgement_of_another_generation_moves_nothing() -> None:
    room = Room()
    for number in (1, 2):
        room.owner.known[group(number)] = state(group(number), newest_delivered_seq=6)
    acknowledged = [Acknowledgement(group(1), Cursor(1, 5)), Acknowledgement(group(2), Cursor(0, 5))]
    with pytest.raises(ResyncRequired) as told:
        await room.mailbox.acknowledge(ANA, acknowledged)
    assert told.value.metadata["conversation_id"] == group(2).hex()
    assert room.people.cursors == {}


async def test_where_those_of_another_generation_hold_up_no_other_one_all_of_them_are_named() -> None:
    room = Room()
    for number in (1, 2, 3):
        room.owner.known[group(number)] = state(group(number), newest_delivered_seq=6)
    acknowledged = [Acknowledgement(group(number), Cursor(number % 2, 5)) for number in (1, 2, 3)]
    acknowledged.append(Acknowledgement(group(4), Cursor(9, 9)))
    acknowledged[2] = Acknowledgement(group(3), Cursor(2, 1))
    stale = await room.mailbox.acknowledge_current(ANA, acknowledged)
    assert stale == [Acknowledgement(group(number), Cursor(1, 6)) for number in (2, 3)]
    assert (room.people.cursors, room.owner.calls) == ({group(1): Cursor(1, 5)}, [4])


async def test_foreign_acknowledgements_are_ignored_and_counted() -> None:
    room = Room()
    await room.mailbox.acknowledge(ANA, [Acknowledgement(group(9), Cursor(1, 5))])
    assert room.people.cursors == {}
    assert room.metrics.foreign_acknowledgements._value.get() == 1


async def test_more_than_a_thousand_acknowledgements_are_refused() -> None:
    room = Room()
    with pytest.raises(TooManyItems):
        await room.mailbox.acknowledge(ANA, [Acknowledgement(group(1), Cursor(1, 5))] * 1001)
    with pytest.raises(TooManyItems):
        await room.mailbox.acknowledge_current(ANA, [Acknowledgement(group(1), Cursor(1, 5))] * 1001)

"""What waits for one stream: bounded, in order, and always with room for a notice."""

from __future__ import annotations

import asyncio

from qim_session.commands.live.events import WireEvent
from qim_session.commands.live.outbox import Outbox, Queued

SMALL = WireEvent(b"x")


def events(queued: list[Queued]) -> list[bytes]:
    return [item.event for item in queued]


async def test_events_come_out_in_order_and_bounded() -> None:
    outbox = Outbox(events_max=10, bytes_max=10_000)
    for number in range(5):
        assert outbox.put(WireEvent(b"%d" % number), [1])
    assert events(await outbox.take(events_max=2, bytes_max=10_000)) == [b"0", b"1"]
    assert events(await outbox.take(events_max=10, bytes_max=1)) == [b"2"], "one event always fits"
    assert events(await outbox.take(events_max=10, bytes_max=10_000)) == [b"3", b"4"]


async def test_without_room_nothing_is_queued_but_a_notice() -> None:
    outbox = Outbox(events_max=2, bytes_max=10_000)
    assert outbox.put(SMALL, [1])
    assert outbox.put(SMALL, [1])
    assert not outbox.put(SMALL, [1])
    outbox.put_notice(WireEvent(b"the end"), [1])
    assert len(await outbox.take(events_max=10, bytes_max=10_000)) == 3
    assert outbox.put(SMALL, [1]), "there is room again"


async def test_bytes_are_bounded_and_an_event_that_is_too_large_goes_alone() -> None:
    outbox = Outbox(events_max=100, bytes_max=1_000)
    assert outbox.put(WireEvent(b"x" * 5_000), [1])
    assert not outbox.put(SMALL, [1])
    await outbox.take(events_max=10, bytes_max=10_000)
    assert outbox.put(WireEvent(b"x" * 800), [1])
    assert not outbox.put(WireEvent(b"x" * 800), [1])
    assert not outbox.put(SMALL, list(range(100))), "those who get it count too"


async def test_room_is_half_of_what_may_wait() -> None:
    outbox = Outbox(events_max=4, bytes_max=10_000)
    for _ in range(4):
        outbox.put(SMALL, [1])
    assert not outbox.has_room
    waiting = asyncio.ensure_future(outbox.room())
    await outbox.take(events_max=2, bytes_max=10_000)
    await asyncio.sleep(0)
    assert not waiting.done()
    await outbox.take(events_max=1, bytes_max=10_000)
    await asyncio.wait_for(waiting, 5)


async def test_who_makes_notices_waits_while_the_outbox_is_full() -> None:
    outbox = Outbox(events_max=2, bytes_max=10_000)
    await asyncio.wait_for(outbox.not_full(), 5)
    for number in range(3):
        outbox.put_notice(SMALL, [number])
    waiting = asyncio.ensure_future(outbox.not_full())
    await outbox.take(events_max=1, bytes_max=10_000)
    await asyncio.sleep(0)
    assert not waiting.done()
    await outbox.take(events_max=1, bytes_max=10_000)
    await asyncio.wait_for(waiting, 5)


async def test_a_closed_outbox_gives_what_is_left_and_then_nothing() -> None:
    outbox = Outbox(events_max=4, bytes_max=10_000)
    outbox.put(SMALL, [1])
    outbox.close()
    outbox.put_notice(SMALL, [2])
    assert len(await outbox.take(events_max=10, bytes_max=10_000)) == 1
    assert await outbox.take(events_max=10, bytes_max=10_000) == []


async def test_closing_wakes_who_waits() -> None:
    outbox = Outbox(events_max=4, bytes_max=10_000)
    waiting = asyncio.ensure_future(outbox.take(events_max=1, bytes_max=1))
    await asyncio.sleep(0)
    outbox.close()
    assert await asyncio.wait_for(waiting, 5) == []

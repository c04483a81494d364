"""What of an attachment's messages may go out now: each conversation in order, whole, and once."""

from __future__ import annotations

from tests.support.dispatch import group

from qim_session.domain.cursors import Cursor
from qim_session.domain.delivery_order import WAITING_MAX, DeliveryOrder, LiveMessage, Phase

A, B = group(1), group(2)


def message(seq: int, conversation: bytes = A, generation: int = 1) -> LiveMessage:
    return LiveMessage(group(1) if conversation == A else group(2), Cursor(generation, seq), 1_000 + seq, b"")


def read_to(order: DeliveryOrder, conversation: bytes, seq: int) -> list[int]:
    """Read a conversation up to a seq; what waited and is to be sent after it."""
    where = A if conversation == A else B
    order.begin(where)
    order.progress(where, Cursor(1, seq))
    return [waiting.cursor.seq for waiting in order.finish(where, complete=True)]


def live() -> DeliveryOrder:
    order = DeliveryOrder()
    assert order.go_live()
    return order


def test_while_catching_up_a_message_only_marks_its_conversation() -> None:
    order = DeliveryOrder()
    assert not order.offer(message(7))
    assert not order.offer(message(8))
    assert not order.go_live()
    assert order.take_risen() == {A: 1_007}
    assert order.take_risen() == {}


def test_a_conversation_that_was_read_gets_what_follows_at_once_and_no_other_does() -> None:
    order = DeliveryOrder()
    assert read_to(order, A, 5) == []
    assert not order.offer(message(5)), "it was sent"
    assert order.offer(message(6))
    assert not order.offer(message(1, B))


def test_what_comes_while_its_conversation_is_read_waits_for_the_end() -> None:
    order = DeliveryOrder()
    order.begin(A)
    assert not order.offer(message(4))
    assert not order.offer(message(5))
    assert not order.offer(message(6))
    order.progress(A, Cursor(1, 4))
    assert [waiting.cursor.seq for waiting in order.finish(A, complete=True)] == [5, 6]
    assert order.take_risen() == {}


def test_more_than_can_wait_makes_the_conversation_be_read_once_more() -> None:
    order = DeliveryOrder()
    order.begin(A)
    for seq in range(1, WAITING_MAX + 2):
        assert not order.offer(message(seq))
    assert order.finish(A, complete=True) == []
    assert not order.is_caught(A)
    assert list(order.take_risen()) == [A]


def test_a_reading_that_was_interrupted_loses_nothing() -> None:
    order = DeliveryOrder()
    order.begin(A)
    order.progress(A, Cursor(1, 2))
    assert not order.offer(message(3))
    assert order.finish(A, complete=False) == []
    assert order.take_risen() == {A: 1_003}
    assert order.sent_upto(A) == Cursor(1, 2)


def test_reading_a_conversation_settles_that_it_had_risen() -> None:
    order = DeliveryOrder()
    order.offer(message(3))
    read_to(order, A, 3)
    assert order.go_live()


def test_live_a_lagging_log_repeats_nothing_until_it_has_settled() -> None:
    order = DeliveryOrder()
    read_to(order, A, 5)
    assert order.go_live()
    assert not order.offer(message(5))
    assert order.offer(message(6))
    order.settle()
    assert order.sent_upto(A) is None
    assert order.offer(message(7))


def test_a_higher_generation_begins_anew() -> None:
    order = DeliveryOrder()
    read_to(order, A, 5)
    assert order.offer(message(2, generation=2))


def test_settling_waits_for_going_live() -> None:
    order = DeliveryOrder()
    read_to(order, A, 5)
    order.settle()
    assert order.sent_upto(A) == Cursor(1, 5)


def test_who_falls_behind_reads_everything_again_and_goes_live_again() -> None:
    order = live()
    order.fall_behind()
    assert order.phase is Phase.CATCHING
    assert not order.offer(message(9))
    read_to(order, A, 9)
    assert order.go_live()


def test_after_the_end_nothing_is_sent() -> None:
    order = live()
    order.end()
    assert not order.offer(message(1))
    assert not order.go_live()
    order.fall_behind()
    assert order.phase is Phase.ENDED


def test_a_conversation_is_whole_when_it_was_read_to_its_end() -> None:
    order = DeliveryOrder()
    order.begin(A)
    order.progress(A, Cursor(1, 3))
    order.finish(A, complete=False)
    assert not order.is_whole(A)
    read_to(order, A, 5)
    assert (order.is_whole(A), order.is_whole(B)) == (True, False)
    order.take_risen()
    assert order.go_live()
    assert order.is_whole(B)
    order.fall_behind()
    assert not order.is_whole(A)

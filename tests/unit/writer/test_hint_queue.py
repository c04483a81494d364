"""What waits for the low-latency lane: merged, bounded, and dropped rather than waited for."""

from __future__ import annotations

from tests.unit.writer.people import ANA, BEN, GROUP, TENANT, user

from qim_common.ids import ConversationId, UserId
from qim_writer.domain.hints import HintQueue, HintRun


def sent(version: int, time_ms: int, conversation: ConversationId = GROUP) -> HintRun:
    return HintRun(TENANT, conversation, version, time_ms, broadcast=True)


def change(version: int, *people: UserId, time_ms: int = 5, broadcast: bool = False) -> HintRun:
    return HintRun(TENANT, GROUP, version, time_ms, broadcast=broadcast, concerned=people)


def conversation(number: int) -> ConversationId:
    return ConversationId(b"\2" + number.to_bytes(15, "big"))


def test_sends_of_one_version_become_one_run_with_the_newest_time() -> None:
    queue = HintQueue()
    for version, time_ms in ((1, 10), (1, 11), (2, 12), (1, 13), (2, 14)):
        queue.sent(TENANT, GROUP, version, time_ms)
    queue.sent(TENANT, conversation(9), 1, 12)
    assert len(queue) == 3
    assert queue.take(250) == [sent(1, 13), sent(2, 14), sent(1, 12, conversation(9))]
    assert (len(queue), queue.take(250)) == (0, [])


def test_a_change_keeps_its_own_time_beside_the_sends_of_its_version() -> None:
    """Somebody who was removed must not get the time of what came afterwards."""
    queue = HintQueue()
    removal = change(2, BEN, broadcast=True)
    queue.changed(removal)
    queue.sent(TENANT, GROUP, 2, 99)
    assert queue.take(250) == [removal, sent(2, 99)]


def test_what_is_taken_waits_no_longer_and_changes_go_first() -> None:
    queue = HintQueue()
    for number in range(5):
        queue.sent(TENANT, conversation(number), 1, number)
    queue.changed(change(2, ANA))
    queue.changed(change(3, BEN))
    assert [run.version for run in queue.take(1)] == [2]
    assert [(run.version, run.time_ms) for run in queue.take(3)] == [(3, 5), (1, 0), (1, 1)]
    queue.sent(TENANT, conversation(0), 1, 7)
    assert [run.time_ms for run in queue.take(250)] == [2, 3, 4, 7]


def test_more_runs_than_the_bound_are_dropped_and_those_that_wait_go_on_to_be_merged() -> None:
    queue = HintQueue(runs=3)
    queue.changed(change(2, ANA))
    for number in range(4):
        queue.sent(TENANT, conversation(number), 1, 10)
    queue.changed(change(3, ANA))
    queue.sent(TENANT, conversation(1), 1, 20)
    assert (len(queue), queue.dropped) == (3, 3)
    assert [run.time_ms for run in queue.take(250)] == [5, 10, 20]
    queue.sent(TENANT, conversation(3), 1, 30)
    assert (len(queue), queue.dropped) == (1, 3), "there is room again"


def test_the_people_of_changes_are_bounded_too() -> None:
    queue = HintQueue(people=1_500)
    many = tuple(user(number) for number in range(1, 1_001))
    queue.changed(change(2, *many))
    queue.changed(change(3, *many))
    queue.changed(change(4, *many[:500]))
    queue.changed(change(5, ANA))
    assert ([run.version for run in queue.take(1)], queue.dropped) == ([2], 2)
    queue.changed(change(6, *many))
    assert ([run.version for run in queue.take(9)], queue.dropped) == ([4, 6], 2)


def test_what_is_cleared_counts_as_dropped_and_makes_room() -> None:
    queue = HintQueue(runs=2, people=2)
    queue.sent(TENANT, GROUP, 1, 1)
    queue.changed(change(2, ANA, BEN))
    queue.clear()
    assert (len(queue), queue.dropped, queue.take(9)) == (0, 2, [])
    queue.changed(change(3, ANA, BEN))
    assert [run.version for run in queue.take(9)] == [3]

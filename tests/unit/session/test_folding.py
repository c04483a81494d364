"""What a stretch of the dispatch log means for conversation lists."""

from __future__ import annotations

import struct

import pytest
from tests.support.dispatch import control, group, messages, ordinary, state, user

from qim_common.ids import MembershipOp
from qim_common.positions import Position
from qim_common.records import Audience, RecordType, StateChange
from qim_session.domain.folding import DispatchEntry, Step, fold
from qim_session.domain.membership import MembershipChange

ANA, BEN, CARA = user(1), user(2), user(3)


def entry(ms: int, *blocks: bytes) -> DispatchEntry:
    return DispatchEntry(Position(ms, 0), b"".join(blocks))


def steps(*entries: DispatchEntry) -> tuple[Step, ...]:
    (run,) = fold(entries)
    return run.steps


def test_ordinary_messages_of_one_version_become_one_step_with_the_newest_time() -> None:
    found = steps(
        entry(10, messages(group(1), 1, 1, [ordinary(ANA), ordinary(BEN)])),
        entry(20, messages(group(1), 1, 3, [ordinary(ANA)])),
    )
    assert found == (Step(version=1, time_ms=20, seq=3, broadcast=True),)


def test_conversations_are_kept_apart_and_in_order_of_appearance() -> None:
    blocks = (messages(group(2), 1, 1, [ordinary(ANA)]), messages(group(1), 4, 9, [ordinary(ANA)]))
    runs = fold([entry(10, *blocks)])
    assert [run.conversation for run in runs] == [group(2), group(1)]


def test_a_membership_event_parts_the_messages_around_it() -> None:
    found = steps(
        entry(10, messages(group(1), 1, 1, [ordinary(ANA)])),
        entry(11, messages(group(1), 2, 2, [control(MembershipOp.JOIN, [CARA])])),
        entry(12, messages(group(1), 2, 3, [ordinary(CARA)])),
    )
    change = MembershipChange(version=2, seq=2, op=MembershipOp.JOIN, people=(CARA,))
    assert found == (
        Step(version=1, time_ms=10, seq=1, broadcast=True),
        Step(version=2, time_ms=11, seq=2, broadcast=True, change=change),
        Step(version=2, time_ms=12, seq=3, broadcast=True),
    )


def test_a_concerned_event_reaches_only_the_people_in_it() -> None:
    (step,) = steps(entry(10, messages(group(1), 5, 7, [control(MembershipOp.LEAVE, [BEN], Audience.CONCERNED)])))
    assert not step.broadcast
    assert step.change is not None
    assert step.change.people == (BEN,)


def test_a_message_too_large_for_the_log_is_like_any_other() -> None:
    large = (Audience.BROADCAST, RecordType.ORDINARY)
    (step,) = steps(entry(10, messages(group(1), 2, 1, [ordinary(ANA), large, ordinary(ANA)])))
    assert (step.seq, step.opaque) == (3, False)


def test_an_event_too_large_for_the_log_stays_a_step_of_its_own() -> None:
    large = (Audience.BROADCAST, RecordType.CONTROL)
    found = steps(entry(10, messages(group(1), 2, 1, [ordinary(ANA), large, ordinary(ANA)])))
    assert [(step.seq, step.opaque) for step in found] == [(1, False), (2, True), (3, False)]


def test_a_creation_reaches_the_first_members() -> None:
    assert steps(entry(10, state(group(1), StateChange.CREATED))) == (Step(1, 10, seq=0, broadcast=True),)


@pytest.mark.parametrize("change", [change for change in StateChange if change is not StateChange.CREATED])
def test_other_state_entries_move_nothing(change: StateChange) -> None:
    assert fold([entry(10, state(group(1), change, version=3))]) == []


def test_an_entry_that_is_cut_short_is_refused() -> None:
    whole = messages(group(1), 1, 1, [ordinary(ANA)])
    with pytest.raises(struct.error):
        fold([entry(10, whole[:40])])


def test_a_control_body_that_names_fewer_people_than_it_says_is_refused() -> None:
    audience, tail = control(MembershipOp.JOIN, [ANA, BEN])
    with pytest.raises(ValueError, match="of 2 people"):
        fold([entry(10, messages(group(1), 2, 1, [(audience, tail[:-16])]))])

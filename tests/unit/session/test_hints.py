"""What the low-latency lane brings: what waits, what stands for what, and what a call may not hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.dispatch import TENANT, group, user

from qim.session.v1 import session_pb2
from qim_common.errors import InvalidArgument, TooManyItems
from qim_session.commands.project import RUNS_MAX
from qim_session.domain.hints import Hint, HintQueue
from qim_session.handlers.project import hints_of

MESSAGE = Hint(TENANT, group(1), version=3, time_ms=10, broadcast=True)
JOIN = replace(MESSAGE, time_ms=5, concerned=(user(9),))


@pytest.mark.parametrize(
    ("hint", "all_members", "anyone"),
    [
        (MESSAGE, True, True),
        (replace(MESSAGE, broadcast=False), False, False),
        (replace(JOIN, broadcast=False), False, True),
        (replace(MESSAGE, big=True), False, False),
        (replace(JOIN, big=True), False, True),
        (replace(JOIN, big=True, became_big=True, broadcast=False), True, True),
    ],
)
def test_whom_a_hint_reaches(hint: Hint, all_members: bool, anyone: bool) -> None:
    assert (hint.reaches_all, hint.reaches_anyone) == (all_members, anyone)


def test_the_newest_message_of_a_version_stands_for_those_before_it() -> None:
    queue = HintQueue(most=1)
    assert all(queue.put(replace(MESSAGE, time_ms=time_ms)) for time_ms in (10, 30, 20))
    assert queue.take(10) == [[replace(MESSAGE, time_ms=30)]]
    assert len(queue) == 0


def test_an_event_keeps_its_own_time_for_the_people_in_it() -> None:
    queue = HintQueue(most=10)
    for hint in (JOIN, MESSAGE, replace(MESSAGE, time_ms=12)):
        queue.put(hint)
    assert queue.take(10) == [[JOIN, replace(MESSAGE, time_ms=12)]]


def test_what_does_not_fit_is_refused_until_something_is_taken() -> None:
    queue = HintQueue(most=2)
    assert [queue.put(replace(MESSAGE, conversation=group(number))) for number in (1, 2, 3)] == [True, True, False]
    assert len(queue.take(1)) == 1
    assert queue.put(replace(MESSAGE, conversation=group(3)))


def test_the_versions_of_one_conversation_are_taken_together() -> None:
    queue = HintQueue(most=10)
    for conversation, version in ((1, 3), (2, 1), (1, 4)):
        queue.put(replace(MESSAGE, conversation=group(conversation), version=version))
    assert [[hint.version for hint in row] for row in queue.take(10)] == [[3, 4], [1]]


def run(**changes: object) -> session_pb2.ProjectRequest.Run:
    """A run that is all right but for the changes."""
    fields: dict[str, object] = {
        "tenant_id": TENANT,
        "conversation_id": group(1),
        "membership_version": 3,
        "time_ms": 10,
        "broadcast": True,
    }
    return session_pb2.ProjectRequest.Run(**(fields | changes))  # type: ignore[arg-type]


def test_a_run_becomes_a_hint() -> None:
    request = session_pb2.ProjectRequest(runs=[run(concerned_user_ids=[user(9)], big=True, became_big=True)])
    assert hints_of(request) == [replace(MESSAGE, concerned=(user(9),), big=True, became_big=True)]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tenant_id": 0}, "tenant_id"),
        ({"conversation_id": b"short"}, "conversation_id"),
        ({"conversation_id": bytes(16)}, "conversation_id"),
        ({"concerned_user_ids": [b"x" * 15]}, "concerned_user_ids[0]"),
    ],
)
def test_a_malformed_run_is_refused_naming_the_field(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        hints_of(session_pb2.ProjectRequest(runs=[run(), run(**changes)]))
    assert [violation.field for violation in refused.value.violations] == [f"runs[1].{field}"]


def test_more_runs_than_a_call_may_carry_are_refused() -> None:
    with pytest.raises(TooManyItems):
        hints_of(session_pb2.ProjectRequest(runs=[run()] * (RUNS_MAX + 1)))

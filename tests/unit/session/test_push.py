"""Who is told of a message, as a decision, and what a webhook is sent."""

from __future__ import annotations

import json

import pytest
from tests.support.dispatch import TENANT, group, user
from tests.support.webhook_receiver import verifies

from qim_session.backends.webhook import retry_after
from qim_session.backends.webhook_wire import encode, sign
from qim_session.commands.push.gathering import candidates
from qim_session.domain.cursors import Cursor
from qim_session.domain.flags import Flags
from qim_session.domain.push import (
    Candidate,
    Notification,
    PushedMessage,
    PushMarks,
    Standing,
    Verdict,
    decide,
    told_count,
)

ANA, BEN, CARA = user(1), user(2), user(3)
NO_MARKS = PushMarks()
NOON = 1_700_000_000


def message(seq: int, sender: int = 1, generation: int = 1) -> PushedMessage:
    return PushedMessage(generation, seq, 1000 + seq, user(sender), "text", 5)


@pytest.mark.parametrize(
    ("marks", "standing", "expected"),
    [
        pytest.param(NO_MARKS, None, Verdict.PUSH, id="nothing is set, nobody asked"),
        pytest.param(NO_MARKS, Standing(True, 1, 1), Verdict.PUSH, id="unread"),
        pytest.param(PushMarks(flags=Flags(muted=True)), Standing(True, 1, 1), Verdict.MUTED, id="muted"),
        pytest.param(PushMarks(read=Cursor(1, 9)), Standing(True, 1, 1), Verdict.PUSH, id="read up to the one before"),
        pytest.param(PushMarks(read=Cursor(1, 10)), None, Verdict.READ, id="read up to it"),
        pytest.param(PushMarks(read=Cursor(1, 12)), None, Verdict.READ, id="read beyond it"),
        pytest.param(PushMarks(read=Cursor(0, 12)), None, Verdict.PUSH, id="read what was lost since"),
        pytest.param(PushMarks(read=Cursor(2, 3)), None, Verdict.READ, id="it is what was lost since"),
        pytest.param(PushMarks(flags=Flags(True, False, 1, 9)), None, Verdict.PUSH, id="hidden before it"),
        pytest.param(PushMarks(flags=Flags(True, False, 1, 10)), None, Verdict.HIDDEN_SINCE, id="hidden after it"),
        pytest.param(PushMarks(flags=Flags(False, False, 1, 10)), None, Verdict.PUSH, id="no longer hidden"),
        pytest.param(NO_MARKS, Standing(False, 0, 1), Verdict.GONE, id="left since"),
        pytest.param(NO_MARKS, Standing(True, 0, 1), Verdict.NOT_VISIBLE, id="nothing is unread any more"),
        pytest.param(NO_MARKS, Standing(True, 2, 10), Verdict.PUSH, id="the first that is left"),
        pytest.param(NO_MARKS, Standing(True, 2, 11), Verdict.NOT_VISIBLE, id="cleared, and more came since"),
    ],
)
def test_who_is_told(marks: PushMarks, standing: Standing | None, expected: Verdict) -> None:
    assert decide(message(10), marks, standing) is expected


@pytest.mark.parametrize(
    ("count", "standing", "told"),
    [
        pytest.param(3, None, 3, id="nobody asked"),
        pytest.param(3, Standing(True, 5, 1), 3, id="older ones are unread too"),
        pytest.param(3, Standing(True, 2, 1), 2, id="the first was read meanwhile"),
        pytest.param(3, Standing(True, 0, 1), 1, id="a rule of one's own tells of what is read"),
    ],
)
def test_nobody_is_told_of_more_messages_than_are_unread(count: int, standing: Standing | None, told: int) -> None:
    assert told_count(Candidate(message(10), b"", count), standing) == told


def test_each_member_is_told_of_the_newest_message_of_others() -> None:
    messages = [Candidate(message(seq, sender), b"%d" % seq) for seq, sender in ((1, 1), (2, 2), (3, 1))]
    assert candidates(messages, {ANA, BEN, CARA}) == {
        ANA: Candidate(message(2, 2), b"2", 1),
        BEN: Candidate(message(3, 1), b"3", 2),
        CARA: Candidate(message(3, 1), b"3", 3),
    }


def test_who_sent_everything_or_is_alone_is_told_of_nothing() -> None:
    assert candidates([Candidate(message(1, 1), b""), Candidate(message(2, 1), b"")], {ANA}) == {}
    assert candidates([Candidate(message(1, 2), b"")], set()) == {}
    assert candidates([], {ANA}) == {}


def test_a_repeat_has_the_same_id_and_another_message_or_person_has_not() -> None:
    one = Notification(TENANT, BEN, group(1), message(1), 1, unread=1)
    assert one.id == Notification(TENANT, BEN, group(1), message(1), 2, unread=3, hidden=True).id
    others = [
        Notification(TENANT, CARA, group(1), message(1), 1),
        Notification(TENANT, BEN, group(2), message(1), 1),
        Notification(TENANT, BEN, group(1), message(2), 1),
        Notification(TENANT, BEN, group(1), message(1, generation=2), 1),
        Notification(TENANT, None, group(1), message(1), 1),
    ]
    assert len({one.id, *(other.id for other in others)}) == 6


def test_a_request_holds_no_body_that_the_notification_has_not() -> None:
    (one,) = json.loads(encode([Notification(TENANT, BEN, group(1), message(1), 1)]))["notifications"]
    assert "body" not in one
    assert one["tenant"] == str(TENANT)
    (one,) = json.loads(encode([Notification(TENANT, BEN, group(1), message(1), 1, body=b"hel")]))["notifications"]
    assert (one["body"], one["body_truncated"]) == ("aGVs", True)


def test_a_signature_verifies_under_either_secret_and_for_this_body_only() -> None:
    new, old = b"n" * 32, b"o" * 32
    header = sign([new, old], NOON, b"body")
    assert header.startswith(f"t={NOON},v1=")
    assert verifies(header, b"body", new)
    assert verifies(header, b"body", old)
    assert not verifies(header, b"body", b"x" * 32)
    assert not verifies(header, b"another", new)
    assert not verifies(header.replace(str(NOON), str(NOON + 1)), b"body", new)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("9" * 400, 300.0),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10.0),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 300.0),
        ("Tue, 99 Nov 2023 22:13:30 GMT", 0.0),
    ],
)
def test_a_pause_that_is_asked_for_is_bounded(value: str, seconds: float) -> None:
    assert retry_after(value, NOON) == seconds

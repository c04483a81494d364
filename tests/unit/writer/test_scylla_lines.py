"""The comparison backend's decisions: what became of a conditional write, and what becomes of each send of a run."""

from __future__ import annotations

import pytest
from tests.support.chat import ANA, BEN, Outcomes, acting

from qim_common.ids import UserId, group_conversation_id, uuid7
from qim_common.records import Audience, RecordType, pack_tail, unpack_record
from qim_writer.backends.scylla.commit_log import record_of
from qim_writer.backends.scylla.judging import judge
from qim_writer.backends.scylla.lines import RUNS_KEPT, Fate, Line, fate
from qim_writer.backends.scylla.requests import MS_PER_DAY, SKEW_MS, Answer, kept_since_ms, too_old
from qim_writer.commands.send import prepare_send
from qim_writer.storage import Send

RUNS = tuple(bytes([number]) * 8 for number in range(1, 40))
OURS = b"our run."
GROUP = group_conversation_id(bytes(range(16)))
NOW_MS = 20_000 * MS_PER_DAY + 12_345


@pytest.mark.parametrize(
    ("base", "now", "expected"),
    [
        (Line(5, 1, RUNS[:1]), Line(7, 2, (OURS, *RUNS[:1])), Fate.APPLIED),
        (Line(5, 1, RUNS[:1]), Line(9, 2, (RUNS[1], OURS, *RUNS[:1])), Fate.APPLIED),
        (Line(5, 1, RUNS[:1]), Line(5, 1, RUNS[:1]), Fate.NOT_APPLIED),
        (Line(5, 1, RUNS[:1]), Line(6, 2, (RUNS[1], RUNS[0])), Fate.NOT_APPLIED),
        (Line(5, 1, RUNS[:1]), Line(50, 2, RUNS[1 : 1 + RUNS_KEPT]), Fate.UNKNOWN),
        (Line(0, 1), Line(1, 2, RUNS[:1]), Fate.NOT_APPLIED),
        (Line(0, 1), Line(0, 1), Fate.NOT_APPLIED),
        (Line(0, 1), Line(RUNS_KEPT, 2, RUNS[:RUNS_KEPT]), Fate.UNKNOWN),
    ],
)
def test_a_lost_answer_is_decided_by_the_runs_that_the_row_remembers(base: Line, now: Line, expected: Fate) -> None:
    assert fate(OURS, base, now) is expected


def test_a_line_moves_by_the_run_and_its_time_never_falls() -> None:
    line = Line.read(7, 1000, b"".join(RUNS[:RUNS_KEPT]))
    moved = line.after(OURS, 3, now_ms=400)
    assert (moved.head, moved.time_ms, len(moved.runs)) == (10, 1000, RUNS_KEPT)
    assert moved.runs[:2] == (OURS, RUNS[0])
    assert Line.read(10, 1000, moved.packed_runs) == moved
    assert line.after(OURS, 1, now_ms=2000).time_ms == 2000
    assert Line.read(0, 5, None) == Line(0, 5)


@pytest.mark.parametrize(
    ("id_ms", "expected"),
    [
        (0, False),
        (NOW_MS, False),
        (kept_since_ms(NOW_MS), False),
        (kept_since_ms(NOW_MS) - SKEW_MS, False),
        (kept_since_ms(NOW_MS) - SKEW_MS - 1, True),
        (1, True),
    ],
)
def test_an_id_from_before_the_two_days_that_are_read_is_too_old(id_ms: int, *, expected: bool) -> None:
    assert too_old(id_ms, NOW_MS) is expected


def send_of(body: bytes = b"hello", message_id: bytes = b"", sender: UserId = ANA) -> Send:
    return prepare_send(
        acting(sender),
        conversation_id=GROUP,
        peer=b"",
        message_id=message_id or b"\x40" + uuid7()[1:],
        custom_type="",
        record_type=0,
        body=body,
        expected_version=99,
        max_bytes=100,
        sink=Outcomes(1),
        index=0,
    )


def test_each_send_of_a_run_is_judged_in_its_order() -> None:
    known, other, new, outsider = send_of(), send_of(), send_of(), send_of(sender=BEN)
    same, changed = send_of(message_id=known.tail[33:49]), send_of(b"else", message_id=known.tail[33:49])
    twin, reused = send_of(message_id=new.tail[33:49]), send_of(b"else", message_id=new.tail[33:49])
    answer = Answer(known.key.digest, 4, 1000)

    found = judge([same, changed, new, outsider, twin, reused, other], {known.key.field: answer}, {ANA}, NOW_MS)

    assert found.repeated == [(same, answer)]
    assert found.accepted == [new, other]
    assert found.twins == {0: [twin]}
    assert [(send, error.reason) for send, error in found.refused] == [
        (changed, "IDEMPOTENCY_KEY_REUSED"),
        (outsider, "PERMISSION_DENIED"),
        (reused, "IDEMPOTENCY_KEY_REUSED"),
    ]


def test_a_known_id_has_its_answer_also_for_somebody_who_is_no_member_and_an_old_one_is_refused() -> None:
    known, old = send_of(), send_of(message_id=(1000).to_bytes(6, "big") + b"\x70\0\x80" + bytes(7))
    found = judge([known, old], {known.key.field: Answer(known.key.digest, 1, 1)}, set(), NOW_MS)
    assert [send for send, _ in found.repeated] == [known]
    assert [(send, error.reason) for send, error in found.refused] == [(old, "REQUEST_TOO_OLD")]


@pytest.mark.parametrize("seq", [1, 2, 2**32, 2**40 + 5])
def test_a_record_is_read_as_any_other(seq: int) -> None:
    tail = pack_tail(RecordType.ORDINARY, ANA, ANA, bytes(range(16)), b"text", b"body")
    record = unpack_record(seq, record_of(seq, 2**40 + 7, tail))
    assert (record.seq, record.prev, record.time_ms) == (seq, seq - 1, 2**40 + 7)
    assert (record.audience, record.membership_version, record.generation) == (Audience.BROADCAST, 1, 0)
    assert (record.tail.body, record.tail.sender) == (b"body", ANA)

"""Where a consumer may start in a dispatch log: the start-up table of storage.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qim_common.positions import LOG_START, Position
from qim_session.domain.position import Checkpoint, Continue, Gap, LogBounds, Refuse, decide_start

THIS, OTHER = "a" * 32, "b" * 32


def log(first: int | None, last: int, *, trimmed: bool) -> LogBounds:
    return LogBounds(None if first is None else Position(first, 0), Position(last, 0), trimmed, THIS)


def at(ms: int, log_id: str = THIS) -> Checkpoint:
    return Checkpoint(Position(ms, 0), log_id)


JUST_BELOW_5 = Position(4, 2**64 - 1)
EMPTY = LogBounds(None, LOG_START, trimmed=False, log_id=THIS)


@pytest.mark.parametrize(
    ("checkpoint", "bounds", "expected"),
    [
        pytest.param(None, EMPTY, Continue(LOG_START), id="a new installation begins at the start"),
        pytest.param(None, log(1, 9, trimmed=False), Continue(LOG_START), id="a whole log is read from its start"),
        pytest.param(at(3), log(1, 9, trimmed=False), Continue(Position(3, 0)), id="within the log it goes on"),
        pytest.param(at(9), log(1, 9, trimmed=False), Continue(Position(9, 0)), id="at the end it goes on"),
        pytest.param(at(5), log(5, 9, trimmed=True), Continue(Position(5, 0)), id="the oldest entry is consumed"),
        pytest.param(at(9), log(None, 9, trimmed=True), Continue(Position(9, 0)), id="all was consumed and trimmed"),
        pytest.param(
            None, log(5, 9, trimmed=True), Gap(JUST_BELOW_5, LOG_START), id="missing, and the log was trimmed"
        ),
        pytest.param(at(3), log(5, 9, trimmed=True), Gap(JUST_BELOW_5, Position(3, 0)), id="below the low watermark"),
        pytest.param(
            at(3), log(None, 9, trimmed=True), Gap(Position(9, 0), Position(3, 0)), id="everything left was trimmed"
        ),
    ],
)
def test_a_consumer_continues_or_notices_a_gap(
    checkpoint: Checkpoint | None, bounds: LogBounds, expected: Continue | Gap
) -> None:
    assert decide_start(checkpoint, bounds) == expected


@pytest.mark.parametrize(
    ("checkpoint", "bounds", "words"),
    [
        pytest.param(at(10), log(1, 9, trimmed=False), "beyond the log's newest entry 9-0", id="beyond the log"),
        pytest.param(at(1), EMPTY, "beyond", id="the log is gone"),
        pytest.param(at(3, OTHER), log(1, 9, trimmed=False), OTHER, id="another log"),
    ],
)
def test_a_consumer_refuses_a_checkpoint_that_is_not_of_this_log(
    checkpoint: Checkpoint, bounds: LogBounds, words: str
) -> None:
    decision = decide_start(checkpoint, bounds)
    assert isinstance(decision, Refuse)
    assert words in decision.why


@pytest.mark.parametrize(
    ("checkpoint", "bounds", "expected"),
    [
        pytest.param(at(7, OTHER), EMPTY, Gap(LOG_START, Position(7, 0)), id="nothing was dispatched again"),
        pytest.param(at(7, OTHER), log(5, 9, trimmed=True), Gap(JUST_BELOW_5, Position(7, 0)), id="from the oldest on"),
        pytest.param(
            at(7, OTHER), log(5, 6, trimmed=False), Gap(JUST_BELOW_5, Position(7, 0)), id="although it was further"
        ),
    ],
)
def test_a_checkpoint_of_a_log_that_a_recovery_replaced_is_a_gap(
    checkpoint: Checkpoint, bounds: LogBounds, expected: Gap
) -> None:
    assert decide_start(checkpoint, replace(bounds, replaces=("c" * 32, OTHER))) == expected


def test_a_checkpoint_of_neither_log_is_refused_after_a_recovery_too() -> None:
    assert isinstance(decide_start(at(7, OTHER), replace(EMPTY, replaces=("c" * 32,))), Refuse)


def test_a_log_is_delivered_up_to_what_the_archive_holds() -> None:
    assert log(1, 9, trimmed=False).delivered == Position(9, 0)
    assert replace(log(1, 9, trimmed=False), open_end=Position(4, 0)).delivered == Position(4, 0)


def test_a_checkpoint_survives_its_stored_form() -> None:
    checkpoint = Checkpoint(Position(1_700_000_000_000, 12), THIS)
    assert Checkpoint.parse(checkpoint.encode()) == checkpoint


@pytest.mark.parametrize("stored", [b"", b"12-3", b"12-3@", b"12@log", b"x-y@log", b"\xff-1@log"])
def test_a_stored_checkpoint_that_cannot_be_read_is_refused(stored: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the int and codec errors are its subclasses
        Checkpoint.parse(stored)

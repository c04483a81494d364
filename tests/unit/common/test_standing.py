"""What lasts is said once, again after a while, and once more when it ends."""

from __future__ import annotations

import logging

import pytest

from qim_common.telemetry.standing import Standing

LOG = logging.getLogger("tests.standing")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def standing(clock: Clock, caplog: pytest.LogCaptureFixture) -> Standing:
    caplog.set_level(logging.DEBUG)
    return Standing(LOG, "it answers again", again_seconds=60, clock=clock)


def test_a_state_is_said_when_it_begins_and_when_it_ends(standing: Standing, caplog: pytest.LogCaptureFixture) -> None:
    for error in ("refused", "timed out", "refused"):
        standing.holds("Redis a", error)
    standing.over("Redis a")
    standing.over("Redis a")
    assert caplog.messages == ["Redis a: refused", "Redis a: it answers again"]


def test_one_that_lasts_is_said_again_after_a_while(
    standing: Standing, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for clock.now in (0.0, 59.0, 60.0, 61.0, 120.0):
        standing.holds("Redis a", f"at {clock.now:.0f}")
    assert caplog.messages == ["Redis a: at 0", "Redis a: at 60", "Redis a: at 120"]


def test_states_of_different_things_are_said_apart(standing: Standing, caplog: pytest.LogCaptureFixture) -> None:
    standing.holds("Redis a", "down")
    standing.holds("Redis b", "down")
    standing.only({"Redis b"})
    standing.holds("Redis b", "down")
    standing.holds("Redis a", "down")
    assert caplog.messages == ["Redis a: down", "Redis b: down", "Redis a: it answers again", "Redis a: down"]


def test_other_words_are_another_state_where_they_count(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    standing = Standing(LOG, "it answers again", by_words=True, clock=clock)
    for words in ("refused", "refused", "timed out"):
        standing.holds("Redis a", words)
    assert caplog.messages == ["Redis a: refused", "Redis a: timed out"]


def test_an_end_without_a_beginning_is_not_said(standing: Standing, caplog: pytest.LogCaptureFixture) -> None:
    standing.over("Redis a")
    standing.only(())
    assert caplog.messages == []

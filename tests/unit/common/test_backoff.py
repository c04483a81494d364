"""Pauses that grow with failures in a row."""

from __future__ import annotations

import pytest

from qim_common.backoff import Backoff


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [
        (Backoff(), [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]),
        (Backoff.quick(), [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]),
    ],
)
def test_each_pause_is_twice_the_last_up_to_the_longest(backoff: Backoff, pauses: list[float]) -> None:
    assert [backoff.fail() for _ in pauses] == pauses


def test_a_success_begins_anew() -> None:
    backoff = Backoff()
    for _ in range(3):
        backoff.extend(10.0)
    assert (backoff.failures, backoff.until) == (3, 10.4)
    backoff.reset()
    assert (backoff.failures, backoff.until, backoff.fail()) == (0, 0.0, 0.1)


def test_no_number_of_failures_is_too_large() -> None:
    assert Backoff(failures=10_000_000).fail() == 5.0


async def test_it_sleeps_for_the_pause() -> None:
    backoff = Backoff(first=0.0)
    await backoff.sleep()
    assert backoff.failures == 1

"""Entries of the membership log, how long a replica holds what it holds, and how far it is behind."""

from __future__ import annotations

import struct

import pytest
from prometheus_client import CollectorRegistry
from tests.support.dispatch import TENANT, group, user

from qim_common.positions import Position
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.commands.lag import Lag
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.leases import Tenure, renewed
from qim_session.domain.memlog import joined

HEAD = struct.pack(">Q16sH", TENANT, group(1), 2)


def test_a_membership_log_entry_names_everybody_who_came() -> None:
    found = joined(HEAD + user(1) + user(2), 30)
    assert found == [ProjectionEntry(TENANT, user(number), group(1), 30) for number in (1, 2)]


@pytest.mark.parametrize("data", [b"", HEAD[:-1], HEAD, HEAD + user(1), HEAD + user(1) + user(2) + b"x"])
def test_a_membership_log_entry_of_another_length_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="membership log entry"):
        joined(data, 30)


@pytest.mark.parametrize(("now", "held"), [(100.0, {1, 2}), (105.9, {1, 2}), (106.0, set()), (500.0, set())])
def test_what_is_held_ends_with_the_lease(now: float, held: set[int]) -> None:
    assert renewed(frozenset({1, 2}), sent_at=100.0).at(now) == held


def test_nothing_is_held_before_the_first_heartbeat() -> None:
    assert Tenure().at(0.0) == frozenset()


@pytest.mark.parametrize(
    ("position", "after"),
    [(Position(5, 0), Position(5, 1)), (Position(5, 2**64 - 1), Position(6, 0)), (Position(0, 0), Position(0, 1))],
)
def test_the_position_behind_another(position: Position, after: Position) -> None:
    assert position.after() == after
    assert after.before() == position


def test_the_lag_grows_while_nothing_can_be_read() -> None:
    metrics = SessionMetrics(CollectorRegistry())
    lag = Lag(metrics, instance=1)
    shown = metrics.dispatch_lag.labels("1")._value
    lag.grow(now=50.0)
    assert shown.get() == 0
    lag.measure(2_500, now=100.0)
    assert shown.get() == 2.5
    lag.grow(now=110.0)
    assert shown.get() == 12.5
    lag.measure(-40, now=111.0)
    assert shown.get() == 0

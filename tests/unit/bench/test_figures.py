"""What the benchmarks make of their measurements."""

from __future__ import annotations

import pytest
from bench.commit import carries
from bench.figures import Latency, histogram_quantile, latency_of, per_message
from bench.plan import Stage
from bench.processes import shares, since
from bench.rig import Measured


def test_percentiles_are_values_that_were_measured() -> None:
    seconds = [number / 1000 for number in range(1000, 0, -1)]
    assert latency_of(seconds) == Latency(p50=500.0, p99=990.0, p999=999.0, max=1000.0)


def test_one_latency_is_every_percentile() -> None:
    assert latency_of([0.004]) == Latency(4.0, 4.0, 4.0, 4.0)


def test_percentiles_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        latency_of([])


def test_cpu_per_message_is_in_microseconds() -> None:
    assert per_message({"writer": 0.5, "redis": 0.25}, 10_000) == {"writer": 50.0, "redis": 25.0}


@pytest.mark.parametrize(("share", "bound"), [(0.1, 1.0), (0.5, 2.0), (0.99, float("inf"))])
def test_a_quantile_is_the_bound_of_its_bucket(share: float, bound: float) -> None:
    assert histogram_quantile({1.0: 10.0, 2.0: 50.0, float("inf"): 100.0}, share) == bound


def test_an_empty_histogram_has_no_quantile() -> None:
    assert histogram_quantile({1.0: 0.0, float("inf"): 0.0}, 0.5) == 0.0


def test_a_histogram_is_taken_between_two_readings_and_shown_as_shares() -> None:
    before = {1.0: 5.0, 4.0: 5.0, float("inf"): 5.0}
    after = {1.0: 6.0, 4.0: 8.0, float("inf"): 9.0}
    assert shares(since(before, after)) == {"1": 0.25, "2-4": 0.5, "over 4": 0.25}


def _measured(*, achieved: float, p99: float | None, errors: dict[str, int]) -> Measured:
    return Measured(
        stage=Stage("open", 1.0, rate=1000.0),
        offered=1000.0,
        achieved=achieved,
        sent=1000,
        committed=1000,
        errors=errors,
        latency=None if p99 is None else Latency(1.0, p99, p99, p99),
        cpu_us={},
        cores=1.0,
        late=0.0,
        batches={},
        calls_per_second=1.0,
        commit_buckets={},
    )


@pytest.mark.parametrize(
    ("achieved", "p99", "errors", "carried"),
    [
        (970.0, 100.0, {}, True),
        (969.0, 10.0, {}, False),
        (1000.0, 100.1, {}, False),
        (1000.0, 10.0, {"OVERLOADED": 1}, False),
        (0.0, None, {}, False),
    ],
)
def test_a_rate_is_carried_within_all_three_bounds(
    achieved: float, p99: float | None, errors: dict[str, int], carried: bool
) -> None:
    assert carries(_measured(achieved=achieved, p99=p99, errors=errors)) is carried

"""The figures that every benchmark gives: percentiles of latencies, and CPU per message. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in milliseconds, by nearest rank: each is a value that was measured."""

    p50: float
    p99: float
    p999: float
    max: float


def latency_of(seconds: Sequence[float]) -> Latency:
    """The percentiles of latencies in seconds. Raises ValueError when there are none."""
    if not seconds:
        raise ValueError("percentiles of nothing")
    ordered = sorted(seconds)
    return Latency(*(round(_rank(ordered, share) * 1e3, 3) for share in (0.5, 0.99, 0.999, 1.0)))


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def per_message(cpu_seconds: Mapping[str, float], messages: int) -> dict[str, float]:
    """Microseconds of CPU per message, by process."""
    return {name: round(seconds / max(messages, 1) * 1e6, 2) for name, seconds in cpu_seconds.items()}


def histogram_quantile(buckets: Mapping[float, float], share: float) -> float:
    """The upper bound of the bucket in which this share of a cumulative histogram lies; 0.0 for an empty one."""
    total = max(buckets.values(), default=0.0)
    for bound in sorted(buckets):
        if total and buckets[bound] >= share * total:
            return bound
    return 0.0

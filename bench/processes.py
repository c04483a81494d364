"""What processes cost and count: CPU time and memory from /proc, Prometheus metrics from their HTTP port."""

from __future__ import annotations

import os
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_UTIME: Final = 11
"""Place of the user time among the fields after the command's closing bracket (proc(5), /proc/pid/stat: field 14)."""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and all its threads so far, in seconds, to 10 ms. Linux only.

    Raises OSError when there is no such process, or no /proc.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_UTIME + 1])) / _TICKS


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM now, shared libraries included. Linux only.

    Raises OSError when there is no such process, or no /proc.
    """
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class CpuWindow:
    """CPU time that processes took between `start` and `stop`.

    Args:
        pids: process ids by the names that the figures get; the time of equal names is summed.
    """

    def __init__(self, pids: Mapping[str, list[int]]) -> None:
        self._pids = pids
        self._before: dict[str, float] = {}
        self._started = 0.0

    def start(self) -> None:
        """Begin here."""
        self._before = self._now()
        self._started = time.perf_counter()

    def stop(self) -> tuple[dict[str, float], float]:
        """CPU seconds by name since `start`, and the seconds that have passed."""
        now = self._now()
        return {name: now[name] - before for name, before in self._before.items()}, time.perf_counter() - self._started

    def _now(self) -> dict[str, float]:
        return {name: sum(map(cpu_seconds, pids)) for name, pids in self._pids.items()}


Samples = dict[str, dict[float, float]]
"""Histograms by metric name: upper bound to cumulative count."""


def histograms(address: str) -> Samples:
    """The histograms of the Prometheus endpoint at `host:port`. Raises OSError when nothing answers."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found: Samples = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                bounds = found[family.name]
                bound = float(sample.labels["le"])
                bounds[bound] = bounds.get(bound, 0.0) + sample.value
    return dict(found)


def values(address: str) -> dict[str, float]:
    """Counters and gauges of the Prometheus endpoint at `host:port`, summed over their labels.

    Raises OSError when nothing answers."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found: dict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                found[sample.name] += sample.value
    return dict(found)


def since(before: Mapping[float, float], after: Mapping[float, float]) -> dict[float, float]:
    """What a cumulative histogram counted in between."""
    return {bound: count - before.get(bound, 0.0) for bound, count in after.items()}


def shares(buckets: Mapping[float, float]) -> dict[str, float]:
    """The share of each bucket, by a label such as "65-128"; empty buckets are left out."""
    total = max(buckets.values(), default=0.0)
    result: dict[str, float] = {}
    below, last = 0.0, 0
    for bound in sorted(buckets):
        inside = buckets[bound] - below
        if inside:
            label = f"over {last}" if bound == float("inf") else _label(last + 1, int(bound))
            result[label] = round(inside / total, 4)
        below, last = buckets[bound], int(bound) if bound != float("inf") else last
    return result


def _label(first: int, last: int) -> str:
    return str(last) if first == last else f"{first}-{last}"

"""How far a consumer is behind, as a metric that also grows while nothing can be read."""

from __future__ import annotations

from qim_common.telemetry.metrics import DispatchMetrics


class Lag:
    """The lag of the slowest partition that is held of one commit instance; times in seconds of the loop's clock."""

    def __init__(self, metrics: DispatchMetrics, *, instance: int) -> None:
        self._gauge = metrics.dispatch_lag.labels(str(instance))
        self._seconds = 0.0
        self._measured_at: float | None = None

    def measure(self, lag_ms: int, now: float) -> None:
        """Found by a read, in ms; a clock that was set back makes it negative, which counts as none."""
        self._seconds = max(lag_ms, 0) / 1000
        self._measured_at = now
        self._gauge.set(self._seconds)

    def grow(self, now: float) -> None:
        """Nothing could be read since the last measurement."""
        if self._measured_at is not None:
            self._gauge.set(self._seconds + now - self._measured_at)

"""The metrics that the code registers."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from qim_common.telemetry import metrics


def declared_metrics() -> set[str]:
    """The names of every metric, as Prometheus stores them."""
    names: set[str] = set()
    for _, group in inspect.getmembers(metrics, inspect.isclass):
        if group.__module__ == metrics.__name__:
            make: Callable[[CollectorRegistry], object] = group
            make(registry := CollectorRegistry())
            names |= {f"{found.name}_total" if found.type == "counter" else found.name for found in registry.collect()}
    return names

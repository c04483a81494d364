"""Alerts that compare with a number of the configuration: both say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from qim_devkit.kubernetes.checks.fault import Fault, place
from qim_devkit.kubernetes.checks.suite import Suite

BUCKETS_ALERT: Final = "QimPartitionsNotHeld"
"""Compares what the session service holds with QIM_COMMIT_BUCKETS, which no metric tells."""


def faults(suite: Suite) -> list[Fault]:
    """Alerts with a number that is not the stores'."""
    session = suite.serving("session")
    buckets = None if session is None else session.value("commit_buckets")
    return [] if buckets is None else list(_faults(suite, buckets))


def _faults(suite: Suite, buckets: int) -> Iterator[Fault]:
    for document in suite.manifests.of("PrometheusRule"):
        for group in document["spec"].get("groups", ()):
            for rule in group.get("rules", ()):
                if rule.get("alert") == BUCKETS_ALERT and f"{buckets}" not in re.findall(r"\d+", rule["expr"]):
                    what = f"{BUCKETS_ALERT} does not compare with {buckets}, and QIM_COMMIT_BUCKETS is that"
                    yield Fault(place(document), what, "patch its expression")

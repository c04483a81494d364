"""The alerts of deploy/k8s/components/monitoring."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from qim_devkit.protos import repository_root

ALERTS: Final = repository_root() / "deploy" / "k8s" / "components" / "monitoring" / "alerts.yaml"
PROMETHEUS: Final = frozenset({"up", "kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes"})
"""What Prometheus and the kubelet tell, and no process of qim."""


def groups() -> list[dict[str, Any]]:
    """The groups, as a file of rules has them."""
    found: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text("utf-8"))["spec"]["groups"]
    return found


def alert_rules() -> list[dict[str, Any]]:
    """Every alert, in its order."""
    return [rule for group in groups() for rule in group["rules"]]


def metrics_of(rule: dict[str, Any]) -> set[str]:
    """The metrics of qim that an alert looks at."""
    return set(re.findall(r"\bqim_\w+", rule["expr"]))

"""Ends that are cut short, and numbers that contradict each other."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.spoiling import SERVICES, in_container, remove, set_in, set_variable

STORIES: list[Any] = [
    pytest.param(
        in_container("qim-writer", "lifecycle", {"preStop": {"sleep": {"seconds": 300}}}),
        "Deployment qim-writer, container writer: has lifecycle hooks",
        id="a-hook-that-takes-the-grace",
    ),
    pytest.param(
        in_container("qim-valkey", "lifecycle", {"postStart": {"exec": {"command": ["valkey-cli"]}}}, "StatefulSet"),
        "has lifecycle hooks",
        id="a-hook-that-changes-a-store",
    ),
    pytest.param(set_in("Deployment", "qim-writer", "paused", True), "Deployment qim-writer: is paused", id="paused"),
    pytest.param(
        set_in("StatefulSet", "qim-valkey", "template.spec.topologySpreadConstraints", []),
        "StatefulSet qim-valkey: its pods may all run in one kubernetes.io/hostname",
        id="no-spread",
    ),
    *(
        pytest.param(
            set_in("Deployment", name, "template.spec.terminationGracePeriodSeconds", 30),
            f"Deployment {name}: it is killed after 30 s",
            id=f"grace-shorter-than-drain-{name}",
        )
        for name in SERVICES
    ),
    pytest.param(
        set_variable("qim-process-config", "QIM_DRAIN_SECONDS", "60"), "an orderly end may take", id="longer-drain"
    ),
    pytest.param(set_variable("qim-process-config", "QIM_DRAIN_PAUSE_SECONDS", "0"), "no more calls", id="no-pause"),
    pytest.param(
        set_in("StatefulSet", "qim-valkey", "template.spec.terminationGracePeriodSeconds", 5),
        "a store",
        id="store-grace",
    ),
    pytest.param(
        set_in("Deployment", "qim-writer", "replicas", 3), "says replicas beside", id="replicas-beside-an-autoscaler"
    ),
    pytest.param(
        set_in("HorizontalPodAutoscaler", "qim-writer", "scaleTargetRef.name", "qim-writr"),
        "which is not there",
        id="hpa",
    ),
    pytest.param(set_in("HorizontalPodAutoscaler", "qim-writer", "minReplicas", 1), "has from 1", id="one-pod-alone"),
    pytest.param(
        set_in(
            "HorizontalPodAutoscaler",
            "qim-writer",
            "scaleTargetRef",
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "qim-valkey"},
        ),
        "whose number is fixed for ever",
        id="stores-that-scale",
    ),
    pytest.param(
        set_in("PodDisruptionBudget", "qim-writer", "maxUnavailable", 2), "PodDisruptionBudget qim-writer", id="budget"
    ),
    pytest.param(
        set_in("PodDisruptionBudget", "qim-writer", "maxUnavailable", 0),
        "PodDisruptionBudget qim-writer",
        id="no-drain",
    ),
    pytest.param(
        set_in("PodDisruptionBudget", "qim-writer", "selector.matchLabels", {"app": "x"}),
        "nobody's",
        id="budget-of-nobody",
    ),
    pytest.param(remove("PodDisruptionBudget", "qim-session-valkey"), "may take all of its pods", id="no-budget"),
    pytest.param(
        set_in("Deployment", "qim-writer", "selector.matchLabels", {"app.kubernetes.io/part-of": "qim"}),
        "its selector matches pods of others",
        id="a-selector-of-everybody",
    ),
    pytest.param(
        set_in("Deployment", "qim-writer", "strategy.rollingUpdate.maxUnavailable", 1), "takes pods away", id="update"
    ),
    pytest.param(
        set_in("Deployment", "qim-writer", "strategy", {"type": "Recreate"}), "its strategy is Recreate", id="recreate"
    ),
    pytest.param(
        set_in(
            "Deployment",
            "qim-writer",
            "template.spec.topologySpreadConstraints.0.labelSelector",
            {"matchLabels": {"app": "x"}},
        ),
        "are not spread over",
        id="spread-of-others",
    ),
    pytest.param(
        set_in("Deployment", "qim-writer", "template.spec.topologySpreadConstraints.0.matchLabelKeys", []),
        "counts pods of",
        id="spread-of-everybody",
    ),
]

"""Addresses, Services and ports that are wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.manifests import Draft
from tests.support.spoiling import Story, config, remove, set_in, set_variable, spec


def swapped(variable: str) -> Story:
    def story(draft: Draft) -> None:
        data = config(draft, "qim-stores-config")
        data[variable] = ",".join(reversed(data[variable].split(",")))

    return story


def swap_commit_instances(draft: Draft) -> None:
    data = config(draft, "qim-stores-config")
    first, second = "QIM_REDIS_ADDR", "QIM_MESSAGE_STORE_ADDRS"
    data[first], data[second] = data[second], data[first]


STORIES: list[Any] = [
    pytest.param(
        lambda draft: spec(draft, "StatefulSet", "qim-valkey").update({"ordinals": {"start": 1}}),
        "write qim-valkey-1.qim-valkey:6379, qim-valkey-2.qim-valkey:6379",
        id="pods-that-are-counted-from-one",
    ),
    pytest.param(
        set_variable("qim-stores-config", "QIM_REDIS_ADDR", "rediss://qim-valkey-0.qim-valkey:6379"),
        "has neither TLS nor other databases",
        id="tls-to-a-store-without",
    ),
    pytest.param(
        set_variable("qim-stores-config", "QIM_REDIS_ADDR", "redis://qim-valkey-0.qim-valkey:6379/3"),
        "has neither TLS nor other databases",
        id="another-database",
    ),
    pytest.param(
        lambda draft: draft.pod("qim-writer").update(
            {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["qim-valkey-0.qim-valkey"]}]}
        ),
        "Deployment qim-writer: has hostAliases",
        id="a-name-that-leads-elsewhere",
    ),
    pytest.param(
        lambda draft: draft.pod("qim-writer").update({"dnsPolicy": "Default"}),
        "Deployment qim-writer: its dnsPolicy Default",
        id="the-nodes-names",
    ),
    pytest.param(
        set_in("PodMonitor", "qim", "podMetricsEndpoints", []), "PodMonitor qim: reads no port", id="no-monitor"
    ),
    pytest.param(swap_commit_instances, "QIM_REDIS_ADDR, QIM_MESSAGE_STORE_ADDRS", id="two-commit-instances-swapped"),
    pytest.param(swapped("QIM_SESSION_REDIS_ADDRS"), "QIM_SESSION_REDIS_ADDRS", id="two-session-instances-swapped"),
    pytest.param(
        set_variable(
            "qim-stores-config", "QIM_MESSAGE_STORE_ADDRS", "qim-valkey-1.qim-valkey:6379,qim-valkey-2.qim-valkey:6379"
        ),
        "each pod of StatefulSet qim-valkey once",
        id="one-address-too-many",
    ),
    pytest.param(
        set_variable("qim-stores-config", "QIM_MESSAGE_STORE_ADDRS", "qim-valkey-1.qim-valkey:6380"),
        "each pod of StatefulSet qim-valkey once",
        id="another-port-of-a-store",
    ),
    pytest.param(
        set_in("StatefulSet", "qim-valkey", "replicas", 3), "each pod of StatefulSet qim-valkey once", id="store-scaled"
    ),
    pytest.param(
        set_in("StatefulSet", "qim-valkey", "serviceName", "other"), "its serviceName other", id="service-name"
    ),
    pytest.param(remove("StatefulSet", "qim-session-valkey"), "QIM_SESSION_REDIS_ADDRS names", id="no-session-stores"),
    pytest.param(
        set_variable("qim-session-config", "QIM_WRITER_ADDR", "qim-writr:7401"),
        "no Service has this name",
        id="misspelt-name",
    ),
    pytest.param(
        set_variable("qim-admin-config", "QIM_WRITER_ADDR", "qim-session:7401"),
        "does not lead to Deployment qim-writer",
        id="the-address-of-another-service",
    ),
    pytest.param(
        set_variable("qim-writer-config", "QIM_SESSION_ADDR", "qim-session:7401"),
        "its gRPC port is 7402",
        id="the-port-of-another-service",
    ),
    pytest.param(set_in("Service", "qim-writer", "ports.0.port", 7400), "Service qim-writer", id="service-port"),
    pytest.param(set_in("Service", "qim-writer", "ports.0.targetPort", "grcp"), "Service qim-writer", id="target-port"),
    pytest.param(set_in("Service", "qim-writer", "clusterIP", None), "is not headless", id="not-headless"),
    pytest.param(
        set_in("Service", "qim-session", "publishNotReadyAddresses", True),
        "Service qim-session: tells the addresses of pods that are not ready",
        id="service-with-unready-pods",
    ),
    pytest.param(
        set_in("Service", "qim-valkey", "publishNotReadyAddresses", False), "Service qim-valkey", id="store-that-hides"
    ),
    pytest.param(
        set_in("Service", "qim-admin", "selector", {"app": "x"}), "Service qim-admin: selects no", id="selector"
    ),
    pytest.param(
        set_in("Service", "qim-admin", "selector", {"app.kubernetes.io/part-of": "qim"}),
        "Service qim-admin: selects the pods of",
        id="selector-of-everybody",
    ),
    pytest.param(remove("Service", "qim-session-valkey"), "StatefulSet qim-session-valkey", id="no-service-of-stores"),
    pytest.param(
        set_in("PodMonitor", "qim", "podMetricsEndpoints.0.port", "metric"), "PodMonitor qim", id="monitor-of-no-port"
    ),
    pytest.param(
        set_variable("qim-writer-config", "QIM_METRICS_LISTEN", "0.0.0.0:7499"), "port metrics", id="listens-elsewhere"
    ),
    pytest.param(
        set_variable("qim-writer-config", "QIM_HEALTH_LISTEN", "127.0.0.1:7411"),
        "where no other pod reaches it",
        id="listens-on-loopback",
    ),
]

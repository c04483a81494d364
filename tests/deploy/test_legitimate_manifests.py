"""What installations change rightly has no fault: each story changes the production overlay as somebody may want it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.manifests import Draft
from tests.support.spoiling import Story, set_variable

from qim_devkit.kubernetes.checks import faults

HARDENED: dict[str, Any] = {
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}},
}


def beside(name: str, image: str, kind: str = "Deployment") -> Story:
    return lambda draft: draft.pod(name, kind)["containers"].append({"name": "beside", "image": image} | HARDENED)


def with_traces(draft: Draft) -> None:
    set_variable("qim-process-config", "QIM_OTLP_ENDPOINT", "http://collector.telemetry:4317")(draft)
    draft.documents.append(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "traces", "namespace": "qim"},
            "spec": {
                "podSelector": {
                    "matchExpressions": [
                        {
                            "key": "app.kubernetes.io/component",
                            "operator": "In",
                            "values": ["writer", "session", "admin", "archiver", "push"],
                        }
                    ]
                },
                "policyTypes": ["Egress"],
                "egress": [
                    {
                        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "telemetry"}}}],
                        "ports": [{"port": 4317}],
                    }
                ],
            },
        }
    )


STORIES = [
    pytest.param(beside("qim-writer", "registry.example/log-shipper:1.2"), id="a-log-shipper"),
    pytest.param(
        beside("qim-valkey", "registry.example/redis_exporter:1.80", "StatefulSet"), id="an-exporter-beside-a-store"
    ),
    pytest.param(with_traces, id="traces"),
]


@pytest.mark.parametrize("change", STORIES)
def test_what_somebody_may_want_is_no_fault(change: Story) -> None:
    draft = Draft()
    change(draft)
    assert [str(fault) for fault in faults(draft.manifests)] == []


def test_a_container_beside_ours_is_held_to_the_restricted_profile() -> None:
    draft = Draft()
    beside("qim-writer", "registry.example/log-shipper:1.2")(draft)
    del draft.pod("qim-writer")["containers"][1]["securityContext"]["readOnlyRootFilesystem"]
    assert any("container beside: may write to its image" in str(fault) for fault in faults(draft.manifests))


def test_a_container_beside_ours_that_reads_our_secrets_is_none_of_ours_and_a_fault() -> None:
    draft = Draft()
    beside("qim-writer", "registry.example/log-shipper:1.2")(draft)
    draft.pod("qim-writer")["containers"][1]["volumeMounts"] = [{"name": "tls", "mountPath": "/tls"}]
    assert any(
        "container beside" in str(fault) and "no program of qim" in str(fault) for fault in faults(draft.manifests)
    )

"""Pods that may do more than they need."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.manifests import Draft
from tests.support.spoiling import SERVICES, STORES, in_container, mount, remove, set_in


def of_namespace(draft: Draft) -> None:
    draft.get("Namespace", "qim")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "baseline"


STORIES: list[Any] = [
    *(
        pytest.param(
            set_in(kind, name, "template.spec.securityContext.runAsUser", 0), f"{kind} {name}", id=f"root-{name}"
        )
        for kind, names in (("Deployment", SERVICES), ("StatefulSet", STORES))
        for name in names
    ),
    pytest.param(
        set_in("Deployment", "qim-writer", "template.spec.securityContext.runAsUser", 1000),
        "runAsUser",
        id="another-user",
    ),
    pytest.param(
        set_in("Deployment", "qim-writer", "template.spec.securityContext.runAsNonRoot", None),
        "as root",
        id="may-be-root",
    ),
    pytest.param(
        set_in("Deployment", "qim-writer", "template.spec.securityContext.seccompProfile", None),
        "seccomp",
        id="seccomp",
    ),
    pytest.param(
        in_container("qim-writer", "securityContext.readOnlyRootFilesystem", False), "write to its image", id="writable"
    ),
    pytest.param(
        in_container("qim-writer", "securityContext.allowPrivilegeEscalation", None), "privileges", id="escalation"
    ),
    pytest.param(
        in_container("qim-writer", "securityContext.capabilities", {"drop": ["ALL"], "add": ["SYS_PTRACE"]}),
        "keeps capabilities",
        id="a-capability",
    ),
    pytest.param(
        set_in("Deployment", "qim-writer", "template.spec.automountServiceAccountToken", True), "token", id="token"
    ),
    pytest.param(
        mount("qim-admin", {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}),
        "has a token for the API server",
        id="projected-token",
    ),
    pytest.param(
        set_in("Deployment", "qim-writer", "template.spec.enableServiceLinks", None), "variables for each", id="links"
    ),
    pytest.param(
        set_in("Deployment", "qim-writer", "template.spec.hostNetwork", True), "hostNetwork", id="host-network"
    ),
    pytest.param(
        mount("qim-writer", {"name": "node", "hostPath": {"path": "/"}}), "take no volume of the node", id="host-path"
    ),
    pytest.param(remove("ServiceAccount", "qim-archiver"), "Deployment qim-archiver", id="no-service-account"),
    pytest.param(of_namespace, "Namespace qim", id="another-profile"),
    pytest.param(in_container("qim-writer", "resources.limits", None), "no limit of memory", id="no-limit"),
    pytest.param(in_container("qim-writer", "resources.requests.cpu", None), "requests no cpu", id="no-request"),
    pytest.param(in_container("qim-writer", "resources.requests.memory", "1Mi"), "may take", id="memory-not-reserved"),
]

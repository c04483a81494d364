"""Documents against the published schemas of two versions of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from qim_devkit.kubernetes.schemas import VERSIONS, SchemaReport, check_schemas

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: one}
spec:
  selector: {matchLabels: {app: one}}
  template:
    metadata: {labels: {app: one}}
    spec:
      containers:
        - name: main
          image: some/image
          ports: [{name: grpc, containerPort: 7401}]
          livenessProbe: {grpc: {port: 7421, service: liveness}}
"""


def report(*documents: Any) -> SchemaReport:
    return check_schemas(documents, VERSIONS[0])


def changed(old: str, new: str) -> Any:
    assert old in DEPLOYMENT
    return yaml.safe_load(DEPLOYMENT.replace(old, new))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_document_that_agrees_is_counted(version: str) -> None:
    found = check_schemas([yaml.safe_load(DEPLOYMENT)], version)
    assert (found.version, found.checked, found.faults, found.uncovered) == (version, 1, (), ())


@pytest.mark.parametrize(
    ("old", "new", "path", "word"),
    [
        ("selector:", "replica: 2\n  selector:", "spec", "replica"),
        (
            "containerPort: 7401",
            "containerPort: '7401'",
            "spec.template.spec.containers.0.ports.0.containerPort",
            "7401",
        ),
        ("service: liveness", "servce: a", "spec.template.spec.containers.0.livenessProbe.grpc", "servce"),
        ("- name: main\n          image", "- image", "spec.template.spec.containers.0", "name"),
        ("selector: {matchLabels: {app: one}}", "minReadySeconds: 1", "spec", "selector"),
    ],
    ids=["unknown field", "wrong type", "misspelled field", "missing name", "missing field"],
)
def test_a_fault_names_the_object_and_the_place(old: str, new: str, path: str, word: str) -> None:
    (fault,) = report(changed(old, new)).faults
    assert (fault.document, fault.path) == ("Deployment/one", path)
    assert word in fault.message
    assert str(fault).startswith(f"Deployment/one {path}: ")
    assert str(fault).endswith(f"(Kubernetes {VERSIONS[0]})")


def test_every_fault_of_a_document_is_told() -> None:
    broken = changed("image: some/image", "image: 5\n          imagePullPolcy: Always")
    assert len(report(broken).faults) == 2


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (["a"], "it is no object but list"),
        ("text", "it is no object but str"),
        (None, "it is no object but NoneType"),
        ({"kind": "Pod", "metadata": {"name": "a"}}, "it has no apiVersion"),
        ({"apiVersion": 1, "kind": "Pod", "metadata": {"name": "a"}}, "it has no apiVersion"),
        ({"apiVersion": "v1", "metadata": {"name": "a"}}, "it has no kind"),
        ({"apiVersion": "v1", "kind": "", "metadata": {"name": "a"}}, "it has no kind"),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, "it has no metadata.name"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": "a"}, "it has no metadata.name"),
        ({"apiVersion": "v1", "kind": "Deployment", "metadata": {"name": "a"}}, "there is no kind v1 Deployment"),
        (
            {"apiVersion": "apps/v9", "kind": "Deployment", "metadata": {"name": "a"}},
            "there is no kind apps/v9 Deployment",
        ),
    ],
)
def test_what_is_no_object_of_kubernetes_is_a_fault(document: Any, message: str) -> None:
    found = report(document)
    assert [fault.message for fault in found.faults] == [message]
    assert found.checked == 0


def test_an_operators_kind_is_told_as_not_covered() -> None:
    issuer = {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "a"}}
    found = report(issuer, yaml.safe_load(DEPLOYMENT))
    assert found.uncovered == ("Issuer/a (cert-manager.io/v1)",)
    assert (found.checked, found.faults) == (1, ())


@pytest.mark.parametrize("version", ["1.2", "1.99", "", "latest", "../1.34"])
def test_a_version_without_schemas_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="has no schemas of Kubernetes"):
        check_schemas([], version)

"""Selectors: which pods a Service, a policy, a budget or a spread constraint means."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from qim_devkit.kubernetes.checks.suite import Suite, namespace_of
from qim_devkit.kubernetes.pods import pod_template, workloads
from qim_devkit.kubernetes.render import Document

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has of itself."""


@dataclass(frozen=True)
class Pod:
    """A pod as selectors see it: its labels, its namespace with labels, and its named ports."""

    namespace: str
    labels: Mapping[str, str]
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A label selector with matchLabels and matchExpressions; an empty one matches everything, None nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(expression, labels) for expression in selector.get("matchExpressions") or ())


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


def witness(selector: Mapping[str, Any] | None) -> dict[str, str]:
    """Labels that match a selector and have nothing else; of several values the first."""
    return next(witnesses(selector))


def witnesses(selector: Mapping[str, Any] | None) -> Iterator[dict[str, str]]:
    """The same for every value that the selector takes."""
    fixed = dict((selector or {}).get("matchLabels") or {})
    choices = [
        [(expression["key"], value) for value in expression.get("values") or ("any",)]
        for expression in (selector or {}).get("matchExpressions") or ()
        if expression["operator"] in ("In", "Exists") and expression["key"] not in fixed
    ]
    for chosen in itertools.product(*choices):
        yield fixed | dict(chosen)


def pod_of(workload: Document) -> Pod:
    """What its pods look like."""
    template = pod_template(workload)
    namespace = namespace_of(workload)
    containers = template.get("spec", {}).get("containers", ())
    ports = {
        port["name"]: port["containerPort"] for raw in containers for port in raw.get("ports", ()) if "name" in port
    }
    return Pod(namespace, template.get("metadata", {}).get("labels", {}), {NAMESPACE_NAME: namespace}, ports)


def selected(suite: Suite, document: Document, selector: Mapping[str, Any] | None) -> list[Document]:
    """The workloads in the namespace of `document` whose pods match."""
    return [
        workload
        for workload in workloads(suite.manifests)
        if namespace_of(workload) == namespace_of(document) and matches(selector, pod_of(workload).labels)
    ]


def service_targets(suite: Suite, service: Document) -> list[Document]:
    """The workloads behind a Service."""
    return selected(suite, service, {"matchLabels": service["spec"].get("selector") or {"": "nothing"}})

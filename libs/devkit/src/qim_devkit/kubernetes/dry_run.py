"""Manifests as an API server takes them: each object is created in a strict dry run, and a warning counts as a refusal.

This is what `kubectl apply --dry-run=server --validate=strict --warnings-as-errors` asks, one call for each object, so
that every fault has the name of its object. Namespaces are made for real, because a dry run in a namespace needs it;
all of them enforce the restricted Pod Security profile, and warn of workloads whose pods would break it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from qim_devkit.kubernetes.apiserver import ApiServer, ApiServerError, Reply
from qim_devkit.kubernetes.pods import WORKLOADS
from qim_devkit.kubernetes.render import Document
from qim_devkit.kubernetes.schemas import name_of

PROFILE: Final = "restricted"
ENFORCE: Final = "pod-security.kubernetes.io/enforce"
"""The label of a namespace that says which profile its pods must keep."""

_WARN: Final = "pod-security.kubernetes.io/warn"
_QUERY: Final = "fieldManager=qim-check&fieldValidation=Strict"
_WARNING: Final = re.compile(r'^\d+ \S+ "((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class DryRun:
    """What the server says about documents.

    Attributes:
        accepted: how many it takes.
        faults: `kind/name: what is wrong`, in the order of the documents.
        unknown: `kind/name (apiVersion)` of documents whose kind no CRD there brings; they were not tried.
    """

    accepted: int
    faults: tuple[str, ...]
    unknown: tuple[str, ...]


def dry_run(server: ApiServer, documents: Iterable[Document]) -> DryRun:
    """Try to create every object.

    Args:
        documents: each with `kind` and `metadata.name` (qim_devkit.kubernetes.render).

    Raises:
        ApiServerError: the server does not answer.
    """
    wanted = list(documents)
    accepted = 0
    faults: list[str] = []
    unknown: list[str] = []
    places: dict[str, dict[str, _Place]] = {}
    for namespace in _namespaces(wanted):
        faults += _made(server, namespace)
    for document in wanted:
        name = name_of(document)
        version = str(document.get("apiVersion", ""))
        if version not in places:
            places[version] = _places(server, version)
        place = places[version].get(document["kind"])
        if place is None:
            if _is_foreign(version):
                unknown.append(f"{name} ({version})")
            else:
                faults.append(f"{name}: the server has no kind {version or '(no apiVersion)'} {document['kind']}")
            continue
        if document["kind"] != "Namespace":
            found = _refused(server, document, place)
        elif _runs_pods(document, wanted) and _profile(document) != PROFILE:
            found = [f"pods run there, and it does not enforce the {PROFILE} profile: label it {ENFORCE}={PROFILE}"]
        else:
            found = []
        accepted += not found
        faults += [f"{name}: {fault}" for fault in found]
    return DryRun(accepted, tuple(faults), tuple(unknown))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where objects of a kind are: the group's path, the plural, and whether it is in a namespace."""

    root: str
    plural: str
    namespaced: bool

    def of(self, document: Document) -> str:
        namespace = document["metadata"].get("namespace", "default")
        return f"{self.root}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{self.root}/{self.plural}"


def _places(server: ApiServer, version: str) -> dict[str, _Place]:
    if not re.fullmatch(r"[a-z0-9.-]+(/[a-z0-9]+)?", version):
        return {}
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    reply = server.request("GET", root)
    if reply.status != HTTPStatus.OK:
        return {}
    resources = json.loads(reply.body)["resources"]
    return {one["kind"]: _Place(root, one["name"], one["namespaced"]) for one in resources if "/" not in one["name"]}


def _is_foreign(version: str) -> bool:
    """Whether a CRD brings this apiVersion: Kubernetes' own groups have no dot or end with `k8s.io`."""
    group = version.rpartition("/")[0]
    return "." in group and not group.endswith(".k8s.io")


def _namespaces(documents: list[Document]) -> list[Document]:
    """Those of the documents, and one for each other namespace that an object is in; all enforce the profile."""
    found = {one["metadata"]["name"]: copy.deepcopy(one) for one in documents if one["kind"] == "Namespace"}
    for document in documents:
        name = document["metadata"].get("namespace", "default")
        found.setdefault(name, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for namespace in found.values():
        labels = namespace["metadata"].get("labels") or {}
        namespace["metadata"]["labels"] = {**labels, ENFORCE: PROFILE, _WARN: PROFILE}
    return list(found.values())


def _runs_pods(namespace: Document, documents: Iterable[Document]) -> bool:
    name = namespace["metadata"]["name"]
    return any(one["kind"] in WORKLOADS and one["metadata"].get("namespace") == name for one in documents)


def _profile(namespace: Document) -> str:
    return str((namespace["metadata"].get("labels") or {}).get(ENFORCE, "none"))


def _made(server: ApiServer, namespace: Document) -> list[str]:
    """Create or change a namespace; what the server says against it."""
    path = f"/api/v1/namespaces/{namespace['metadata']['name']}?{_QUERY}&force=true"
    reply = server.request("PATCH", path, namespace, content="application/apply-patch+yaml")
    return [f"{name_of(namespace)}: {fault}" for fault in _faults(reply)]


def _refused(server: ApiServer, document: Document, place: _Place) -> list[str]:
    return _faults(server.request("POST", f"{place.of(document)}?{_QUERY}&dryRun=All", document))


def _faults(reply: Reply) -> list[str]:
    warnings = [_text(warning) for warning in reply.warnings]
    if reply.status in (HTTPStatus.OK, HTTPStatus.CREATED):
        return warnings
    try:
        status: dict[str, Any] = json.loads(reply.body)
    except ValueError:
        raise ApiServerError(f"kube-apiserver answered {reply.status}: {reply.body[:200]}") from None
    causes = (status.get("details") or {}).get("causes") or ()
    if status.get("reason") == "Invalid" and causes:
        return [f"{cause.get('field', '')}: {cause.get('message', '')}" for cause in causes] + warnings
    return [str(status.get("message", reply.status)), *warnings]


def _text(warning: str) -> str:
    found = _WARNING.match(warning)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else warning

"""The manifests of deploy/k8s as rendered, once a run, and drafts of them that a test may spoil."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.valkey import missing

from qim_devkit.kubernetes.checks import CHECKS, Fault, Suite
from qim_devkit.kubernetes.render import Document, Manifests
from qim_devkit.kubernetes.targets import Target, targets_below
from qim_devkit.kubernetes.tools import KubernetesToolMissing, find_kubectl
from qim_devkit.protos import repository_root

ROOT: Final = repository_root() / "deploy" / "k8s"
TARGETS: Final[Sequence[Target]] = targets_below(ROOT)
PRODUCTION: Final = Target(ROOT / "overlays/production", (ROOT / "components/push", ROOT / "components/monitoring"))
"""With everything that an installation may have at once."""


def require_kubectl() -> None:
    """See `missing`."""
    try:
        find_kubectl()
    except KubernetesToolMissing as error:
        missing(str(error))


@functools.cache
def rendered(target: Target) -> Manifests:
    """The objects of a target; nobody changes them."""
    require_kubectl()
    return target.render()


@functools.cache
def _pickled(target: Target) -> bytes:
    return pickle.dumps(rendered(target).documents)


class Draft:
    """Manifests that may be changed."""

    def __init__(self, target: Target = PRODUCTION) -> None:
        self.documents: list[Document] = list(pickle.loads(_pickled(target)))  # noqa: S301  of this process

    @property
    def manifests(self) -> Manifests:
        """As they are now."""
        return Manifests(tuple(self.documents))

    def get(self, kind: str, name: str) -> Document:
        """One object; a ConfigMap also by its name without the hash."""
        for document in self.documents:
            there = document["metadata"]["name"]
            if document["kind"] == kind and (there == name or (kind == "ConfigMap" and there[:-11] == name)):
                return document
        raise KeyError(f"{kind} {name}")

    def remove(self, kind: str, name: str) -> None:
        """Leave one out."""
        self.documents.remove(self.get(kind, name))

    def pod(self, name: str, kind: str = "Deployment") -> Document:
        """The spec of a workload's pods."""
        found: Document = self.get(kind, name)["spec"]["template"]["spec"]
        return found

    def container(self, name: str, kind: str = "Deployment") -> Document:
        """The first container of a workload."""
        found: Document = self.pod(name, kind)["containers"][0]
        return found


def first_faults(manifests: Manifests) -> list[Fault]:
    """What the first check says that finds anything."""
    suite = Suite.of(manifests)
    return next((found for check in CHECKS if (found := check(suite))), [])


def path_of(name: str) -> Path:
    """A file of the repository."""
    return repository_root() / name

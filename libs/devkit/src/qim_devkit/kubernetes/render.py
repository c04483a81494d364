"""A kustomize directory as documents."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

Document: TypeAlias = dict[str, Any]
"""One object of a manifest."""

_SECONDS: Final = 60


class RenderError(Exception):
    """A directory that kustomize does not take; the message is kustomize's own."""


@dataclass(frozen=True)
class Manifests:
    """The objects of a directory, in their order.

    Attributes:
        documents: each with `kind` and `metadata.name`.
    """

    documents: tuple[Document, ...]

    @classmethod
    def parse(cls, text: str) -> Manifests:
        """The objects of YAML documents, empty ones left out.

        Raises:
            RenderError: a document is no object with a kind and a name.
        """
        try:
            found = list(yaml.load_all(text, Loader=_LOADER))
        except yaml.YAMLError as error:
            raise RenderError(f"no YAML: {error}") from None
        return cls(tuple(_checked(document) for document in found if document is not None))

    def of(self, kind: str) -> list[Document]:
        """All objects of a kind, in their order."""
        return [document for document in self.documents if document["kind"] == kind]

    def get(self, kind: str, name: str) -> Document:
        """One object; raises KeyError that says which there are."""
        for document in self.of(kind):
            if document["metadata"]["name"] == name:
                return document
        names = ", ".join(sorted(document["metadata"]["name"] for document in self.of(kind))) or "none"
        raise KeyError(f"there is no {kind} {name}; there are: {names}")


def render(directory: Path, *, kubectl: str | Path = "kubectl") -> Manifests:
    """What `kubectl kustomize` makes of a directory, without a cluster or the network.

    Raises:
        RenderError: with kustomize's words, or because kubectl is missing or has none.
    """
    if not directory.is_dir():
        raise RenderError(f"{directory}: there is no such directory")
    try:
        made = subprocess.run(  # noqa: S603  a directory of the caller's
            [str(kubectl), "kustomize", str(directory)],
            check=False,
            capture_output=True,
            encoding="utf-8",
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RenderError(f"{kubectl} kustomize {directory}: {error}") from None
    if made.returncode != 0:
        raise RenderError(f"{directory}: {made.stderr.strip()}")
    return Manifests.parse(made.stdout)


def joined(parts: Iterable[Manifests]) -> Manifests:
    """The objects of all parts, such as an overlay and an example beside it."""
    return Manifests(tuple(document for part in parts for document in part.documents))


def _checked(document: Any) -> Document:
    match document:
        case {"kind": str(), "metadata": {"name": str()}}:
            found: Document = document
            return found
    raise RenderError(f"a document is no object with a kind and a metadata.name: {str(document)[:80]}")


_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

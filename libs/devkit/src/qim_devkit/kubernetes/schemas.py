"""Manifests against the published schemas of Kubernetes, strictly: a field that a schema does not have is a fault.

The schemas are those that the package `kubernetes-validate` carries, one set for each version, so nothing is fetched.
Its own `validate` stops at a document's first fault and reads megabytes for each; here a set is read once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jsonschema
from kubernetes_validate.utils import VersionNotSupportedError, schema_contents
from referencing import Registry, Resource

VERSIONS: Final = ("1.34", "1.37")
"""The oldest Kubernetes that the manifests are made for, and the newest one that the package knows."""


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """One thing that a schema refuses.

    Attributes:
        version: of Kubernetes, such as `1.34`.
        document: `kind/name`.
        path: where in the document, such as `spec.template.spec.containers.0.image`; empty for the whole.
        message: what is wrong.
    """

    version: str
    document: str
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.document} {self.path}".rstrip()
        return f"{place}: {self.message} (Kubernetes {self.version})"


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """What a version's schemas say about documents.

    Attributes:
        version: of Kubernetes.
        checked: how many documents had a schema.
        faults: what is wrong, in the order of the documents.
        uncovered: `kind/name (apiVersion)` of documents whose kind an operator brings: no schema here tells of them.
    """

    version: str
    checked: int
    faults: tuple[SchemaFault, ...]
    uncovered: tuple[str, ...]


def check_schemas(documents: Iterable[Any], version: str) -> SchemaReport:
    """Compare each document with the schema of its kind.

    Args:
        documents: as YAML gives them; anything but objects is a fault.
        version: of Kubernetes, one that `kubernetes-validate` carries.

    Raises:
        ValueError: there are no schemas of this version.
    """
    schemas = _schemas(version)
    checked = 0
    faults: list[SchemaFault] = []
    uncovered: list[str] = []
    for at, document in enumerate(documents, start=1):
        name = name_of(document, at)
        incomplete = _incomplete(document)
        if incomplete:
            faults.append(SchemaFault(version, name, "", incomplete))
            continue
        group, _, api = document["apiVersion"].rpartition("/")
        found = schemas.get((group, api, document["kind"]))
        if found is not None:
            checked += 1
            faults.extend(SchemaFault(version, name, *fault) for fault in _faults(document, found, version))
        elif group in {known for known, _, _ in schemas}:
            kind = f"{document['apiVersion']} {document['kind']}"
            faults.append(SchemaFault(version, name, "", f"there is no kind {kind}"))
        else:
            uncovered.append(f"{name} ({document['apiVersion']})")
    return SchemaReport(version, checked, tuple(faults), tuple(uncovered))


def name_of(document: Any, at: int = 0) -> str:
    """`kind/name` for messages, or `document N` where it has neither."""
    if not isinstance(document, dict):
        return f"document {at}"
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    kind = document.get("kind")
    return f"{kind}/{name or '(no name)'}" if kind else f"document {at}"


def _incomplete(document: Any) -> str:
    """What is missing to find its schema; empty where nothing is."""
    if not isinstance(document, dict):
        return f"it is no object but {type(document).__name__}"
    for field in ("apiVersion", "kind"):
        value = document.get(field)
        if not isinstance(value, str) or not value:
            return f"it has no {field}"
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        return "it has no metadata.name"
    return ""


def _faults(document: Mapping[str, Any], definition: str, version: str) -> Iterator[tuple[str, str]]:
    errors = _validator(version, definition).iter_errors(document)
    for error in sorted(errors, key=lambda error: [str(part) for part in error.absolute_path]):
        # Of alternatives the one that got furthest says what is meant.
        deepest = jsonschema.exceptions.best_match([error]) or error
        yield ".".join(str(part) for part in deepest.absolute_path), deepest.message


@functools.cache
def _registry(version: str) -> tuple[Registry[Any], Mapping[str, Any]]:
    folder = f"v{version}.0-local-strict"
    try:
        contents = schema_contents(f"kubernetes-json-schema/{folder}/_definitions.json", version)
    except (VersionNotSupportedError, FileNotFoundError) as error:
        raise ValueError(f"kubernetes-validate has no schemas of Kubernetes {version}") from error
    return Resource.from_contents(contents) @ Registry(), contents


@functools.cache
def _schemas(version: str) -> Mapping[tuple[str, str, str], str]:
    """Group, version and kind -> the name of its definition."""
    _, contents = _registry(version)
    found: dict[tuple[str, str, str], str] = {}
    for name, definition in contents["$defs"].items():
        kinds = definition.get("x-kubernetes-group-version-kind", ())
        # Those that belong to every group, such as DeleteOptions, are no objects of a manifest.
        if len(kinds) == 1:
            (kind,) = kinds
            found[kind["group"], kind["version"], kind["kind"]] = name
    return found


@functools.cache
def _validator(version: str, definition: str) -> Any:
    registry, contents = _registry(version)
    schema = {"$ref": f"{contents['$id']}#/$defs/{definition}"}
    return jsonschema.Draft202012Validator(schema, registry=registry)

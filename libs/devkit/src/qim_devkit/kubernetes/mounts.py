"""The volumes of a pod as a container sees them: files of ConfigMaps and Secrets, directories that can be written."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final, TypeAlias

from qim_devkit.kubernetes.render import Document, Manifests

Secrets: TypeAlias = Mapping[str, Mapping[str, bytes]]
"""Name -> key -> content."""

DEFAULT_MODE: Final = 0o644
_WRITABLE: Final = ("emptyDir", "persistentVolumeClaim", "ephemeral", "hostPath")


@dataclass(frozen=True)
class Source:
    """Where a mounted file is from: `kind` ConfigMap or Secret, its name, and the key in it."""

    kind: str
    name: str
    key: str


@dataclass
class Mounted:
    """What a container's mounts come to; all paths are absolute."""

    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    directories: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _File:
    path: str
    content: bytes
    mode: int
    source: Source


@dataclass(frozen=True)
class Sources:
    """The ConfigMaps of the manifests, and Secrets of theirs or of the cluster."""

    manifests: Manifests
    secrets: Secrets

    def of(self, kind: str, name: str, *, optional: bool = False) -> Mapping[str, bytes]:
        """All keys; empty for an optional one that is missing. Raises KeyError."""
        if kind == "Secret" and name in self.secrets:
            return self.secrets[name]
        try:
            document = self.manifests.get(kind, name)
        except KeyError:
            if optional:
                return {}
            raise
        return _data(document)

    def key(self, kind: str, name: str, key: str, *, optional: bool = False) -> bytes | None:
        """One key; None for an optional one that is missing. Raises KeyError."""
        content = self.of(kind, name, optional=optional)
        if key not in content and not optional:
            raise KeyError(f"{kind} {name} has no key {key}; it has: {', '.join(sorted(content)) or 'none'}")
        return content.get(key)


def contents(
    container: Document, pod_spec: Mapping[str, Any], workload_spec: Mapping[str, Any], sources: Sources
) -> Mounted:
    """What the mounts of `container` come to.

    Raises:
        KeyError: a volume, ConfigMap, Secret or key that is not optional does not exist.
    """
    volumes = {volume["name"]: volume for volume in pod_spec.get("volumes", ())}
    for claim in workload_spec.get("volumeClaimTemplates", ()):
        volumes[claim["metadata"]["name"]] = {"persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
    mounted = Mounted()
    for mount in container.get("volumeMounts", ()):
        if mount["name"] not in volumes:
            raise KeyError(f"container {container['name']}: there is no volume {mount['name']}")
        volume = volumes[mount["name"]]
        where = PurePosixPath(mount["mountPath"])
        writable = next((kind for kind in _WRITABLE if kind in volume), None)
        if writable is not None:
            mounted.directories[str(where)] = writable
            continue
        _add(mounted, list(_files(volume, sources)), where, mount.get("subPath", ""))
    return mounted


def _add(mounted: Mounted, files: list[_File], where: PurePosixPath, part: str) -> None:
    for file in files:
        if not part:
            path = where / file.path
        elif file.path == part:
            path = where
        elif file.path.startswith(f"{part}/"):
            path = where / file.path.removeprefix(f"{part}/")
        else:
            continue
        mounted.files[str(path)] = file.content
        mounted.modes[str(path)] = file.mode
        mounted.sources[str(path)] = file.source


def _files(volume: Document, sources: Sources) -> Iterator[_File]:
    if (secret := volume.get("secret")) is not None:
        yield from _items("Secret", secret["secretName"], secret, sources, secret.get("defaultMode", DEFAULT_MODE))
    elif (config := volume.get("configMap")) is not None:
        yield from _items("ConfigMap", config["name"], config, sources, config.get("defaultMode", DEFAULT_MODE))
    elif (projected := volume.get("projected")) is not None:
        mode = projected.get("defaultMode", DEFAULT_MODE)
        for source in projected.get("sources", ()):
            for kind, entry in (("Secret", "secret"), ("ConfigMap", "configMap")):
                if entry in source:
                    yield from _items(kind, source[entry]["name"], source[entry], sources, mode)


def _items(kind: str, name: str, said: Document, sources: Sources, mode: int) -> Iterator[_File]:
    optional = said.get("optional", False)
    items = said.get("items")
    if items is None:
        for key, content in sources.of(kind, name, optional=optional).items():
            yield _File(key, content, mode, Source(kind, name, key))
        return
    for item in items:
        found = sources.key(kind, name, item["key"], optional=optional)
        if found is not None:
            yield _File(item["path"], found, item.get("mode", mode), Source(kind, name, item["key"]))


def _data(document: Document) -> dict[str, bytes]:
    plain = document.get("stringData" if document["kind"] == "Secret" else "data") or {}
    found = {key: str(value).encode() for key, value in plain.items()}
    encoded = document.get("data" if document["kind"] == "Secret" else "binaryData") or {}
    return {key: base64.b64decode(value) for key, value in encoded.items()} | found

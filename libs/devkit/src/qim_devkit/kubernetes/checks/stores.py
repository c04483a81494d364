"""Stores: their configuration is what the services demand of them at start, and their data outlives their pods."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from qim_common.redis.safety import SETTINGS, find_problems
from qim_devkit.kubernetes.checks.fault import Fault, place
from qim_devkit.kubernetes.checks.programs import StoreKind, image_name
from qim_devkit.kubernetes.checks.suite import StoreSet, Suite
from qim_devkit.kubernetes.pods import pod_template
from qim_devkit.kubernetes.quantities import bytes_of, config_bytes
from qim_devkit.kubernetes.render import Document

MEMORY_SHARE: Final = 0.75
"""What `maxmemory` may be of the container's limit: the rest is for the copy of a rewrite, buffers, fragmentation."""

VOLUME_FACTOR: Final = 3
"""The append-only file, a new one while it is rewritten, and what is written meanwhile."""

COMPACT_ENTRIES: Final = 128
"""`hash-max-listpack-entries` (docs/configuration.md, "Redis or Valkey")."""

REWRITE_BYTES: Final = 512 * 1024**2
"""`auto-aof-rewrite-min-size` at least."""

REFUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "cluster-enabled": ("yes",),
    "rename-command": (),
    "tls-port": (),
    "enable-debug-command": ("yes", "local"),
}
"""Directive -> the values that are refused; none: whatever it says."""

ANYWHERE: Final = frozenset({"*", "0.0.0.0", "-::*", "::"})  # noqa: S104  compared with, not listened on
"""Of `bind`: where a pod is reached."""

_MAX_INCLUDES: Final = 8


def faults(suite: Suite) -> list[Fault]:
    """Configurations that would lose what was acknowledged, or that do not fit into their pods; volumes that end."""
    found: list[Fault] = []
    for store in suite.stores:
        try:
            found += [*_configuration(store), *_volume(store)]
        except ValueError as error:
            found.append(Fault(place(store.workload), str(error), "write a number, such as 512mb or 4Gi"))
    for kind in StoreKind:
        same = [store for store in suite.stores if store.kind is kind]
        if len(same) > 1:
            names = ", ".join(place(store.workload) for store in same)
            found.append(Fault(place(same[1].workload), f"{names} are all {kind}", "have one StatefulSet of each kind"))
    return found


def configuration_of(store: StoreSet) -> tuple[dict[str, str], list[str]]:
    """The directives as the server reads them, the last of each name counting, and what is wrong with its files."""
    if not store.container.arguments:
        return {}, ["it is started without a configuration file"]
    path, found, problems = store.container.arguments[0], dict[str, str](), list[str]()
    _read(store.container.files, path, found, problems, depth=0)
    for word in store.container.arguments[1:]:
        problems.append(f"the argument {word} is not in its file")
    return found, problems


def _read(files: Mapping[str, bytes], path: str, found: dict[str, str], problems: list[str], *, depth: int) -> None:
    if path not in files or depth > _MAX_INCLUDES:
        problems.append(f"{path} is not mounted")
        return
    for line in files[path].decode().splitlines():
        if not line.strip() or line.strip().startswith("#"):
            continue
        # As the server splits a line: at any blanks, with quotation marks around what has some.
        name, *words = shlex.split(line)
        value = " ".join(words)
        if name.lower() == "include":
            _read(files, value, found, problems, depth=depth + 1)
        elif name.lower() == "user" and {"on", "nopass"} <= {word.lower() for word in words}:
            problems.append(f"the user {words[0]} needs no password")
        else:
            found[name.lower()] = value


def _configuration(store: StoreSet) -> Iterator[Fault]:
    where = place(store.workload)
    said, problems = configuration_of(store)
    version = store.container.image.partition("@")[0].rsplit("/", 1)[-1].partition(":")[2]
    product = image_name(store.container.image)
    server = {"server_name": "valkey", "valkey_version": version} if product == "valkey" else {"redis_version": version}
    replication = {"role": "slave" if {"replicaof", "slaveof"} & said.keys() else "master"}
    problems += find_problems({name: said.get(name) for name in SETTINGS}, server, replication)
    for problem in problems:
        yield Fault(where, problem, "change its ConfigMap")
    for name, refused in REFUSED.items():
        if said.get(name, "no") in refused or (name in said and not refused):
            yield Fault(where, f"{name} {said[name]} is nothing that the services work with", "remove it")
    if said.get("bind") and not ANYWHERE & set(said["bind"].split()):
        yield Fault(where, f"listens on {said['bind']} only", "write bind * -::*")
    if not said.get("requirepass") and "aclfile" not in said:
        yield Fault(where, "asks for no password", "include a file of a Secret with requirepass")
    if said.get("protected-mode", "yes") != "yes" or said.get("port", "6379") not in map(
        str, store.container.ports.values()
    ):
        what = f"listens on port {said.get('port', '6379')}, protected-mode {said.get('protected-mode', 'yes')}"
        yield Fault(where, what, "protect it, and let it listen on the container's port")
    if int(said.get("hash-max-listpack-entries", "512")) != COMPACT_ENTRIES:
        yield Fault(where, "searches large groups slowly", f"write hash-max-listpack-entries {COMPACT_ENTRIES}")
    if config_bytes(said.get("auto-aof-rewrite-min-size", "64mb")) < REWRITE_BYTES:
        yield Fault(where, "rewrites its file often", "write auto-aof-rewrite-min-size 512mb")
    most = config_bytes(said.get("maxmemory", "0"))
    limit = bytes_of(_raw(store).get("resources", {}).get("limits", {}).get("memory", "0"))
    if not 0 < most <= limit * MEMORY_SHARE:
        what = f"maxmemory {said.get('maxmemory', '0')} is no {MEMORY_SHARE:.0%} of its limit of memory"
        yield Fault(where, what, "the copy of a rewrite, buffers and fragmentation need the rest")


def _volume(store: StoreSet) -> Iterator[Fault]:
    where, spec = place(store.workload), store.workload["spec"]
    said, _ = configuration_of(store)
    folder = PurePosixPath(said.get("dir", "/data"))
    kinds = {
        kind
        for path, kind in store.container.directories.items()
        if path != "/" and (folder.is_relative_to(path) or PurePosixPath(path).is_relative_to(folder))
    }
    claims = {claim["metadata"]["name"]: claim for claim in spec.get("volumeClaimTemplates", ())}
    mounts = [one for one in _raw(store).get("volumeMounts", ()) if folder.is_relative_to(one["mountPath"])]
    if kinds != {"persistentVolumeClaim"} or not any(mount["name"] in claims for mount in mounts):
        yield Fault(where, f"{folder} is no volume of its own that outlives the pod", "mount a volumeClaimTemplate")
        return
    claim = next(claims[mount["name"]] for mount in mounts if mount["name"] in claims)["spec"]
    size = bytes_of(claim.get("resources", {}).get("requests", {}).get("storage", "0"))
    if size < VOLUME_FACTOR * config_bytes(said.get("maxmemory", "0")):
        yield Fault(where, "its volume is too small for a rewrite", f"give it {VOLUME_FACTOR} times maxmemory or more")
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    if any(retention.get(moment, "Retain") != "Retain" for moment in ("whenDeleted", "whenScaled")):
        yield Fault(where, "its volumes go with it", "write Retain for whenDeleted and whenScaled")


def _raw(store: StoreSet) -> Document:
    """The container as the manifest has it."""
    containers: list[Document] = pod_template(store.workload)["spec"]["containers"]
    return next(one for one in containers if one["name"] == store.container.name)

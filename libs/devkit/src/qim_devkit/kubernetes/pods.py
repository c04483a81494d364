"""What a container of a manifest finds when it runs: its environment, its files, its ports and probes, as the kubelet
puts them together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from qim_devkit.kubernetes.mounts import Secrets, Source, Sources, contents
from qim_devkit.kubernetes.render import Document, Manifests

WORKLOADS: Final = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod")
"""Kinds that run pods."""

GRACE_SECONDS: Final = 30
"""What a pod that says nothing gets between SIGTERM and SIGKILL."""

_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


@dataclass(frozen=True)
class Container:
    """One container as it runs.

    Attributes:
        name: in its pod.
        image: as the manifest names it.
        entrypoint: what replaces the image's entry point; empty where it stays.
        arguments: what replaces the image's own arguments; empty where they stay.
        environment: envFrom and env, resolved.
        files: absolute path -> content, of mounted ConfigMaps and Secrets.
        file_modes: absolute path -> mode; the group's bits count with `fsGroup`.
        sources: absolute path -> the object and key that the file is from.
        directories: absolute path -> kind of the volume, of what can be written (`emptyDir`, `persistentVolumeClaim`).
        ports: name -> number.
        startup, liveness, readiness: the probes; None where there is none.
        run_as_user, run_as_group, fs_group: numbers; None where the image decides.
        read_only_root: whether only `directories` can be written.
        grace_seconds: between SIGTERM and SIGKILL.
        labels: of the pod.
    """

    name: str
    image: str
    entrypoint: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, bytes] = field(repr=False)
    file_modes: Mapping[str, int]
    sources: Mapping[str, Source]
    directories: Mapping[str, str]
    ports: Mapping[str, int]
    startup: Document | None
    liveness: Document | None
    readiness: Document | None
    run_as_user: int | None
    run_as_group: int | None
    fs_group: int | None
    read_only_root: bool
    grace_seconds: int
    labels: Mapping[str, str]

    @property
    def command(self) -> tuple[str, ...]:
        """What the manifest says to run, entry point and arguments; empty for what the image says."""
        return (*self.entrypoint, *self.arguments)


def container_of(
    manifests: Manifests,
    kind: str,
    name: str,
    *,
    secrets: Secrets | None = None,
    container: str = "",
) -> Container:
    """A container of a workload.

    Args:
        kind: one of WORKLOADS.
        name: of the workload.
        secrets: what the cluster holds and no manifest does: name -> key -> content.
        container: its name, also of an init container; empty for the pod's first.

    Raises:
        KeyError: the workload, the container, or a ConfigMap, Secret or key that it needs does not exist.
        ValueError: it takes a variable from where only a cluster knows it.
    """
    workload = manifests.get(kind, name)
    template = pod_template(workload)
    spec = template.get("spec", {})
    found = _container(spec, container, f"{kind} {name}")
    sources = Sources(manifests, secrets or {})
    security = {**spec.get("securityContext", {}), **found.get("securityContext", {})}
    environment = _environment(found, sources)
    mounted = contents(found, spec, workload.get("spec", {}), sources)
    return Container(
        name=found["name"],
        image=found.get("image", ""),
        entrypoint=tuple(_expanded(part, environment) for part in found.get("command", ())),
        arguments=tuple(_expanded(part, environment) for part in found.get("args", ())),
        environment=environment,
        files=mounted.files,
        file_modes=mounted.modes,
        sources=mounted.sources,
        directories=mounted.directories,
        ports={port.get("name", ""): port["containerPort"] for port in found.get("ports", ())},
        startup=found.get("startupProbe"),
        liveness=found.get("livenessProbe"),
        readiness=found.get("readinessProbe"),
        run_as_user=security.get("runAsUser"),
        run_as_group=security.get("runAsGroup"),
        fs_group=security.get("fsGroup"),
        read_only_root=security.get("readOnlyRootFilesystem") is True,
        grace_seconds=spec.get("terminationGracePeriodSeconds", GRACE_SECONDS),
        labels=template.get("metadata", {}).get("labels", {}),
    )


def pod_template(workload: Document) -> Document:
    """Metadata and spec of the pods that a workload runs; raises KeyError for a kind that runs none."""
    match workload["kind"]:
        case "Pod":
            return workload
        case "CronJob":
            template: Document = workload["spec"]["jobTemplate"]["spec"]["template"]
        case kind if kind in WORKLOADS:
            template = workload["spec"]["template"]
        case kind:
            raise KeyError(f"{kind} {workload['metadata']['name']} runs no pods")
    return template


def workloads(manifests: Manifests) -> Iterator[Document]:
    """Every object that runs pods, in their order."""
    return (document for document in manifests.documents if document["kind"] in WORKLOADS)


def containers_of(workload: Document) -> list[Document]:
    """The containers of its pods as the manifest has them, init containers first."""
    spec = pod_template(workload).get("spec", {})
    return [*spec.get("initContainers", ()), *spec.get("containers", ())]


def replicas(manifests: Manifests, name: str) -> int:
    """How many pods of a Deployment or StatefulSet run at least: `replicas`, else the autoscaler's minimum, else 1.

    Raises KeyError where there is neither.
    """
    workload = _scaled(manifests, name)
    said = workload["spec"].get("replicas")
    if said is not None:
        return int(said)
    for scaler in manifests.of("HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        if (target["kind"], target["name"]) == (workload["kind"], name):
            return int(scaler["spec"].get("minReplicas", 1))
    return 1


@dataclass(frozen=True)
class Strategy:
    """How pods of a Deployment are replaced: so many may be missing, so many more may run meanwhile."""

    max_unavailable: int
    max_surge: int


def strategy(manifests: Manifests, name: str) -> Strategy:
    """The rolling update of a Deployment at its least number of pods, fractions taken as Kubernetes takes them.

    Raises:
        KeyError: there is no such Deployment.
        ValueError: it is not replaced by a rolling update.
    """
    said = manifests.get("Deployment", name)["spec"].get("strategy", {})
    if said.get("type", "RollingUpdate") != "RollingUpdate":
        raise ValueError(f"Deployment {name}: its strategy is {said['type']}, no rolling update")
    rolling = said.get("rollingUpdate") or {}
    count = replicas(manifests, name)
    unavailable = _part(rolling.get("maxUnavailable", "25%"), count, up=False)
    surge = _part(rolling.get("maxSurge", "25%"), count, up=True)
    return Strategy(max_unavailable=unavailable, max_surge=surge)


def _part(value: int | str, count: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%")) * count
    return -(-percent // 100) if up else percent // 100


def _scaled(manifests: Manifests, name: str) -> Document:
    for kind in ("Deployment", "StatefulSet"):
        for document in manifests.of(kind):
            if document["metadata"]["name"] == name:
                return document
    raise KeyError(f"there is no Deployment or StatefulSet {name}")


def _container(spec: Mapping[str, Any], name: str, of: str) -> Document:
    found: list[Document] = list(spec.get("containers", ()))
    if name:
        found = [one for one in (*found, *spec.get("initContainers", ())) if one["name"] == name]
    if not found:
        raise KeyError(f"{of}: there is no container {name}".rstrip())
    return found[0]


def _environment(container: Document, sources: Sources) -> dict[str, str]:
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        prefix = source.get("prefix", "")
        for kind, reference in (("ConfigMap", source.get("configMapRef")), ("Secret", source.get("secretRef"))):
            if reference is not None:
                content = sources.of(kind, reference["name"], optional=reference.get("optional", False))
                found |= {f"{prefix}{key}": value.decode() for key, value in content.items()}
    for variable in container.get("env", ()):
        name = variable["name"]
        value = _value(name, variable, sources)
        if value is not None:
            found[name] = _expanded(value, found)
    return found


def _value(name: str, variable: Document, sources: Sources) -> str | None:
    source = variable.get("valueFrom")
    if source is None:
        return str(variable.get("value", ""))
    for kind, entry in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
        if (reference := source.get(entry)) is not None:
            optional = reference.get("optional", False)
            value = sources.key(kind, reference["name"], reference["key"], optional=optional)
            return None if value is None else value.decode()
    raise ValueError(f"{name} is from {', '.join(source)}, which only a cluster knows")


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` replaced where the variable is known, as Kubernetes does it."""

    def of(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else environment.get(name, match[0])

    return _REFERENCE.sub(of, text)

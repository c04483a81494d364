"""Security: the restricted profile and what goes beyond it, for every pod of the suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from qim_devkit.kubernetes.checks.fault import Fault, place
from qim_devkit.kubernetes.checks.programs import IMAGES, USER, image_name
from qim_devkit.kubernetes.checks.suite import Suite, namespace_of
from qim_devkit.kubernetes.pods import Container, containers_of, pod_template
from qim_devkit.kubernetes.render import Document

PROFILE: Final = "pod-security.kubernetes.io/enforce"
VOLUMES: Final = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
"""Kinds that the restricted profile allows."""

_HOST: Final = ("hostNetwork", "hostPID", "hostIPC")


def faults(suite: Suite) -> list[Fault]:
    """Pods that may do more than they need, or that no limit holds."""
    found = list(_namespaces(suite))
    for where, container in (
        *((process.where, process.container) for process in suite.processes),
        *((store.where, store.container) for store in suite.stores),
    ):
        found += _files(where, container)
    for workload in suite.workloads:
        found += _pod(suite, workload)
        for raw in containers_of(workload):
            found += _container(workload, raw)
    return found


def _namespaces(suite: Suite) -> Iterator[Fault]:
    needed = {namespace_of(workload) for workload in suite.workloads}
    there = {namespace["metadata"]["name"]: namespace for namespace in suite.manifests.of("Namespace")}
    for name in sorted(needed):
        labels = there[name]["metadata"].get("labels", {}) if name in there else {}
        if labels.get(PROFILE) != "restricted":
            yield Fault(
                f"Namespace {name}", "does not enforce the restricted profile", f"label it {PROFILE}=restricted"
            )


def _pod(suite: Suite, workload: Document) -> Iterator[Fault]:
    where, spec = place(workload), pod_template(workload)["spec"]
    for key in _HOST:
        if spec.get(key):
            yield Fault(where, f"has {key}", "remove it")
    if spec.get("automountServiceAccountToken") is not False:
        yield Fault(where, "mounts a token for the API server", "write automountServiceAccountToken: false")
    if spec.get("enableServiceLinks") is not False:
        remedy = "write enableServiceLinks: false"
        yield Fault(where, "gets variables for each Service, some with the prefix QIM_", remedy)
    account = spec.get("serviceAccountName", "default")
    accounts = {one["metadata"]["name"] for one in suite.manifests.of("ServiceAccount")}
    if account not in accounts:
        yield Fault(where, f"runs as the service account {account}, which is not there", "make one of its own for it")
    for volume in spec.get("volumes", ()):
        kinds = set(volume) - {"name"}
        if not kinds <= VOLUMES:
            yield Fault(where, f"volume {volume['name']} is {', '.join(sorted(kinds))}", "take no volume of the node")
        sources = volume.get("projected", {}).get("sources", ())
        if any("serviceAccountToken" in source for source in sources):
            yield Fault(where, f"volume {volume['name']} has a token for the API server", "remove it")


def _container(workload: Document, raw: Document) -> Iterator[Fault]:
    where, pod = f"{place(workload)}, container {raw['name']}", pod_template(workload)["spec"]
    own: Mapping[str, Any] = raw.get("securityContext") or {}
    both = {**(pod.get("securityContext") or {}), **own}
    if both.get("runAsNonRoot") is not True:
        yield Fault(where, "may run as root", "write runAsNonRoot: true")
    ours = image_name(raw.get("image", "")) in IMAGES
    for key in ("runAsUser", "runAsGroup"):
        number = both.get(key)
        if not number or (ours and number != USER):
            wanted = f"the image's {USER}" if ours else "a number that is not 0"
            yield Fault(where, f"{key} is {number}", f"write {wanted}")
    if both.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield Fault(where, "has no seccomp profile", "write seccompProfile: {type: RuntimeDefault}")
    if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
        yield Fault(where, "may gain privileges", "write allowPrivilegeEscalation: false")
    if own.get("readOnlyRootFilesystem") is not True:
        yield Fault(where, "may write to its image", "write readOnlyRootFilesystem: true")
    capabilities = own.get("capabilities") or {}
    if capabilities.get("drop") != ["ALL"] or capabilities.get("add"):
        yield Fault(where, "keeps capabilities", "write capabilities: {drop: [ALL]}")
    if any("hostPort" in port for port in raw.get("ports", ())):
        yield Fault(where, "takes a port of the node", "remove hostPort")
    yield from _image(where, raw.get("image", ""))
    yield from _resources(where, raw.get("resources") or {})


def _files(where: str, container: Container) -> Iterator[Fault]:
    """Each mounted file can be read by the container's user, and a secret by nobody else."""
    for path, source in sorted(container.sources.items()):
        mode = container.file_modes[path]
        # The kubelet gives the files of a volume to the group of the pod.
        group = container.fs_group is not None and bool(mode & 0o040)
        if (source.kind == "Secret" and mode & 0o007) or not (group or mode & 0o004):
            what = f"{path} has the mode {mode:04o}, which its user cannot read or which others can"
            remedy = "give it 0440 and the pod the group of its user as fsGroup; 0444 is for what is no secret"
            yield Fault(where, what, remedy)
    if "persistentVolumeClaim" in container.directories.values() and container.fs_group is None:
        yield Fault(
            where, "cannot write to its volume, which is root's", "give the pod the group of its user as fsGroup"
        )


def _image(where: str, image: str) -> Iterator[Fault]:
    _, _, digest = image.partition("@")
    _, _, tag = image.partition("@")[0].rsplit("/", 1)[-1].partition(":")
    if not digest.startswith("sha256:") and tag in ("", "latest"):
        yield Fault(where, f"image {image} is whatever is newest", "name a version, or a digest")


def _resources(where: str, resources: Mapping[str, Any]) -> Iterator[Fault]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if "cpu" not in requests or "memory" not in requests:
        yield Fault(where, "requests no cpu or no memory", "docs/performance.md says how much it needs")
    if "memory" not in limits:
        yield Fault(where, "has no limit of memory", "limit it: the node's other pods come first")
    elif limits["memory"] != requests.get("memory"):
        remedy = "reserve what it may take: a store or service that is killed for another's memory is an outage"
        yield Fault(where, f"requests {requests.get('memory')} and may take {limits['memory']}", remedy)

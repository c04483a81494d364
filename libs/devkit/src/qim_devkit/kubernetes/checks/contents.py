"""Mounted files: a process takes what is in them, as its own code reads it, and sees them change.

Only what the manifests hold can be looked at; Secrets that are made elsewhere are taken for right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from qim_common.bindings import BindingsDocument, BindingsError
from qim_common.tokens import TokenKeyError, parse_keys
from qim_devkit.kubernetes.checks.fault import Fault, place
from qim_devkit.kubernetes.checks.suite import Process, Suite
from qim_devkit.kubernetes.pods import containers_of, pod_template
from qim_devkit.kubernetes.render import Document

READERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "QIM_BINDINGS_FILE": lambda content: BindingsDocument.parse(content, "the bindings"),
    "QIM_TOKEN_KEY_FILE": lambda content: parse_keys(content, "the token keys"),
}
"""Variable that names a file -> what reads it, and raises for what it does not take."""


def faults(suite: Suite) -> list[Fault]:
    """Contents that no process would start with, and files that stay as they were at the start of the pod."""
    found = [fault for process in suite.processes for fault in _of(process)]
    for workload in suite.workloads:
        for raw in containers_of(workload):
            for mount in raw.get("volumeMounts", ()):
                if (mount.get("subPath") or mount.get("subPathExpr")) and not _is_claimed(workload, mount["name"]):
                    what = f"{mount['mountPath']} never changes: Kubernetes does not update a subPath"
                    remedy = "mount the directory: certificates, passwords and bindings are read again"
                    found.append(Fault(f"{place(workload)}, container {raw['name']}", what, remedy))
    return found


def _is_claimed(workload: Document, volume: str) -> bool:
    """Whether it is storage, not a ConfigMap or Secret."""
    claims = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
    others = {one["name"] for one in pod_template(workload)["spec"].get("volumes", ()) if "emptyDir" in one}
    return volume in claims | others


def _of(process: Process) -> list[Fault]:
    found = []
    for variable, reader in READERS.items():
        path = process.container.environment.get(variable, "") if variable in process.variables else ""
        if path not in process.container.files:
            continue
        try:
            reader(process.container.files[path])
        except (BindingsError, TokenKeyError) as error:
            found.append(Fault(process.where, f"{variable}: {error}", "the process would not start with it"))
    return found
